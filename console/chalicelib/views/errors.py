"""What goes wrong in all queues: a group for each kind of error, counted by the recorder."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import FINGERPRINT_RE, TaskFilter
from headrace.domain.operate import BulkAction
from headrace.history.errors import ErrorGroup, Errors

from .. import charts, formatting, urls
from ..charts import Spark
from ..pages import Page
from ..parts import Choice, Empty, Field, Hidden, Link
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from .actions import ACTIONS, action_named
from .navigation import queue_link
from .selections import go_on

_GROUPS: Final = 100
_QUEUES: Final = 12
_WORKERS: Final = 250
_LONGEST: Final = 128  # letters of a name
_OFFERED: Final = (BulkAction.RESTART, BulkAction.DELETE)


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """A queue with tasks of a group; ``url`` lists them."""

    name: str
    url: str
    dead: int
    retried: int


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Tasks with similar errors; ``hidden`` identifies the group in a form, if it has one."""

    type: str
    message: str
    dead: int
    retried: int
    first: datetime
    last: datetime
    hour: Spark
    day: Spark
    queues: tuple[GroupQueue, ...]
    more: str
    workers: str
    sample: str
    sample_url: str
    hidden: tuple[Hidden, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorsPage(Page):
    """Groups of errors; ``uncounted`` links the queues whose errors must be counted anew."""

    template: ClassVar[str] = "errors.html"
    here: str
    prefix: Field
    summary: str
    as_of: datetime | None
    uncounted: tuple[Link, ...]
    groups: tuple[ErrorRow, ...]
    more: str
    actions: tuple[Choice, ...]
    empty: Empty


@routes.get(urls.DEAD, Permission.LIST)
def dead_letters(context: RequestContext) -> Reply:
    """Lead to the page that has taken the place of this one."""
    return Redirect(context.url(urls.ERRORS, {"name": context.request.param("name")}))


@routes.get(urls.ERRORS, Permission.LIST)
def show(context: RequestContext) -> Reply:
    """Show what goes wrong in the visitor's queues, most of it first."""
    prefix = context.request.param("name")[:_LONGEST]
    errors = context.use.errors.seen_by(context.by, prefix=prefix)
    versions = _versions(context) if errors.groups else {}
    left = len(errors.groups) - _GROUPS
    return ErrorsPage(
        title="Errors",
        here=context.url(urls.ERRORS),
        prefix=Field("name", "Queue begins with", prefix),
        summary=_summary(errors),
        as_of=errors.as_of,
        uncounted=tuple(queue_link(context, name) for name in errors.uncounted[:_QUEUES]),
        groups=tuple(_row(context, group, versions) for group in errors.groups[:_GROUPS]),
        more=f"and {formatting.count_of(left, 'kind')} of error more, each rarer"
        if left > 0
        else "",
        actions=tuple(
            Choice(each.value, f"{ACTIONS[each.value].verb}…", ACTIONS[each.value].danger)
            for each in _OFFERED
            if context.allows(Permission.OPERATE)
        ),
        empty=Empty(
            "Tasks that failed would be here, those of one error together: dead ones, and those "
            "that are tried again. There are none. Cancelled tasks are no failures: their queue "
            "lists them as dead."
        ),
    )


@routes.post(urls.ERRORS, Permission.OPERATE)
def look(context: RequestContext) -> Reply:
    """Begin a dry run of an action on all dead tasks of a group."""
    action = action_named(context.request.given("action"))
    queues = tuple(dict.fromkeys(context.request.form.get("queue", ())))
    named = context.request.given("fingerprint")
    if action.action not in _OFFERED or not FINGERPRINT_RE.fullmatch(named):
        message = "must be one that the page of errors has shown"
        raise InvalidRequest.of("fingerprint", message)
    context.require(Permission.OPERATE, *queues)
    where = TaskFilter(states=("DEAD",), fingerprint=named)
    return go_on(
        context, context.use.selections.look(action.action, queues, where, by=context.by.name)
    )


def _row(context: RequestContext, group: ErrorGroup, versions: Mapping[str, str]) -> ErrorRow:
    rare = not group.fingerprint
    left = len(group.queues) - _QUEUES
    dead = [queue.name for queue in group.queues if queue.dead]
    hidden = (Hidden("fingerprint", group.fingerprint), *(Hidden("queue", name) for name in dead))
    return ErrorRow(
        type="" if rare else group.type,
        message="errors of other kinds: more than are told apart"
        if rare
        else group.message or ("" if group.type else "no error was told"),
        dead=group.dead,
        retried=group.retried,
        first=group.first,
        last=group.last,
        hour=charts.spark(group.hour, of="failures", per="5 min"),
        day=charts.spark(group.day, of="failures", per="1 h", within="day"),
        queues=tuple(
            GroupQueue(
                queue.name,
                context.url(urls.QUEUE, {"fingerprint": group.fingerprint}, queue=queue.name),
                queue.dead,
                queue.retried,
            )
            for queue in group.queues[:_QUEUES]
        ),
        more=f"and {formatting.count_of(left, 'queue')} more" if left > 0 else "",
        workers=", ".join(
            f"{name} ({versions[name]})" if versions.get(name) else name for name in group.workers
        ),
        sample=group.sample,
        sample_url=context.url(urls.TASK, id=group.sample) if group.sample else "",
        hidden=hidden if dead and not rare else (),
    )


def _versions(context: RequestContext) -> Mapping[str, str]:
    """Return the versions of the workers that are alive, by name."""
    page = context.use.workers.list(context.by, limit=_WORKERS)
    return {one.heartbeat.name: one.heartbeat.version for one in page.shown}


def _summary(errors: Errors) -> str:
    kinds = formatting.count_of(len(errors.groups), "kind")
    retried = sum(group.retried for group in errors.groups)
    return (
        f"{kinds} of error: {formatting.count_of(errors.dead, 'dead task')}, "
        f"{formatting.number(retried)} being tried again."
    )
