"""The list of a queue's tasks: the filter in its address, the filter's form, and the rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.filters import FINGERPRINT_RE, LENGTH, STATE_WORDS, TaskFilter, statuses_of
from headrace.domain.queue import Queue
from headrace.domain.task import State, Status, Task

from .. import formatting, urls
from ..forms import Errors, number_of_ours
from ..parts import (
    Choice,
    Empty,
    Field,
    FilterForm,
    Hidden,
    Link,
    Looking,
    Option,
    Pager,
)
from ..request_context import RequestContext
from .actions import ACTIONS
from .navigation import per_page, priority_options, tag_links

STATE: Final = "state"
ORDER: Final = "order"
NAMES: Final = ("tag", "worker", "error", "fingerprint", "after", "before", "attempts",
               "priority", "group")  # fmt: skip
_NEWEST_FIRST: Final = ("DEAD", "SUCCEEDED", "failed")
_WORDS: Final = {word.lower(): word for word in STATE_WORDS}

_LOOK_AT: Final = 750  # tasks, where few fit: a page must not make one wait
_TIMES: Final = {
    "": "When",
    "SCHEDULED": "Due",
    "READY": "Due since",
    "INFLIGHT": "Lease granted until",
    "SUCCEEDED": "Succeeded",
    "DEAD": "Died",
}
_MEANS: Final = {
    State.ENQUEUED: "due",
    State.INFLIGHT: "lease granted until",
    State.SUCCEEDED: "succeeded",
    State.DEAD: "died",
}


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list; ``at`` is its state's own time, ``at_means`` says which."""

    id: str
    url: str
    status: Status
    dead_reason: str
    at: datetime
    at_means: str
    attempts: int
    worker: str
    tags: tuple[Link, ...]
    error: str
    priority: str = ""


@dataclass(frozen=True, slots=True)
class TaskList:
    """The tasks that a filter means; ``actions`` are for those that are ticked.

    ``matching`` is where an action on all that match begins, which ``matching_actions`` offer.
    """

    rows: tuple[TaskRow, ...]
    time_heading: str
    select: str | None
    actions: tuple[Choice, ...]
    pager: Pager
    empty: Empty
    matching: str | None = None
    matching_actions: tuple[Choice, ...] = ()
    ranked: bool = False
    looking: Looking | None = None


class TaskQuery:
    """The filter, order and page size in the address, with its errors."""

    def __init__(self, context: RequestContext) -> None:
        given = {name: context.request.param(name) for name in (STATE, *NAMES, ORDER, "limit")}
        given[STATE] = _WORDS.get(given[STATE].lower(), given[STATE])
        self.given: Mapping[str, str] = given
        self.errors = Errors()
        self.state = given[STATE]
        if self.state and self.state not in STATE_WORDS:
            self.errors.add(STATE, f"must be one of {', '.join(STATE_WORDS)}")
            self.state = ""
        errors = self.errors
        self.where = TaskFilter(
            states=(self.state,) if self.state else (),
            tags=errors.tags("tag", self.given["tag"]),
            worker=errors.text("worker", self.given["worker"], limits.WORKER_BYTES),
            scheduled_after=errors.instant("after", self.given["after"]),
            scheduled_before=errors.instant("before", self.given["before"]),
            min_attempts=errors.whole("attempts", self.given["attempts"], limits.COUNT),
            error=errors.text("error", self.given["error"], limits.ERROR_BYTES),
            fingerprint=self._fingerprint(),
            priority=errors.priority("priority", self.given["priority"]),
            group_key=errors.text("group", self.given["group"], limits.GROUP_KEY_BYTES[1]),
        )
        self.limit = errors.whole("limit", self.given["limit"], (1, limits.LIST_PAGE)) or 50

    def _fingerprint(self) -> str | None:
        given = self.given["fingerprint"]
        if given and not FINGERPRINT_RE.fullmatch(given):
            self.errors.add("fingerprint", f"must be {LENGTH} digits from 0 to f, or nothing")
            return None
        return given or None

    @property
    def descending(self) -> bool:
        """Whether the newest come first: by default in lists of finished tasks."""
        order = self.given[ORDER]
        return order == "desc" if order in ("asc", "desc") else self.state in _NEWEST_FIRST

    @property
    def narrowed(self) -> bool:
        """Whether anything besides the state is filtered by."""
        return any(self.given[name] for name in NAMES)

    def query(self, **changed: object) -> dict[str, object]:
        """Return the same query with something *changed*."""
        return {**self.given, **changed}


def filter_form(context: RequestContext, wanted: TaskQuery) -> FilterForm:
    """Return the form, as filled in."""
    given, error_of = wanted.given, wanted.errors.of
    order = "desc" if wanted.descending else "asc"
    fields: tuple[Field, ...] = (
        Field("error", "Error has", given["error"], error=error_of("error"),
              hint="in type, message or detail"),
        Field("tag", "Tags", given["tag"], error=error_of("tag"), hint="key=value, key=value"),
        Field("worker", "Worker", given["worker"], error=error_of("worker"), hint="exactly"),
        Field("priority", "Priority", given["priority"], "select", width="s",
              error=error_of("priority"),
              options=priority_options(given["priority"], "any")),
        Field("group", "Group", given["group"], error=error_of("group"), hint="exactly"),
        Field("attempts", "Attempts, at least", given["attempts"], "number", width="s",
              error=error_of("attempts")),
        Field("after", "After, UTC", given["after"], "datetime-local", error=error_of("after")),
        Field("before", "Before, UTC", given["before"], "datetime-local",
              error=error_of("before")),
        Field(ORDER, "Order", order, "select", width="s", options=(
            Option("asc", "oldest first", order == "asc"),
            Option("desc", "newest first", order == "desc"),
        )),
        per_page(wanted.limit, error_of("limit")),
    )  # fmt: skip
    if given["fingerprint"]:
        alike = Field("fingerprint", "Errors like", given["fingerprint"],
                      hint="of the dead letters", error=error_of("fingerprint"))  # fmt: skip
        fields = (alike, *fields)
    here = context.url(urls.QUEUE, queue=context.queue)
    clear = context.url(urls.QUEUE, {STATE: wanted.state}, queue=context.queue)
    return FilterForm(
        action=here,
        fields=fields,
        hidden=(Hidden(STATE, wanted.state),) if wanted.state else (),
        clear=clear if wanted.narrowed else None,
        open=wanted.narrowed or bool(wanted.errors),
    )


def tasks(
    context: RequestContext, queue: Queue, wanted: TaskQuery, counts: Mapping[Status, int]
) -> TaskList:
    """Return the tasks that *wanted* selects, and the actions on them.

    Of *counts* it takes about how many there are to look at.
    """
    rows: tuple[TaskRow, ...] = ()
    cursor = None
    looked = number_of_ours(context.request.param("looked"), 0)  # by the pages before this one
    if not wanted.errors:
        page = context.use.inspect.list(
            queue.name,
            wanted.where,
            descending=wanted.descending,
            limit=wanted.limit,
            cursor=context.cursor,
            look_at=_LOOK_AT,
        )
        means = {} if wanted.state in _TIMES and wanted.state else _MEANS
        rows = tuple(_row(context, task, means) for task in page.tasks)
        cursor = page.cursor
        looked += page.looked_at
    operates = context.allows(Permission.OPERATE, queue.name)
    fits = [each for each in ACTIONS.values() if each.takes(wanted.state)]
    more = context.url(urls.QUEUE, wanted.query(cursor=cursor, looked=looked), queue=queue.name)
    every = max(looked, _to_look_at(wanted, counts))
    far = f"{formatting.count_of(looked, 'task')} looked at"
    if cursor is not None:
        far = f"{formatting.number(looked)} of about {formatting.count_of(every, 'task')} looked at"
    so_far = f" found, {far}" if wanted.narrowed else ""
    return TaskList(
        rows=rows,
        time_heading=_TIMES.get(wanted.state, "When"),
        select=context.url(urls.SELECTED, queue=queue.name) if operates else None,
        actions=tuple(Choice(each.name, f"{each.verb}…", each.danger) for each in fits),
        pager=Pager(
            shown=f"{formatting.count_of(len(rows), 'task')}{so_far}" if rows else "",
            first=context.url(urls.QUEUE, wanted.query(), queue=queue.name)
            if context.cursor
            else None,
            next=more if cursor and rows else None,
        ),
        empty=_empty(queue.name, wanted),
        matching=context.url(urls.MATCHING, wanted.query(), queue=queue.name)
        if operates and (rows or cursor)
        else None,
        matching_actions=tuple(
            Choice(each.name, f"{formatting.upon(each.verb, 'all that match')}…", each.danger)
            for each in fits
        ),
        ranked=queue.settings.priority is not None,
        looking=Looking(looked, every, f"None found yet: {far}.", more)
        if cursor is not None and not rows
        else None,
    )


def _to_look_at(wanted: TaskQuery, counts: Mapping[Status, int]) -> int:
    """Return about how many tasks are in the states that are asked for."""
    meant = statuses_of(wanted.state) if wanted.state in STATE_WORDS else counts.keys()
    return sum(counts.get(status, 0) for status in meant)


def _row(context: RequestContext, task: Task, means: Mapping[State, str]) -> TaskRow:
    """Return a row; *means* says what its time is, where the heading does not."""
    return TaskRow(
        id=task.id,
        url=context.url(urls.TASK, id=task.id),
        status=task.status(context.now),
        dead_reason=task.dead_reason or "",
        at=task.scheduled_at,
        at_means=means.get(task.state, ""),
        attempts=task.attempts,
        worker=task.worker or "",
        tags=tag_links(context, task.queue, task.tags, state=context.request.param("state")),
        error=formatting.latest(task.errors, 300),
        priority=task.priority or "",
    )


def _empty(queue: str, wanted: TaskQuery) -> Empty:
    """Return the text for no tasks where there are no more to look at."""
    if wanted.errors:
        state = wanted.errors.of(STATE)  # which has no field to say it
        why = f"state {state}" if state else "something above is not right"
        return Empty(f"Nothing was looked for: {why}.")
    if wanted.narrowed:
        return Empty("No task fits this filter.")
    if wanted.state:
        return Empty(f"No task of {queue} is {wanted.state.lower()} now.")
    return Empty(
        "Tasks would be here. None is kept now.",
        f'headrace enqueue {queue} \'{{"hello": "world"}}\'',
    )
