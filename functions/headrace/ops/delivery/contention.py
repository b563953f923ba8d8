"""Decide which waiting tasks a process tries to lease, so that processes seldom try the same ones.

The index shows every process the same head of the queue, and a lease that came too late costs a
write.  Three things keep the processes apart:

- ``Claims``: the threads of one process note which tasks they are about to lease, so that no two
  threads try the same task.
- A share of the tasks for each process.  Workers that send heartbeats are listed (``Members``), and
  each has its own share (``domain.worker``).  A process without this list learns of the others when
  it loses leases: it then keeps to a half, a quarter or an eighth of the tasks (``Part``), and to
  more again while it loses none.
- ``Crowd``: limits how often the callers that wait in one process look at the store.

A share never makes a process skip a task for long.  Whenever a process leases a task that is behind
another one, it remembers that it has overtaken the other task.  Each time, more processes may take
that task, until all may.  So at most a few chunks of each process overtake a task, whatever the
worker does whose share it is.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil, log2
from typing import Final
from zlib import crc32

from headrace.domain.change import Done, Entry, Outcome
from headrace.domain.ids import new_chance
from headrace.domain.queue import Queue
from headrace.domain.task import TURN_LANE, Task
from headrace.domain.worker import Portion, portion
from headrace.ops.shared.slots import remember
from headrace.store.base import Store
from headrace.store.call_scope import metered
from headrace.store.records.queues import WORKERS, worker_of

_Key = tuple[str, datetime]

_REMEMBERED: Final = 20_000
_CLAIM_LASTS: Final = timedelta(seconds=10)  # longer than a slow table takes for page and writes
_MOST_HALVINGS: Final = 3
_SHRINKS_BY: Final = 1.0  # halvings, at most, for each race in which a lease was lost
_GROWS_PER_WIN: Final = 0.01  # halvings, and for each win in a row as many more
_GROWS_PER_SECOND: Final = 0.1  # halvings
OVERTAKES_EVERY: Final = timedelta(milliseconds=5)
"""Calls of one process within this time count as one: the owner needs time to take its tasks."""


def _key(entry: Entry) -> _Key:
    # With its time, because a task that comes back is a new thing to take: not with that of its
    # turn, which it may keep.
    return (entry.task_id, entry.due_at or entry.scheduled_at)


@dataclass(frozen=True, slots=True)
class Part:
    """The share of a queue's tasks that hash to ``number`` of ``of``, a power of two."""

    of: int = 1
    number: int = 0

    def may_take(self, entry: Entry, overtaken: int) -> bool:
        """Return whether to take *entry*, which this process has *overtaken* so many times."""
        of = self.of >> 2 * overtaken  # a quarter as many parts each time
        # By other bits than those of shards and portions: of each, some tasks are in every part.
        return of <= 1 or (crc32(entry.task_id.encode()) >> 16) % of == self.number % of


ALL: Final = Part()


@dataclass(frozen=True, slots=True)
class _Share:
    """How often a queue is halved here, which half it is each time, and the races won in a row."""

    halvings: float
    number: int
    at: datetime
    wins: int = 0

    def left(self, now: datetime) -> float:
        """Return the halvings that time has not undone."""
        return max(0.0, self.halvings - _GROWS_PER_SECOND * (now - self.at).total_seconds())


@dataclass(slots=True)
class Claims:
    """The tasks that the threads of this process are leasing, and what it has overtaken or lost."""

    chance: random.Random = field(default_factory=new_chance)
    _taken: OrderedDict[_Key, datetime] = field(default_factory=OrderedDict)
    _overtaken: OrderedDict[_Key, tuple[int, datetime]] = field(default_factory=OrderedDict)
    _shares: dict[str, _Share] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def part(self, queue: str, now: datetime) -> Part:
        """Return the part of *queue* to take from: all of it, unless leases were lost lately."""
        share = self._shares.get(queue)
        of = 1 << round(share.left(now)) if share else 1
        return ALL if share is None or of == 1 else Part(of, share.number % of)

    def raced(self, queue: str, tried: int, won: int, now: datetime) -> None:
        """Note that *won* of the *tried* leases succeeded: lost ones make our part smaller."""
        with self._lock:
            share = self._shares.get(queue) or _Share(0.0, self.chance.getrandbits(32), now)
            halvings, number, wins = share.left(now), share.number, 0
            if won < tried:
                if round(halvings) == _MOST_HALVINGS:  # somebody has the same part
                    number = self.chance.getrandbits(32)
                lost = min(_SHRINKS_BY, log2((tried + 1) / (won + 1)))
                halvings = min(_MOST_HALVINGS, halvings + lost)
            else:
                wins = share.wins + 1
                halvings -= _GROWS_PER_WIN * wins
            if halvings > 0:
                self._shares[queue] = _Share(halvings, number, now, wins)
            else:
                self._shares.pop(queue, None)

    def free(self, entries: Sequence[Entry]) -> int:
        """Return how many of *entries* no thread of this process is taking."""
        with self._lock:
            return sum(_key(entry) not in self._taken for entry in entries)

    def pick(
        self, window: Sequence[Entry], count: int, *, now: datetime, mine: Part | Portion
    ) -> list[Entry]:
        """Claim up to *count* entries of *window*, in its order, that are in the part *mine*.

        If that part has no free entry, claim a few of the other parts.
        """
        with self._lock:
            self._forget(now)
            free = [entry for entry in window if _key(entry) not in self._taken]
            picked = free[:count] if mine.of == 1 else self._first_of(free, count, now, mine)
            for entry in picked:
                self._taken[_key(entry)] = now
                self._overtaken.pop(_key(entry), None)
        return picked

    def _first_of(
        self, free: Sequence[Entry], count: int, now: datetime, mine: Part | Portion
    ) -> list[Entry]:
        """Return the entries to take, and note that those before them are overtaken."""
        picked, passed = list[Entry](), list[Entry]()
        before = 0
        for entry in free:
            times, _ = self._overtaken.get(_key(entry), (0, now))
            if mine.may_take(entry, times):
                picked.append(entry)
                before = len(passed)
                if len(picked) == count:
                    break
            else:
                passed.append(entry)
        if len(picked) < count:  # we found too little: the rest was overtaken by a whole call
            before = len(passed)
        few = [] if picked else passed[: ceil(count / mine.of)]
        for entry in passed[len(few) : before]:
            times, at = self._overtaken.get(_key(entry), (0, now - OVERTAKES_EVERY))
            if now - at >= OVERTAKES_EVERY:
                remember(self._overtaken, _key(entry), (times + 1, now), most=_REMEMBERED)
        return picked or few

    def first_passed(self, window: Sequence[Entry], last: str) -> Entry | None:
        """Return the first entry with a turn before task *last* that still waits, if there is one.

        Still waits means: no thread of this process has tried to lease it.
        """
        with self._lock:
            for entry in window:
                if entry.task_id == last:
                    return None
                if entry.place.lane == TURN_LANE and _key(entry) not in self._taken:
                    return entry
        return None

    def drop(self, entries: Sequence[Entry]) -> None:
        """Forget *entries* that were not leased after all, or were released."""
        with self._lock:
            for entry in entries:
                self._taken.pop(_key(entry), None)

    def _forget(self, now: datetime) -> None:
        """A claim outlives its write, for threads that read the index before it."""
        while self._taken:
            key, taken_at = next(iter(self._taken.items()))
            if now - taken_at < _CLAIM_LASTS and len(self._taken) < _REMEMBERED:
                return
            del self._taken[key]


LISTED_FOR: Final = timedelta(seconds=10)
"""How long a list of workers is used: a process does not know the workers that came since."""

_AGAIN: Final = 10  # times as soon where a race was lost, and as much later for each page there is
_PAGE: Final = 250  # records, those of workers that are silent too, until the table removes them
_PAGES: Final = 40
_MOST: Final = 1_000  # workers of a queue; more do not divide it
_HERE_FOR: Final = timedelta(minutes=5)
_LOST_FOR: Final = timedelta(minutes=10)
_CALLERS: Final = 20_000


@dataclass(slots=True, eq=False, repr=False)
class Members:
    """The processes that lease tasks, as this process knows them."""

    store: Store
    now: Callable[[], datetime]
    listed_for: timedelta = LISTED_FOR
    _listed: dict[str, list[str]] = field(default_factory=dict)  # by queue
    _listed_at: datetime | None = None
    _pages: int = 1
    _callers: OrderedDict[tuple[str, str], datetime] = field(default_factory=OrderedDict)
    _lost_at: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, queue: Queue, worker: str) -> tuple[Portion | None, bool]:
        """Return the part of *worker*, and whether that is known without asking the table.

        None for one who need not keep to a part.
        """
        if not worker:
            return None, True
        now = self.now()
        with self._lock:
            remember(self._callers, (queue.name, worker), now, most=_CALLERS)
            if self._listed_at is None or now - self._listed_at >= self.listed_for:
                return None, False
            return self._portion(queue, worker, now), True

    def ask(self, queue: Queue, worker: str) -> Portion | None:
        """Return the part of *worker*, by a list as it is now."""
        now = self.now()
        listed: dict[str, list[str]] = {}
        after, more, pages = "", True, 0
        with metered():  # now and then for all who ask here: no caller's to pay
            while more and pages < _PAGES:
                records, more = self.store.records(
                    WORKERS, after=after, limit=_PAGE, consistent=False
                )
                pages += 1
                for record in records:
                    after = record.name
                    for name in worker_of(record).on_duty(now):
                        listed.setdefault(name, []).append(record.name)
        with self._lock:
            # Of too many records all see the same first ones; who is not among them has no part.
            self._listed = {name: of for name, of in listed.items() if len(of) <= _MOST}
            self._listed_at, self._pages = now, pages
            return self._portion(queue, worker, now)

    def raced(self, queue: str, tried: int, won: int) -> None:
        """Note how a race went: who loses some does not know of all the others."""
        if won == tried:
            return
        now = self.now()
        with self._lock:
            self._lost_at[queue] = now
            again_after = self.listed_for / _AGAIN * self._pages
            if self._listed_at is not None and now - self._listed_at >= again_after:
                self._listed_at = None

    def _portion(self, queue: Queue, worker: str, now: datetime) -> Portion | None:
        members = self._listed.get(queue.name, [])
        if len(members) <= 1:
            return None
        lost_at = self._lost_at.get(queue.name)
        if lost_at is None or now - lost_at >= _LOST_FOR:
            callers = [self._callers.get((queue.name, one)) for one in members]
            if all(at is not None and now - at < _HERE_FOR for at in callers):
                return None
        return portion(members, worker, queue.settings.shards, now)


LOOKS_PER_SECOND: Final = 500
"""Of all who wait; a look takes about half a millisecond of CPU."""


@dataclass(slots=True, eq=False, repr=False)
class Crowd:
    """Counts the sleeping callers; a caller sleeps inside ``with crowd:``."""

    _asleep: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pause(self, usual: float) -> float:
        """Return how many seconds to sleep before one looks again, at least *usual*."""
        return max(usual, (self._asleep + 1) / LOOKS_PER_SECOND)

    def __enter__(self) -> None:
        with self._lock:
            self._asleep += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._asleep -= 1


@dataclass(slots=True)
class Race:
    """What was won, and how many writes it is not known of whether they took effect."""

    won: list[Task] = field(default_factory=list)
    unclear: int = 0

    def note(self, outcomes: Sequence[Outcome]) -> int:
        """Add the outcomes of some writes; return how many of them won.

        A refusal shows the task, unless it is gone, or the table stopped answering before.
        """
        won = [outcome.task for outcome in outcomes if isinstance(outcome, Done)]
        self.won += won
        self.unclear += sum(
            not isinstance(outcome, Done) and outcome.task is None for outcome in outcomes
        )
        return len(won)
