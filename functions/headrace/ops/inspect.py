"""Looking at tasks without consuming them: lists and counts, page by page, in constant memory."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.domain.change import Entry
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import ANSWER_BYTES
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State, Task
from headrace.ops.cursor import Cursors
from headrace.ops.deliveries import task_bytes
from headrace.ops.queues import Queues
from headrace.store.base import Position, Store

_MICROSECOND: Final = timedelta(microseconds=1)
_ORDER: Final = (State.ENQUEUED, State.INFLIGHT, State.DEAD, State.SUCCEEDED)
_READ: Final = 50  # tasks read at once


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks in order, and the cursor of the next page."""

    tasks: tuple[Task, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tasks there are, in all and by stored state, and when that was so."""

    count: int
    by_state: Mapping[State, int]
    as_of: datetime


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch of one state's time."""

    state: State
    since: datetime | None = None
    until: datetime | None = None

    def holds(self, task: Task) -> bool:
        """Tell whether *task*, as read, is what the index said."""
        return (
            task.state is self.state
            and (self.since is None or task.scheduled_at >= self.since)
            and (self.until is None or task.scheduled_at <= self.until)
        )


def _spans(words: Sequence[str], now: datetime) -> tuple[_Span, ...]:
    """Return what the words of a ``state`` filter mean at *now*, in the order of lists.

    Raises InvalidRequest naming the field for a word that is none.
    """
    waiting = _Span(State.ENQUEUED)
    ready = _Span(State.ENQUEUED, until=now)
    scheduled = _Span(State.ENQUEUED, since=now + _MICROSECOND)
    meanings: dict[str, set[_Span]] = {
        **{str(state): {_Span(state)} for state in State},
        "SCHEDULED": {scheduled},
        "READY": {ready},
        "pending": {waiting, _Span(State.INFLIGHT)},
        "failed": {_Span(State.DEAD)},
        "running": {_Span(State.INFLIGHT)},
    }
    found: set[_Span] = set()
    for word in words:
        if word not in meanings:
            detail = f"state must be one or more of {', '.join(meanings)}, with commas between"
            raise InvalidRequest(detail, errors=(FieldError("state", detail),))
        found |= meanings[word]
    if not words:
        found = {_Span(state) for state in State}
    if waiting in found or {ready, scheduled} <= found:
        found = (found - {ready, scheduled}) | {waiting}
    return tuple(sorted(found, key=lambda span: _ORDER.index(span.state)))


@dataclass(slots=True)
class Inspect:
    """The use case, with what it needs from outside."""

    store: Store
    queues: Queues
    now: Callable[[], datetime]
    cursors: Cursors

    def list(
        self,
        queue: str,
        *,
        states: Sequence[str] = (),
        descending: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        payload: bool = False,
    ) -> TaskPage:
        """Return a page of tasks: state after state, by time within each, shards merged.

        A page may be short and still have a cursor.
        Raises NotFound for the queue, InvalidRequest for ``state`` and ``cursor``.
        """
        source = self.queues.cached(queue)
        scope = f"tasks {queue} {','.join(states)} {descending}"
        walk = _Walk.begin(self.now())
        if cursor is not None:
            walk = _Walk.read(self.cursors.read(scope, cursor))
        spans = _spans(states, walk.as_of)
        tasks: list[Task] = []
        room = ANSWER_BYTES
        while walk.span < len(spans) and len(tasks) < limit:
            span = spans[walk.span]
            wanted = min(_READ, limit - len(tasks))
            entries = self._merged(source, span, walk, descending=descending, limit=wanted)
            found = self.store.read([entry.task_id for entry, _ in entries], payload=payload)
            for entry, shard in entries:
                task = found.get(entry.task_id)
                fits = task is not None and task.queue == queue and span.holds(task)
                if task is not None and fits and not task.hidden(self.now()):
                    room -= task_bytes(task)
                    if room < 0 and tasks:
                        return TaskPage(tuple(tasks), self.cursors.write(scope, walk.state()))
                    tasks.append(task)
                walk.seen[shard] = Position(entry.scheduled_at, entry.task_id)
            if len(entries) < wanted:
                walk = walk.next_span()
        if walk.span >= len(spans):
            return TaskPage(tuple(tasks), None)
        return TaskPage(tuple(tasks), self.cursors.write(scope, walk.state()))

    def count(self, queue: str, *, states: Sequence[str] = ()) -> Counted:
        """Count tasks by the index, without those past their retention.

        Raises NotFound for the queue and InvalidRequest for ``state``.
        """
        source = self.queues.cached(queue)
        now = self.now()
        by_state = dict.fromkeys(State, 0)
        for span in _spans(states, now):
            for shard in range(source.shards_in_use):
                place = Place(queue, span.state, shard)
                by_state[span.state] += self.store.count(
                    place, since=span.since, until=span.until, now=now
                )
        return Counted(sum(by_state.values()), by_state, now)

    def _merged(
        self, queue: Queue, span: _Span, walk: "_Walk", *, descending: bool, limit: int
    ) -> Sequence[tuple[Entry, int]]:
        """Return the next entries of all shards in order, each with its shard."""

        def shard_entries(shard: int) -> Iterator[tuple[Entry, int]]:
            after = walk.seen.get(shard)
            while True:
                page = self.store.entries(
                    Place(queue.name, span.state, shard),
                    since=span.since,
                    until=span.until,
                    after=after,
                    descending=descending,
                    limit=limit,
                )
                yield from ((entry, shard) for entry in page.entries)
                after = page.last
                if after is None:
                    return

        merged = heapq.merge(
            *(shard_entries(shard) for shard in range(queue.shards_in_use)),
            key=lambda found: (found[0].scheduled_at, found[0].task_id),
            reverse=descending,
        )
        return [found for found, _ in zip(merged, range(limit), strict=False)]


@dataclass(slots=True)
class _Walk:
    """Where a list is: the span, what was seen last on each shard, and what "now" meant."""

    as_of: datetime
    span: int
    seen: dict[int, Position]

    @classmethod
    def begin(cls, now: datetime) -> "_Walk":
        return cls(now, 0, {})

    def next_span(self) -> "_Walk":
        return _Walk(self.as_of, self.span + 1, {})

    def state(self) -> Any:  # noqa: ANN401  JSON for the cursor
        seen = {
            shard: [position.scheduled_at.isoformat(), position.task_id]
            for shard, position in self.seen.items()
        }
        return [self.as_of.isoformat(), self.span, seen]

    @classmethod
    def read(cls, state: Any) -> "_Walk":  # noqa: ANN401  what state() returned
        as_of, span, seen = state
        positions = {
            int(shard): Position(datetime.fromisoformat(at).astimezone(UTC), task_id)
            for shard, (at, task_id) in seen.items()
        }
        return cls(datetime.fromisoformat(as_of), span, positions)
