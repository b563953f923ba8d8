"""The due tasks of one shard, in delivery order.

Tasks of one shard wait in lanes.  Each priority has a lane in order of due time, and a task's turn
merges them: its due time, moved by the weight of the priority.  No task is delivered before it is
due.

A queue with groups has three lanes: of turns, of delayed tasks, and of tasks that a worker had
before.  Their orders differ, so they are not merged: each lane gives one task in turn as long as it
has due tasks, and an empty lane leaves its share to the others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final, TypeAlias

from headrace.domain.change import Entry
from headrace.domain.queue import Queue
from headrace.domain.task import RETURN_LANE, TURN_LANE, Place, State, Task
from headrace.store.base import Position, Store

TurnKey: TypeAlias = tuple[datetime, datetime, str]

_APART: Final = (TURN_LANE, RETURN_LANE)
_AT_ONCE: Final = 1_000
_FIRST: Final = 20


def turn_of(queue: Queue, entry: Entry) -> TurnKey:
    """Return the sort key of the order in which entries of waiting tasks are handed out."""
    return (queue.turn(entry.place.lane, entry.scheduled_at), entry.scheduled_at, entry.task_id)


def rank_of(queue: Queue, entry: Entry) -> TurnKey:
    """Return the sort key of *entry* among those of several queues: by its effective due time."""
    if entry.place.lane == TURN_LANE:
        return (entry.own_time, entry.scheduled_at, entry.task_id)
    return turn_of(queue, entry)


def delivery_turn(queue: Queue, task: Task) -> TurnKey:
    """Return the sort key of the order in which tasks of *queue* are handed out."""
    turn = task.turn or queue.turn(queue.lane_of(task.priority), task.due_at)
    return (turn, task.due_at, task.id)


def delivery_rank(queue: Queue, task: Task) -> TurnKey:
    """Return the sort key of *task* of *queue* among those of other queues: when it was due."""
    if queue.settings.groups is None:
        return delivery_turn(queue, task)
    return (task.due_at, task.turn or task.due_at, task.id)


def oldest_ready(entries: Iterable[Entry], now: datetime) -> float | None:
    """Return for how many seconds the first deliverable entry has been due.

    None without one.
    """
    for entry in sorted(entries, key=lambda entry: entry.own_time):
        if entry.expires_at is None or entry.expires_at > now:
            return max(0.0, (now - entry.own_time).total_seconds())
    return None


def oldest_ready_of(store: Store, queue: Queue, now: datetime) -> float | None:
    """Return for how many seconds the oldest deliverable task of *queue* has been due.

    None without one.  Reads the first few tasks of each place: those may all have expired.
    """
    ages = (
        oldest_ready(store.entries(place, until=now, limit=_FIRST).entries, now)
        for place in queue.places(State.ENQUEUED)
    )
    return max((age for age in ages if age is not None), default=None)


def some_due(store: Store, place: Place, until: datetime) -> bool:
    """Return whether a task at *place* was due by *until*."""
    if place.lane != TURN_LANE:
        return bool(store.entries(place, until=until, limit=1).entries)
    after, limit = None, 1
    while True:
        page = store.entries(place, after=after, limit=limit)
        if any(entry.own_time <= until for entry in page.entries):
            return True
        after, limit = page.last, _AT_ONCE
        if after is None:
            return False


@dataclass(slots=True)
class _Lane:
    """The read part of a lane: the entries not yet yielded, and the last position."""

    place: Place
    unread: deque[Entry] = field(default_factory=deque)
    after: Position | None = None
    exhausted: bool = False


@dataclass(slots=True)
class ShardReader:
    """Reads the due tasks of one shard, page by page.

    With *until*, reads only tasks that are due by then; without, ``next_due`` is the due time of
    the first task seen that is not due yet.  *first* is the number of the lane that begins.
    """

    store: Store
    queue: Queue
    shard: int
    now: Callable[[], datetime]
    until: datetime | None = None
    first: int = 0
    next_due: datetime | None = field(default=None, init=False)
    _lanes: list[_Lane] = field(init=False)
    _taking_turns: deque[list[_Lane]] = field(init=False)

    def __post_init__(self) -> None:
        name, shard = self.queue.name, self.shard
        self._lanes = [_Lane(Place(name, State.ENQUEUED, shard, lane)) for lane in self.queue.lanes]
        apart = [[lane] for lane in self._lanes if lane.place.lane in _APART]
        merged = [lane for lane in self._lanes if lane.place.lane not in _APART]
        self._taking_turns = deque([merged, *apart])
        self._taking_turns.rotate(-self.first)

    def skip(self, positions: Mapping[int, Position]) -> None:
        """Begin behind *positions*, by lane."""
        for lane in self._lanes:
            lane.after = positions.get(lane.place.lane)

    @property
    def exhausted(self) -> bool:
        """Whether all due tasks have been given."""
        return all(lane.exhausted and not lane.unread for lane in self._lanes)

    def page(self, limit: int) -> list[Entry]:
        """Return the next entries, up to *limit*; each lane is read that has fewer left."""
        if len(self._taking_turns) == 1:
            return self._merged(self._lanes, limit)
        page: list[Entry] = []
        share = -(-limit // len(self._taking_turns))
        waiting = len(self._taking_turns)
        while waiting and len(page) < limit:
            lanes = self._taking_turns[0]
            self._taking_turns.rotate(-1)
            found = self._next(lanes, share)
            waiting = len(self._taking_turns) if found else waiting - 1
            page += found
        return page

    def _next(self, lanes: list[_Lane], share: int) -> list[Entry]:
        """Return the first entry of *lanes*, or an empty list; read *share* if a lane is empty."""
        return self._merged(lanes, 1, read=share)

    def _merged(self, lanes: list[_Lane], limit: int, *, read: int = 0) -> list[Entry]:
        for lane in lanes:
            while not lane.exhausted and len(lane.unread) < limit:
                self._read(lane, read or limit)
        if len(lanes) == 1:
            (only,) = lanes
            return [only.unread.popleft() for _ in range(min(limit, len(only.unread)))]
        firsts = [entry for lane in lanes for entry in islice(lane.unread, limit)]
        page = sorted(firsts, key=lambda entry: turn_of(self.queue, entry))[:limit]
        unread = {lane.place.lane: lane.unread for lane in lanes}
        for entry in page:  # of each lane they are its first ones
            unread[entry.place.lane].popleft()
        return page

    def _read(self, lane: _Lane, limit: int) -> None:
        found = self.store.entries(lane.place, until=self.until, after=lane.after, limit=limit)
        lane.after, lane.exhausted = found.last, found.last is None
        now = self.now()
        for entry in found.entries:
            due_at = entry.own_time
            if due_at <= now:
                lane.unread.append(entry)
                continue
            self.next_due = min(self.next_due or due_at, due_at)
            if lane.place.lane != TURN_LANE:  # there the index is in another order
                lane.exhausted = True
                return
