"""Who takes which of the waiting tasks, so that workers seldom race for the same one.

The index shows every worker the same head of the queue, and losing a race costs a write.  The
threads of one process tell each other what they are about to take.  Other processes are only met
in lost races: who loses some keeps to a part of the tasks, chosen by a number of its own, and to
half of that until it meets nobody there.  While it wins, its part grows, in the end to all of them.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil, log2
from typing import Final
from zlib import crc32

from headrace.domain.change import Entry

_Key = tuple[str, datetime]

_REMEMBERED: Final = 20_000
_CLAIM_LASTS: Final = timedelta(seconds=2)
_MOST_HALVINGS: Final = 5
_GROWS_PER_WIN: Final = 0.01  # halvings, and for each win in a row as many more
_GROWS_PER_SECOND: Final = 0.1  # halvings
_TURNS_EVERY: Final = 2  # seconds: tasks that are nobody's part are somebody's soon


def _key(entry: Entry) -> _Key:
    # With its time, because a task that comes back is a new thing to take.
    return (entry.task_id, entry.scheduled_at)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a queue's tasks: those that fall on ``number`` out of ``of`` this ``turn``."""

    of: int = 1
    number: int = 0
    turn: int = 0

    def has(self, entry: Entry) -> bool:
        """Tell whether *entry* is in this part."""
        return (crc32(entry.task_id.encode()) + self.turn) % self.of == self.number


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

    chance: random.Random = field(default_factory=random.Random)
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

    def raced(self, queue: str, tried: int, won: int, now: datetime) -> None:
        """Note how a race for tasks of *queue* went: the fewer were won, the smaller our part."""
        with self._lock:
            share = self._shares.get(queue) or _Share(0.0, self.chance.getrandbits(32), now)
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

    def free(self, entries: Sequence[Entry]) -> int:
        """Return how many of *entries* nobody here is taking."""
        with self._lock:
            return sum(_key(entry) not in self._taken for entry in entries)

    def pick(
        self, window: Sequence[Entry], count: int, *, now: datetime, part: Part
    ) -> list[Entry]:
        """Claim up to *count* entries of *window*: the first ones that are in *part*.

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
                    picked = sorted(self.chance.sample(free, few), key=_key_in_order)
            for entry in picked:
                self._taken[_key(entry)] = now
        return picked

    def drop(self, entries: Sequence[Entry]) -> None:
        """Let go of what could not be taken after all, or was given back."""
        with self._lock:
            for entry in entries:
                self._taken.pop(_key(entry), None)

    def _forget(self, now: datetime) -> None:
        """A claim outlives its write a little, for threads that read the index before it."""
        while self._taken:
            key, taken_at = next(iter(self._taken.items()))
            if now - taken_at < _CLAIM_LASTS and len(self._taken) < _REMEMBERED:
                return
            del self._taken[key]


def _key_in_order(entry: Entry) -> tuple[datetime, str]:
    return (entry.scheduled_at, entry.task_id)
