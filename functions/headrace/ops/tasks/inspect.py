"""Looking at tasks without consuming them: lists and counts, page by page, in constant memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.domain.access import Principal, as_seen_by
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import EVERY_TASK, TaskFilter, TimeSpan
from headrace.domain.ids import WHOLE_ID_RE
from headrace.domain.indexing import wanted_term
from headrace.domain.limits import AnswerRoom
from headrace.domain.queue import Queue
from headrace.domain.task import SHOWN_STATES, TURN_LANE, State, Task, without_texts
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.paging import CountPosition, Walk, larger_page, merged_entries
from headrace.ops.shared.service_part import ServicePart
from headrace.store.call_scope import restricted
from headrace.store.records.queues import index_of

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_READ: Final = 50  # tasks read at once
_ENTRIES: Final = 1_000  # entries per read, if the filter needs no task
_WITH_PAYLOADS: Final = 250  # entries per read with payloads
_FEW: Final = 1_000  # ids that are looked at one by one
_LOOKED_AT: Final = 2_000  # tasks one call looks at before it answers with what it has
_COUNTED: Final = 250_000  # entries one call counts, at half a read unit for some thirty
_COUNTED_ONE_BY_ONE: Final = 10_000  # tasks, where the index cannot tell; a read unit each
_COMPARED: Final = 10_000  # tasks in the wanted states; with more of them the value's index is read
_LOOKS_FOR: Final = timedelta(seconds=5)  # and how long, where reading is slow


@dataclass(frozen=True, slots=True)
class TaskListing:
    """Tasks in order, the cursor of the next page, and how many were looked at to find them.

    ``by_creation``: in the order of their ids, for they were found by these or by an index.
    ``by_state``: they were found by their state, although a field of the filter is indexed.
    """

    tasks: tuple[Task, ...]
    cursor: str | None
    looked_at: int = 0
    by_creation: bool = False
    by_state: bool = False

    def as_seen_by(self, by: Principal) -> "TaskListing":
        """Return the page as *by* may see it."""
        return replace(self, tasks=tuple(as_seen_by(by, task) for task in self.tasks))


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tasks one step of a count has found, in all and by stored state.

    With a ``cursor`` there are more to look at, and the step behind it counts them; a count as a
    whole is as of its first step.
    """

    by_state: Mapping[State, int]
    as_of: datetime
    cursor: str | None

    @property
    def count(self) -> int:
        """How many in all."""
        return sum(self.by_state.values())

    @property
    def partial(self) -> bool:
        """Whether there are more to look at."""
        return self.cursor is not None


class Inspect(ServicePart):
    """Lists and counts tasks; a call counts for *patience* seconds."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 5.0

    def list(
        self,
        queue: str,
        where: TaskFilter = EVERY_TASK,
        *,
        descending: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        payload: bool = False,
        look_at: int = _LOOKED_AT,
        fetch: bool = True,
    ) -> TaskListing:
        """Return a page of tasks: state after state, by time within each, shards and lanes merged.

        What an id or an index leads to comes in the order of creation.

        A page may be short or empty and still have a cursor: it ends when *look_at* tasks have
        been looked at, or some seconds have passed.  Texts that are kept elsewhere are left there
        unless they are to *fetch*.
        Raises NotFound for the queue, InvalidRequest for ``state`` and ``cursor``.
        """
        source = self.service.queues.cached(queue)
        scope = f"tasks {queue} {where} {descending}"
        walk = Walk(self.now())
        if cursor is not None:
            walk = Walk.read(self.service.cursors.read(scope, cursor))
        tasks: list[Task] = []
        room = AnswerRoom()
        until = self.now() + _LOOKS_FOR
        for task, after in self.walk(
            source,
            where,
            walk,
            descending=descending,
            page=min(_READ, limit),
            payload=payload,
            indexed=True,
        ):
            if task is not None:
                if not payload:
                    task = without_texts(task, ("payload",))  # noqa: PLW2901  as it is shown
                if not room.takes_task(task) and tasks:
                    break  # the walk has not gone past it yet
                tasks.append(task)
            walk = after
            if len(tasks) == limit or walk.looked_at >= look_at or self.now() >= until:
                break
        else:
            return self._listing(source, where, tasks, walk, None, fetch=fetch)
        cursor = self.service.cursors.write(scope, walk.state())
        return self._listing(source, where, tasks, walk, cursor, fetch=fetch)

    def _listing(
        self,
        queue: Queue,
        where: TaskFilter,
        tasks: Sequence[Task],
        walk: Walk,
        cursor: str | None,
        *,
        fetch: bool,
    ) -> TaskListing:
        by_state = not walk.narrow and self._term(queue, where) is not None
        shown = self._whole(tasks, fetch=fetch)
        return TaskListing(shown, cursor, walk.looked_at, walk.narrow, by_state)

    def _whole(self, tasks: Sequence[Task], *, fetch: bool) -> tuple[Task, ...]:
        """Return *tasks* as they are shown; a text that is lost stays null."""
        present = with_present_ends(self.store, tasks)
        return tuple(self.service.texts.filled(present) if fetch else present)

    def count(
        self, queue: str, where: TaskFilter = EVERY_TASK, *, cursor: str | None = None
    ) -> Counted:
        """Count tasks, without those past their retention: by the index, if that can tell.

        One call is a step: it ends when it has looked at many, or for some seconds.
        Raises NotFound for the queue, InvalidRequest for ``state`` and ``cursor``.
        """
        source = self.service.queues.cached(queue)
        scope = f"count {queue} {where}"
        state = None if cursor is None else self.service.cursors.read(scope, cursor)
        by_state = dict.fromkeys(SHOWN_STATES, 0)
        steps: Iterator[Walk | CountPosition]
        at: Walk | CountPosition
        if where.by_index and not (where.by_time and TURN_LANE in source.lanes):
            at = CountPosition(self.now()) if state is None else CountPosition.read(state)
            steps = at.count(self.store, source, where, by_state)
            most = _COUNTED
        else:
            at = Walk(self.now()) if state is None else Walk.read(state)
            steps = self._look(source, where, at, by_state)
            most = _COUNTED_ONE_BY_ONE
        until = self.now() + timedelta(seconds=self.patience)
        for after in steps:
            if after.looked_at >= most or self.now() > until:
                return Counted(by_state, at.as_of, self.service.cursors.write(scope, after.state()))
        return Counted(by_state, at.as_of, None)

    def _look(
        self, queue: Queue, where: TaskFilter, walk: "Walk", by_state: dict[State, int]
    ) -> Iterator["Walk"]:
        """Look at task after task, add to *by_state* and yield where that leads."""
        for task, after in self.walk(queue, where, walk, page=100):
            if task is not None:
                by_state[task.state] += 1
            yield after

    def walk(
        self,
        queue: Queue,
        where: TaskFilter,
        walk: "Walk",
        *,
        page: int,
        descending: bool = False,
        payload: bool = False,
        indexed: bool = False,
    ) -> Iterator[tuple[Task | None, "Walk"]]:
        """Continue *walk* over the matching tasks; yield each with the walk behind it.

        None stands for an entry that was read and does not match.  *page* entries are read at
        first, then more and more, up to 50 (or *page*), which fit into memory.  With *indexed*, use
        an index of values if there is one; it may miss recent tasks.
        """
        where = self.service.versions.resolved(where)
        spans = where.spans(walk.as_of)
        if walk.fresh or walk.narrow:
            source = self._candidates(queue, where, indexed=indexed)
            if source is not None and (
                walk.narrow or not self._fewer_in_states(queue, where, spans, source, page)
            ):
                yield from self._narrow(
                    source, queue, where, walk, page=page, descending=descending, payload=payload
                )
                return
            if walk.narrow:
                raise InvalidRequest.of("cursor", "is of an index that was dropped; begin again")
        if where.id_prefix:  # of which few are read
            page = max(page, _WITH_PAYLOADS if payload or where.needs_payload else _ENTRIES)
        while walk.span < len(spans):
            span = spans[walk.span]
            merged = merged_entries(self.store, queue, span, walk, descending=descending, page=page)
            while entries := list(islice(merged, page)):
                may_be = [
                    entry.task_id
                    for entry in entries
                    if where.may_match(entry) and span.contains(entry.own_time)
                ]
                found = self._matching(queue, where, [span], may_be, payload=payload)
                for entry in entries:
                    walk = walk.past(entry)
                    yield found.get(entry.task_id), walk
                page = larger_page(page)
            walk = walk.next_span()
            yield None, walk

    def known_ids(self, where: TaskFilter) -> Sequence[str] | None:
        """Return all ids that *where* can match, if it names their prefix and there are few.

        A caller with access to some queues gets only a whole id, because the number and the cost of
        the other ids would show how many tasks of other queues have such an id.
        """
        prefix = where.id_prefix
        if prefix is None:
            return None
        if WHOLE_ID_RE.fullmatch(prefix):
            return [prefix]
        if restricted():
            return None
        found = self.store.ids(prefix, limit=_FEW)
        return None if found is None or found[1] else found[0]

    def _candidates(self, queue: Queue, where: TaskFilter, *, indexed: bool) -> "_Source | None":
        """Return where the ids of all tasks of *queue* come from that *where* may mean, if known.

        *indexed* allows for an index of values, in which what came a moment ago may be missing.
        """
        ids = self.known_ids(where)
        if ids is not None:
            return _known(ids)
        term = self._term(queue, where) if indexed else None
        if term is None:
            return None

        def source(after: str, descending: bool, limit: int) -> tuple[Sequence[str], bool]:  # noqa: FBT001  by place
            return self.store.matches(
                queue.name, term, after=after, descending=descending, limit=limit
            )

        return source

    def _term(self, queue: Queue, where: TaskFilter) -> str | None:
        """Return a term by which the index of *queue* knows all tasks that *where* means."""
        named = where.tags or where.payload
        return wanted_term(self.indexed(queue), where) if named else None

    def _fewer_in_states(
        self,
        queue: Queue,
        where: TaskFilter,
        spans: Sequence[TimeSpan],
        source: "_Source",
        page: int,
    ) -> bool:
        """Return whether fewer tasks are in the states of *where* than *source* has.

        *source* is read only as far as needed; a page of it or less is few enough.
        """
        if not where.states or where.id_prefix is not None or not source("", False, page)[1]:  # noqa: FBT003  by place
            return False
        number = 0
        for span in spans:
            for place in queue.places(span.state):
                turns = place.lane == TURN_LANE  # where all is due by now, in another order
                since, until = (None, None) if turns else (span.since, span.until)
                counted = self.store.count(place, since=since, until=until, now=None)
                number += counted.number
                if counted.last is not None or number > _COMPARED:
                    return False
        return number == 0 or source("", False, number)[1]  # noqa: FBT003  by place

    def indexed(self, queue: Queue) -> Sequence[str]:
        """Return the fields of which the index of *queue* knows all tasks."""
        wanted = queue.settings.indexed_fields
        index = index_of(self.store, queue.name) if wanted else None
        return () if index is None else [field for field in index.ready if field in wanted]

    def _narrow(
        self,
        source: "_Source",
        queue: Queue,
        where: TaskFilter,
        walk: "Walk",
        *,
        page: int,
        descending: bool,
        payload: bool,
    ) -> Iterator[tuple[Task | None, "Walk"]]:
        """Go on with *walk* over the tasks of *source*, as walk() does."""
        spans = where.spans(walk.as_of)
        more = True
        while more:
            ids, more = source(walk.last_id or "", descending, page)
            found = self._matching(queue, where, spans, ids, payload=payload)
            for task_id in ids:
                walk = walk.past_id(task_id)
                yield found.get(task_id), walk
            page = larger_page(page)
        yield None, replace(walk, narrow=True)

    def _matching(
        self,
        queue: Queue,
        where: TaskFilter,
        spans: Sequence[TimeSpan],
        task_ids: Sequence[str],
        *,
        payload: bool,
    ) -> dict[str, Task]:
        """Return those of the tasks that are in *queue* and in one of *spans*, and match *where*.

        Without *payload*, payloads that only the filter needed are left out.
        """
        now = self.now()
        matching = {
            task.id: task
            for task in self.read(task_ids, where, payload=payload).values()
            if task.queue == queue.name
            and any(span.holds(task) for span in spans)
            and where.matches(task)
            and not task.is_hidden(now)
        }
        if payload:
            return matching
        return {task_id: without_texts(task, ("payload",)) for task_id, task in matching.items()}

    def read(
        self, task_ids: Sequence[str], where: TaskFilter, *, payload: bool = False
    ) -> Mapping[str, Task]:
        """Return these tasks, with payloads also where *where* asks what is in them."""
        found = self.store.read(task_ids, payload=payload or where.needs_payload)
        if not where.needs_payload:
            return found
        filled = self.service.texts.filled([*found.values()], ("payload",))
        return {task.id: task for task in filled}


_Source: TypeAlias = Callable[[str, bool, int], tuple[Sequence[str], bool]]
"""Returns so many ids behind one, "" for the first, in order or against it; and whether more."""


def _known(ids: Sequence[str]) -> _Source:
    """Return the source of *ids*, which are in order."""

    def source(after: str, descending: bool, limit: int) -> tuple[Sequence[str], bool]:  # noqa: FBT001  by place
        if descending:
            behind = [one for one in reversed(ids) if not after or one < after]
        else:
            behind = [one for one in ids if one > after]
        return behind[:limit], len(behind) > limit

    return source
