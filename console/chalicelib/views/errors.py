"""What goes wrong in all queues: a group for each kind of error, counted by the recorder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain import query
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import TaskFilter
from headrace.domain.fingerprints import FINGERPRINT_RE
from headrace.domain.list_query import called_function
from headrace.domain.operate import BulkAction
from headrace.domain.query import Query
from headrace.domain.query_grammar import term_text
from headrace.domain.task import Task
from headrace.history.errors import ErrorGroup, Errors

from .. import charts, formatting, urls
from ..charts import Spark
from ..forms import number_of_ours
from ..pages import Page
from ..parts import Choice, Empty, Hidden, Link, Pager, SearchBox
from ..request_context import RequestContext, each
from ..routes import Redirect, Reply, routes
from .action_pages import begin_look, under_way
from .actions import ACTIONS, action_named
from .navigation import queue_link, task_url
from .workers import remembered

_GROUPS: Final = 50  # of a page
_FROM: Final = "from"
_SEARCHED: Final = "q"
_TERMS: Final = "queue:orders error:Timeout"
_QUEUES: Final = 12
_LOOK_AT: Final = 100  # tasks of a queue, for a sample
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
    function: str
    sample: str
    sample_url: str
    hidden: tuple[Hidden, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorsPage(Page):
    """Groups of errors; ``uncounted`` links the queues that need a recount.

    ``search`` is the box that looks for some of them.
    """

    template: ClassVar[str] = "errors.html"
    here: str
    search: SearchBox
    summary: str
    as_of: datetime | None
    uncounted: tuple[Link, ...]
    groups: tuple[ErrorRow, ...]
    pager: Pager
    actions: tuple[Choice, ...]
    under_way: tuple[Link, ...]
    empty: Empty


@routes.get(urls.DEAD, Permission.LIST)
def dead_letters(context: RequestContext) -> Reply:
    """Lead to the page that has taken the place of this one."""
    return Redirect(context.url(urls.ERRORS, {"name": context.request.param("name")}))


@routes.get(urls.ERRORS, Permission.LIST)
def show(context: RequestContext) -> Reply:
    """Show what goes wrong in the visitor's queues, most of it first."""
    prefix = context.request.param("name")[:_LONGEST]
    typed = context.request.param(_SEARCHED).strip()
    asked, wrong = _asked(typed)
    errors = context.use.errors.seen_by(context.by, prefix=prefix, only=asked.queue)
    kinds = () if wrong else tuple(group for group in errors.groups if _fits(group, asked.where))
    errors = replace(errors, groups=kinds, dead=sum(group.dead for group in kinds))
    versions = _versions(context) if errors.groups else {}
    begin = number_of_ours(context.request.param(_FROM), 0)
    groups = errors.groups[begin : begin + _GROUPS]
    samples = _samples(context, groups)
    return ErrorsPage(
        title="Errors",
        here=context.url(urls.ERRORS),
        http_status=400 if wrong else 200,
        search=_box(context, prefix, typed, asked, wrong),
        summary=_summary(errors),
        as_of=errors.as_of,
        uncounted=tuple(queue_link(context, name) for name in errors.uncounted[:_QUEUES]),
        groups=tuple(
            _row(context, group, versions, samples.get(group.fingerprint)) for group in groups
        ),
        pager=_pager(context, {"name": prefix, _SEARCHED: typed}, begin, len(errors.groups)),
        actions=tuple(
            Choice(each.value, f"{ACTIONS[each.value].verb}…", ACTIONS[each.value].danger)
            for each in _OFFERED
            if context.allows(Permission.OPERATE)
        ),
        under_way=under_way(context),
        empty=_empty(typed, wrong),
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
    return begin_look(context, action.action, queues, where)


def _asked(typed: str) -> tuple[Query, str]:
    """Return what is looked for, and what is wrong with it: of a task's terms kinds have few."""
    try:
        asked = query.read(typed)
    except InvalidRequest as error:
        return Query(), error.errors[0].message
    where = asked.where
    if where != TaskFilter(error=where.error, fingerprint=where.fingerprint):
        return Query(), "may have queue:, error: and words of the error here, and nothing else"
    return asked, ""


def _box(context: RequestContext, prefix: str, typed: str, asked: Query, wrong: str) -> SearchBox:
    def url(query: str = "") -> str:
        return context.url(urls.ERRORS, {"name": prefix, _SEARCHED: query})

    return SearchBox(
        action=context.url(urls.ERRORS),
        text=typed,
        error=wrong,
        terms=tuple(
            Link(text, url(query.query_text(rest))) for text, rest in query.terms_of(asked)
        ),
        hidden=(Hidden("name", prefix),) if prefix else (),
        clear=url() if typed else None,
        things="errors",
        example=_TERMS,
        keys=("queue:", "error:"),
    )


def _fits(group: ErrorGroup, where: TaskFilter) -> bool:
    """Tell whether a kind is one that *where* names, by a part of its text or its fingerprint."""
    text = f"{group.type}: {group.message}".casefold()
    return where.fingerprint in (None, group.fingerprint) and (where.error or "").casefold() in text


def _empty(typed: str, wrong: str) -> Empty:
    if wrong:
        return Empty("Nothing was looked for: the query is not right.")
    if typed:
        return Empty("No kind of error fits.")
    return Empty(
        "Tasks that failed would be here, those of one error together: dead ones, and those that "
        "are tried again. There are none. Cancelled tasks are no failures: their queue lists them "
        "as dead."
    )


def _pager(context: RequestContext, asked: Mapping[str, str], begin: int, count: int) -> Pager:
    end = min(begin + _GROUPS, count)
    some = f"kinds {formatting.number(begin + 1)} to {formatting.number(end)}"
    return Pager(
        f"{some} of {formatting.number(count)}" if 0 < end - begin < count else "",
        context.url(urls.ERRORS, asked) if begin else None,
        context.url(urls.ERRORS, {**asked, _FROM: end}) if end < count else None,
    )


def _row(
    context: RequestContext,
    group: ErrorGroup,
    versions: Mapping[str, str],
    sample: Task | None,
) -> ErrorRow:
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
                context.url(
                    urls.QUEUE,
                    {_SEARCHED: term_text("fingerprint", group.fingerprint)},
                    queue=queue.name,
                ),
                queue.dead,
                queue.retried,
            )
            for queue in group.queues[:_QUEUES]
        ),
        more=f"and {formatting.count_of(left, 'queue')} more" if left > 0 else "",
        workers=", ".join(
            f"{name} ({versions[name]})" if versions.get(name) else name for name in group.workers
        ),
        function=called_function(sample.payload) if sample else "",
        sample=sample.id if sample else "",
        sample_url=task_url(context, sample.id) if sample else "",
        hidden=hidden if dead and not rare else (),
    )


def _samples(context: RequestContext, groups: Sequence[ErrorGroup]) -> dict[str, Task]:
    """Return a task of each kind that is dead of it, or tried again after it, by fingerprint.

    The task that failed last may have succeeded since, or be deleted: then another is looked for.
    """
    found = dict(context.use.errors.samples(context.by, groups))
    past = [group for group in groups if group.fingerprint not in found and group.fingerprint]
    others = each(lambda group: _another(context, group), past)
    found |= {task_fault: task for task_fault, task in others if task is not None}
    return found


def _another(context: RequestContext, group: ErrorGroup) -> tuple[str, Task | None]:
    """Return another task of a kind, where one of its queues shows one soon."""
    states = ("DEAD",) if group.dead else ("pending",)
    where = TaskFilter(states=states, fingerprint=group.fingerprint)
    for queue in group.queues:
        if not (queue.dead if group.dead else queue.retried):
            continue
        page = context.use.inspect.list(
            queue.name,
            where,
            descending=True,
            limit=1,
            payload=context.allows(Permission.DETAILS, queue.name),
            look_at=_LOOK_AT,
            fetch=False,
        )
        return group.fingerprint, next(iter(page.tasks), None)
    return group.fingerprint, None


def _versions(context: RequestContext) -> Mapping[str, str]:
    """Return the versions of the workers, by name."""
    workers, _ = remembered(context)
    return {one.heartbeat.name: one.heartbeat.version for one in workers}


def _summary(errors: Errors) -> str:
    kinds = formatting.count_of(len(errors.groups), "kind")
    retried = sum(group.retried for group in errors.groups)
    return (
        f"{kinds} of error: {formatting.count_of(errors.dead, 'dead task')}, "
        f"{formatting.number(retried)} being tried again."
    )
