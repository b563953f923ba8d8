"""Looking at tasks without consuming them: lists and counts, page by page, in constant memory."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final

from headrace.domain.change import Entry
from headrace.domain.filters import EVERY_TASK, TaskFilter, TimeSpan
from headrace.domain.queue import Queue
from headrace.domain.task import SHOWN_STATES, TURN_LANE, Place, State, Task, untold
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.offloaded import OffloadedTexts
from headrace.ops.shared.paging import AnswerRoom, Cursors
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import CountPage, Position, Store

_READ: Final = 50  # tasks read at once
_LOOKED_AT: Final = 2_000  # tasks one call looks at before it answers with what it has
_COUNTED: Final = 250_000  # entries one call counts, at half a read unit for some thirty
_COUNTED_ONE_BY_ONE: Final = 10_000  # tasks, where the index cannot tell; a read unit each
_LOOKS_FOR: Final = timedelta(seconds=5)  # and how long, where reading is slow


@dataclass(frozen=True, slots=True)
class TaskListing:
    """Tasks in order, the cursor of the next page, and how many were looked at to find them."""

    tasks: tuple[Task, ...]
    cursor: str | None
    looked_at: int = 0


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


@dataclass(slots=True, eq=False, repr=False)
class Inspect:
    """The use case, with what it needs from outside; *patience* is a count's seconds per call."""

    store: Store
    queues: QueueOperations
    now: Callable[[], datetime]
    cursors: Cursors
    patience: float = 5.0
    texts: OffloadedTexts = field(default_factory=partial(OffloadedTexts, None))

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
    ) -> TaskListing:
        """Return a page of tasks: state after state, by time within each, shards and lanes merged.

        A page may be short or empty and still have a cursor: it ends when *look_at* tasks have
        been looked at, or some seconds have passed.
        Raises NotFound for the queue, InvalidRequest for ``state`` and ``cursor``.
        """
        source = self.queues.cached(queue)
        scope = f"tasks {queue} {where} {descending}"
        walk = Walk(self.now())
        if cursor is not None:
            walk = Walk.read(self.cursors.read(scope, cursor))
        tasks: list[Task] = []
        room = AnswerRoom()
        until = self.now() + _LOOKS_FOR
        for task, after in self.walk(
            source, where, walk, descending=descending, page=min(_READ, limit), payload=payload
        ):
            if task is not None:
                if not payload:
                    task = untold(task, ("payload",))  # noqa: PLW2901  as it is shown
                if not room.takes_task(task) and tasks:
                    break  # the walk has not gone past it yet
                tasks.append(task)
            walk = after
            if len(tasks) == limit or walk.looked_at >= look_at or self.now() >= until:
                break
        else:
            return TaskListing(self._whole(tasks), None, walk.looked_at)
        cursor = self.cursors.write(scope, walk.state())
        return TaskListing(self._whole(tasks), cursor, walk.looked_at)

    def _whole(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return *tasks* as they are shown; a text that is lost stays null."""
        return tuple(self.texts.filled(with_present_ends(self.store, tasks)))

    def count(
        self, queue: str, where: TaskFilter = EVERY_TASK, *, cursor: str | None = None
    ) -> Counted:
        """Count tasks, without those past their retention: by the index, if that can tell.

        One call is a step: it ends when it has looked at many, or for some seconds.
        Raises NotFound for the queue, InvalidRequest for ``state`` and ``cursor``.
        """
        source = self.queues.cached(queue)
        scope = f"count {queue} {where}"
        state = None if cursor is None else self.cursors.read(scope, cursor)
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
                return Counted(by_state, at.as_of, self.cursors.write(scope, after.state()))
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
    ) -> Iterator[tuple[Task | None, "Walk"]]:
        """Go on with *walk* over the tasks that are meant, and yield each with where that leads.

        None stands for an entry that was looked at and is not meant.  *page* is how many are read
        at once to begin with; where that does not do, more and more, up to 50 (or *page*), which
        is what memory holds.
        """
        spans = where.spans(walk.as_of)
        while walk.span < len(spans):
            span = spans[walk.span]
            merged = self._merged(queue, span, walk, descending=descending, page=page)
            while entries := list(islice(merged, page)):
                found = self.store.read(
                    (
                        entry.task_id
                        for entry in entries
                        if where.may_mean(entry) and span.contains(entry.own_time)
                    ),
                    payload=payload,
                )
                now = self.now()
                for entry in entries:
                    task = found.get(entry.task_id)
                    meant = (
                        task is not None
                        and task.queue == queue.name
                        and span.holds(task)
                        and where.means(task)
                        and not task.hidden(now)
                    )
                    walk = walk.past(entry)
                    yield (task if meant else None), walk
                page = _more(page)
            walk = walk.next_span()
            yield None, walk

    def _merged(
        self, queue: Queue, span: TimeSpan, walk: "Walk", *, descending: bool, page: int
    ) -> Iterator[Entry]:
        """Yield the entries of all places in order."""

        def entries_of(place: Place) -> Iterator[Entry]:
            after, limit = walk.seen.get(place.label), page
            since, until = span.since, span.until
            if place.lane == TURN_LANE:  # where all is due by now, in another order
                if since is not None and since > walk.as_of:
                    return
                since = until = None
            while True:
                found = self.store.entries(
                    place,
                    since=since,
                    until=until,
                    after=after,
                    descending=descending,
                    limit=limit,
                )
                yield from found.entries
                after, limit = found.last, _more(limit)
                if after is None:
                    return

        return heapq.merge(
            *map(entries_of, queue.places(span.state)),
            key=lambda entry: (entry.scheduled_at, entry.task_id),
            reverse=descending,
        )


def _more(page: int) -> int:
    """Return how many to read at once after a page of so many."""
    return max(page, min(2 * page, _READ))


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a list is: the span, what was seen last at each place, and what "now" meant.

    Places go by their labels.
    """

    as_of: datetime
    span: int = 0
    seen: Mapping[int, Position] = field(default_factory=dict)
    looked_at: int = 0

    def past(self, entry: Entry) -> "Walk":
        """Return the walk behind *entry*."""
        position = Position(entry.scheduled_at, entry.task_id)
        seen = {**self.seen, entry.place.label: position}
        return Walk(self.as_of, self.span, seen, self.looked_at + 1)

    def next_span(self) -> "Walk":
        """Return the walk at the beginning of the next span."""
        return Walk(self.as_of, self.span + 1, {}, self.looked_at)

    def state(self) -> Any:  # noqa: ANN401  JSON for the cursor
        """Return the walk as JSON."""
        seen = {
            label: [position.scheduled_at.isoformat(), position.task_id]
            for label, position in self.seen.items()
        }
        return [self.as_of.isoformat(), self.span, seen]

    @classmethod
    def read(cls, state: Any) -> "Walk":  # noqa: ANN401  what state() returned
        """Return the walk that state() wrote."""
        as_of, span, seen = state
        positions = {
            int(label): Position(datetime.fromisoformat(at).astimezone(UTC), task_id)
            for label, (at, task_id) in seen.items()
        }
        return cls(datetime.fromisoformat(as_of), span, positions)


def counted(
    store: Store,
    place: Place,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    after: Position | None = None,
    now: datetime | None,
) -> Iterator[CountPage]:
    """Count a partition from *since* to *until*, yielding what each request has counted.

    Whoever stops early goes on later *after* the last position.  *now* as for ``Store.count``.
    """
    while True:
        page = store.count(place, since=since, until=until, after=after, now=now)
        yield page
        after = page.last
        if after is None:
            return


@dataclass(frozen=True, slots=True)
class CountPosition:
    """Where a count by the index is: a span of the filter, a place by its label, and behind what.

    ``as_of`` is what "now" means to it; ``looked_at`` is what was counted since it was read.
    """

    as_of: datetime
    span: int = 0
    label: int = 0
    after: Position | None = None
    looked_at: int = 0

    def count(
        self, store: Store, queue: Queue, where: TaskFilter, by_state: dict[State, int]
    ) -> Iterator["CountPosition"]:
        """Go on from here, add to *by_state* and, if that is not all, yield where that leads."""
        at, spans = self, where.spans(self.as_of)
        while at.span < len(spans):
            span = spans[at.span]
            place = Place.labelled(queue.name, span.state, at.label)
            for page in counted(
                store, place, since=span.since, until=span.until, after=at.after, now=self.as_of
            ):
                by_state[span.state] += page.number
                at = replace(at, after=page.last, looked_at=at.looked_at + page.number)
                if page.last is not None:
                    yield at
            labels = [one.label for one in queue.places(span.state)]
            behind = next((label for label in labels if label > at.label), None)
            at = replace(at, span=at.span + (behind is None), label=behind or 0)
            if at.span < len(spans):
                yield at

    def state(self) -> Any:  # noqa: ANN401  JSON for the cursor
        """Return the position as JSON."""
        after = self.after and [self.after.scheduled_at.isoformat(), self.after.task_id]
        return [self.as_of.isoformat(), self.span, self.label, after]

    @classmethod
    def read(cls, state: Any) -> "CountPosition":  # noqa: ANN401  what state() returned
        """Return the position that state() wrote."""
        as_of, span, label, after = state
        if after is not None:
            after = Position(datetime.fromisoformat(after[0]).astimezone(UTC), after[1])
        return cls(datetime.fromisoformat(as_of), span, label, after)
