"""Who takes which of the waiting tasks, so that workers seldom race for the same one.

The index shows every worker the same head of the queue, and losing a race costs a write.  Three
things keep them apart:

- ``Claims``: the threads of one process note what they are about to take, so that no two of them
  pick the same.  Processes notice each other by the races that they lose: one that loses some keeps
  to a part of the tasks, chosen by a number of its own, then to half of that, until it loses no
  more.  While it wins, its part grows, in the end to all of them.
- ``Members``: workers that send heartbeats are counted, and one that gives its name takes the part
  that is its own (``domain.worker``).  Only where nothing of its own is due it takes from the
  others', and little: tasks that it has seen waiting for a while.  If nothing has gone of what it
  saw, nobody else is taking tasks, and it takes from all.  A process whose callers are all the
  workers of a queue has no need of this, and does without until it loses a race.
- ``Crowd``: the callers that wait in one process look no oftener together than it can stand.  In
  Lambda a process has one caller.  The local service may have hundreds, each of whom would look ten
  times a second.
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

from headrace.domain.change import Entry
from headrace.domain.ids import new_chance
from headrace.domain.queue import Queue
from headrace.domain.task import Task
from headrace.domain.worker import Portion, portion
from headrace.ops.shared.slots import remember
from headrace.store.base import Done, Outcome, Store
from headrace.store.call_scope import metered
from headrace.store.records.workers import KIND, from_record

_Key = tuple[str, datetime]

_REMEMBERED: Final = 20_000
_CLAIM_LASTS: Final = timedelta(seconds=10)  # longer than a slow table takes for page and writes
_MOST_HALVINGS: Final = 5
_GROWS_PER_WIN: Final = 0.01  # halvings, and for each win in a row as many more
_GROWS_PER_SECOND: Final = 0.1  # halvings
_TURNS_EVERY: Final = 2  # seconds: tasks that are nobody's part are somebody's soon


def _key(entry: Entry) -> _Key:
    # With its time, because a task that comes back is a new thing to take: not with that of its
    # turn, which it may keep.
    return (entry.task_id, entry.due_at or entry.scheduled_at)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a queue's tasks: those that fall on ``number`` out of ``of`` this ``turn``."""

    of: int = 1
    number: int = 0
    turn: int = 0

    def has(self, entry: Entry) -> bool:
        """Tell whether *entry* is in this part."""
        # By other bits than those of shards and portions: of each, some tasks are in every part.
        high = crc32(entry.task_id.encode()) >> 16
        return (high + self.turn) % self.of == self.number


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
    """What the threads of this process are taking, and where races were lost lately."""

    chance: random.Random = field(default_factory=new_chance)
    _taken: OrderedDict[_Key, datetime] = field(default_factory=OrderedDict)
    _shares: dict[str, _Share] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def part(self, queue: str, now: datetime) -> Part:
        """Return the part of *queue* to take from: all of it, unless races were lost lately."""
        share = self._shares.get(queue)
        of = 1 << round(share.left(now)) if share else 1
        if share is None or of == 1:
            return ALL
        return Part(of, share.number % of, int(now.timestamp()) // _TURNS_EVERY)

    def raced(
        self, queue: str, tried: int, won: int, now: datetime, *, portioned: bool = False
    ) -> None:
        """Note how a race for tasks of *queue* went: the fewer were won, the smaller our part.

        Who is *portioned* keeps to a portion.  These move on by the clock, and whoever looked a
        moment before takes what is another's now: so one race lost says nothing, two in a row do.
        """
        with self._lock:
            known = self._shares.get(queue)
            share = known or _Share(0.0, self.chance.getrandbits(32), now)
            if portioned and known is None and won < tried:
                self._shares[queue] = share
                return
            halvings, number, wins = share.left(now), share.number, 0
            if won < tried:
                if round(halvings) == _MOST_HALVINGS:  # somebody has the same part
                    number = self.chance.getrandbits(32)
                halvings = min(_MOST_HALVINGS, halvings + log2((tried + 1) / (won + 1)))
            else:
                wins = share.wins + 1
                halvings -= _GROWS_PER_WIN * wins
            if halvings > 0:
                self._shares[queue] = _Share(halvings, number, now, wins)
            else:
                self._shares.pop(queue, None)

    def forget(self, queue: str) -> None:
        """Take from all of *queue* again: those that races were lost to are known from now on."""
        with self._lock:
            self._shares.pop(queue, None)

    def free(self, entries: Sequence[Entry]) -> int:
        """Return how many of *entries* nobody here is taking."""
        with self._lock:
            return sum(_key(entry) not in self._taken for entry in entries)

    def pick(
        self, window: Sequence[Entry], count: int, *, now: datetime, part: Part
    ) -> list[Entry]:
        """Claim up to *count* entries of *window*, in its order: the first that are in *part*.

        If there are none, some of the others, but few: they are somebody's.
        """
        with self._lock:
            self._forget(now)
            free = [entry for entry in window if _key(entry) not in self._taken]
            picked = free[:count]
            if part.of > 1:
                picked = [entry for entry in free if part.has(entry)][:count]
                if not picked:
                    few = min(ceil(count / part.of), len(free))
                    picked = [free[at] for at in sorted(self.chance.sample(range(len(free)), few))]
            for entry in picked:
                self._taken[_key(entry)] = now
        return picked

    def drop(self, entries: Sequence[Entry]) -> None:
        """Let go of what could not be taken after all, or was given back."""
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
LISTED_WHERE_CHEAP_FOR: Final = timedelta(seconds=0.5)
"""How long a list of workers is believed: who has come since loses races to who does not know."""

_AGAIN: Final = 10  # times as soon where a race was lost, and as much later for each page there is
_PAGE: Final = 250  # records, those of workers that are silent too, until the table removes them
_PAGES: Final = 40
_MOST: Final = 1_000  # workers of a queue; more do not divide it
_HERE_FOR: Final = timedelta(minutes=5)
_LOST_FOR: Final = timedelta(minutes=10)
_PATIENCE: Final = timedelta(seconds=0.15)  # a worker at work asks several times in it
_VIEW_LASTS: Final = timedelta(seconds=2)
_CALLERS: Final = 20_000
_VIEWS: Final = 256  # shards


@dataclass(slots=True)
class _View:
    """What was ready in a shard and others' to take: since when each has been seen there.

    Since ``still_since`` they took none of it; ``at`` is when it was last looked at.
    """

    still_since: datetime
    at: datetime
    seen: dict[_Key, datetime]


@dataclass(slots=True, eq=False, repr=False)
class Members:
    """What this process knows of who takes tasks."""

    store: Store
    now: Callable[[], datetime]
    claims: Claims
    listed_for: timedelta = LISTED_FOR
    _listed: dict[str, list[str]] = field(default_factory=dict)  # by queue
    _listed_at: datetime | None = None
    _pages: int = 1
    _callers: OrderedDict[tuple[str, str], datetime] = field(default_factory=OrderedDict)
    _lost_at: dict[str, datetime] = field(default_factory=dict)
    _views: OrderedDict[tuple[str, int], _View] = field(default_factory=OrderedDict)
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
                records, more = self.store.records(KIND, after=after, limit=_PAGE, consistent=False)
                pages += 1
                for record in records:
                    after = record.name
                    for name in from_record(record).on_duty(now):
                        listed.setdefault(name, []).append(record.name)
        with self._lock:
            # Of too many records all see the same first ones; who is not among them has no part.
            before = self._listed.get(queue.name, [])
            self._listed = {name: of for name, of in listed.items() if len(of) <= _MOST}
            self._listed_at, self._pages = now, pages
            mine = self._portion(queue, worker, now)
        if mine is not None and not set(self._listed.get(queue.name, [])) <= set(before):
            self.claims.forget(queue.name)
        return mine

    def raced(self, queue: str, tried: int, won: int) -> None:
        """Note how a race went: who loses some does not know of all the others."""
        if won == tried:
            return
        now = self.now()
        with self._lock:
            self._lost_at[queue] = now
            for (name, _), view in self._views.items():
                if name == queue:
                    view.still_since = now
            again_after = self.listed_for / _AGAIN * self._pages
            if self._listed_at is not None and now - self._listed_at >= again_after:
                self._listed_at = None

    def divide(
        self, queue: str, ready: Sequence[Entry], wanted: int, mine: Portion
    ) -> tuple[list[Entry], datetime | None]:
        """Return those of the *ready* tasks to take, in their order; if none, also when to."""
        now = self.now()
        shards: dict[int, list[tuple[Entry, int]]] = {}
        own = list[Entry]()
        for entry in ready:
            if away := mine.away(entry):
                shards.setdefault(entry.place.shard, []).append((entry, away))
            else:
                own.append(entry)
        free = list[tuple[Entry, datetime]]()
        for shard, others in shards.items():
            with self._lock:
                view = self._look(queue, shard, [entry for entry, _ in others], now)
            if view.still_since + _PATIENCE + mine.wait(others[0][1]) <= now:
                return list(ready), None
            for entry, away in () if len(own) >= wanted else others:
                free.append((entry, view.seen[_key(entry)] + _PATIENCE + mine.wait(away)))
        lying = [entry for entry, at in free if at <= now]
        few = min(ceil(len(lying) / mine.members), max(0, wanted - len(own)))
        helped = self.claims.chance.sample(lying, few)
        if helped:
            taken = {entry.task_id for entry in (*own, *helped)}
            return [entry for entry in ready if entry.task_id in taken], None
        if own:
            return own, None
        return [], min((at for _, at in free), default=None)

    def take(self, entries: Sequence[Entry]) -> None:
        """Note that *entries* are being taken here: that they go says nothing of others."""
        with self._lock:
            for entry in entries:
                view = self._views.get((entry.place.queue, entry.place.shard))
                if view is not None:
                    view.seen.pop(_key(entry), None)

    def _look(self, queue: str, shard: int, others: Sequence[Entry], now: datetime) -> _View:
        keys = [_key(entry) for entry in others]
        last = self._views.get((queue, shard)) or _View(now, now, {})
        there = set(keys)
        still = now - last.at < _VIEW_LASTS if not last.seen else last.seen.keys() <= there
        view = _View(
            last.still_since if still else now, now, {key: last.seen.get(key, now) for key in keys}
        )
        remember(self._views, (queue, shard), view, most=_VIEWS)
        return view

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
    """Counts those who sleep; ``with crowd:`` is one of them."""

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
