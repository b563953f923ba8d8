"""Dead letters of all queues, grouped by their error."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import FINGERPRINT_RE, TaskFilter, fault_of, fingerprint_of
from headrace.domain.operate import BulkAction
from headrace.domain.queue import Queue
from headrace.domain.task import Task

from .. import formatting, urls
from ..pages import Page
from ..parts import Choice, Empty, Field, Hidden, Pager
from ..request_context import RequestContext
from ..routes import Reply, routes
from .actions import ACTIONS, action_named
from .navigation import pager, queues_named
from .selections import go_on

_PAGE: Final = 12  # queues
_LOOKS: Final = 500  # dead tasks of all of them together: about 80 ms
_GROUPS: Final = 50
_DEAD: Final = TaskFilter(states=("DEAD",))
_OFFERED: Final = (BulkAction.RESTART, BulkAction.DELETE)


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """A queue with dead tasks of a group; ``url`` lists them."""

    name: str
    url: str
    count: int


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead tasks with similar errors; ``hidden`` identifies the group in a form."""

    type: str
    message: str
    count: int
    first: datetime
    last: datetime
    queues: tuple[GroupQueue, ...]
    sample: str
    sample_url: str
    hidden: tuple[Hidden, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPage(Page):
    """Groups of dead tasks; ``looked`` says how many tasks were read to find them."""

    template: ClassVar[str] = "dead.html"
    here: str
    prefix: Field
    looked: str
    groups: tuple[DeadGroup, ...]
    more: str
    actions: tuple[Choice, ...]
    pager: Pager
    empty: Empty


@routes.get(urls.DEAD, Permission.LIST)
def show(context: RequestContext) -> Reply:
    """Show the newest dead tasks of a page of queues, grouped by error."""
    prefix, page = queues_named(context, _PAGE)
    looks = _look(context, page.shown)
    groups = _grouped(context, looks)
    shown = groups[:_GROUPS]
    here = context.url(urls.DEAD)
    operates = context.allows(Permission.OPERATE)
    left = len(groups) - len(shown)
    queues = formatting.count_of(len(page.shown), "queue") if page.shown else ""
    return DeadPage(
        title="Dead letters",
        here=here,
        prefix=Field("name", "Queue begins with", prefix),
        looked=_looked_text(looks),
        groups=tuple(shown),
        more=f"and {formatting.count_of(left, 'kind')} of fault more, each rarer"
        if left > 0
        else "",
        actions=tuple(
            Choice(each.value, f"{ACTIONS[each.value].verb}…", ACTIONS[each.value].danger)
            for each in _OFFERED
            if operates
        ),
        pager=pager(context, queues, urls.DEAD, page.cursor, {"name": prefix}),
        empty=_empty(prefix, page.shown),
    )


@routes.post(urls.DEAD, Permission.OPERATE)
def look(context: RequestContext) -> Reply:
    """Begin a dry run of an action on all dead tasks of a group, the older ones too."""
    action = action_named(context.request.given("action"))
    queues = tuple(dict.fromkeys(context.request.form.get("queue", ())))
    named = context.request.given("fingerprint")
    if action.action not in _OFFERED or not FINGERPRINT_RE.fullmatch(named):
        message = "must be one that the page of dead letters has shown"
        raise InvalidRequest.of("fingerprint", message)
    context.require(Permission.OPERATE, *queues)
    where = TaskFilter(states=_DEAD.states, fingerprint=named)
    return go_on(
        context, context.use.selections.look(action.action, queues, where, by=context.by.name)
    )


@dataclass(slots=True)
class _QueueLook:
    """The newest dead tasks of one queue, as far as they were read, but the cancelled ones."""

    queue: str
    tasks: list[Task] = field(default_factory=list)
    cursor: str | None = None
    begun: bool = False

    @property
    def more(self) -> bool:
        return not self.begun or self.cursor is not None


def _look(context: RequestContext, queues: Sequence[Queue]) -> list[_QueueLook]:
    """Read equally many of each queue, and share what one does not need among the others."""
    looks = [_QueueLook(queue.name) for queue in queues]
    left = _LOOKS
    while (going := [look for look in looks if look.more]) and left >= len(going):
        share = left // len(going)
        for one in going:
            page = context.use.inspect.list(
                one.queue, _DEAD, descending=True, limit=share, cursor=one.cursor, look_at=share
            )
            one.tasks += [task for task in page.tasks if not task.cancelled]
            one.cursor, one.begun = page.cursor, True
            left -= max(1, page.looked_at)
    return looks


def _grouped(context: RequestContext, looks: Sequence[_QueueLook]) -> list[DeadGroup]:
    """Return the groups, the largest first, the latest first among those as large."""
    found: dict[str, list[Task]] = {}
    for look in looks:
        for task in look.tasks:
            found.setdefault(fingerprint_of(task), []).append(task)
    groups = [_group(context, name, tasks) for name, tasks in found.items()]
    return sorted(groups, key=lambda group: (group.count, group.last), reverse=True)


def _group(context: RequestContext, name: str, tasks: Sequence[Task]) -> DeadGroup:
    newest = max(tasks, key=lambda task: task.scheduled_at)
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.queue] = counts.get(task.queue, 0) + 1
    kind, message = fault_of(newest)
    query = {"state": "DEAD", "fingerprint": name}
    return DeadGroup(
        type=kind,
        message=message[:300] or ("" if kind else "no error was told"),
        count=len(tasks),
        first=min(task.scheduled_at for task in tasks),
        last=newest.scheduled_at,
        queues=tuple(
            GroupQueue(queue, context.url(urls.QUEUE, query, queue=queue), count)
            for queue, count in sorted(counts.items())
        ),
        sample=newest.id,
        sample_url=context.url(urls.TASK, id=newest.id),
        hidden=(
            Hidden("fingerprint", name),
            *(Hidden("queue", queue) for queue in sorted(counts)),
        ),
    )


def _looked_text(looks: Sequence[_QueueLook]) -> str:
    total = sum(len(look.tasks) for look in looks)
    cut = [look for look in looks if look.more]
    if not cut:
        return f"All {formatting.number(total)} dead of {formatting.count_of(len(looks), 'queue')}."
    least = min(len(look.tasks) for look in cut)
    return (
        f"Of the newest dead, at least {formatting.number(least)} of each queue, "
        f"{formatting.number(total)} in all; "
        f"{', '.join(look.queue for look in cut)} {'has' if len(cut) == 1 else 'have'} more. "
        "What is done to a group is done to its older ones too; a dry run counts them."
    )


def _empty(prefix: str, queues: Sequence[Queue]) -> Empty:
    if prefix and not queues:
        return Empty(f"No queue's name begins with {prefix}. Upper and lower case differ.")
    return Empty(
        "Dead tasks would be here, those of one fault together: a task dies of its last retry, of "
        "its expiry, or when a worker rejects it. None is kept now. Cancelled tasks are no "
        "failures: their queue lists them as dead."
    )
