"""Who takes which of the waiting tasks, so that workers seldom race for the same one.

The index shows every worker the same head of the queue, and losing a race costs a write.  The
threads of one process tell each other what they are about to take; other processes are only met
in lost races, after which a worker picks at random for a while instead of at the head.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from headrace.domain.change import Entry

_Key = tuple[str, datetime]

_REMEMBERED: Final = 20_000
_CLAIM_LASTS: Final = timedelta(seconds=2)
_CROWDED_FOR: Final = timedelta(seconds=1)


def _key(entry: Entry) -> _Key:
    # With its time, because a task that comes back is a new thing to take.
    return (entry.task_id, entry.scheduled_at)


@dataclass(slots=True)
class Claims:
    """What the threads of this process are taking, and where races were lost lately."""

    chance: random.Random = field(default_factory=random.Random)
    _taken: OrderedDict[_Key, datetime] = field(default_factory=OrderedDict)
    _lost_at: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def crowded(self, queue: str, now: datetime) -> bool:
        """Tell whether a race for tasks of *queue* was lost a moment ago."""
        lost_at = self._lost_at.get(queue)
        return lost_at is not None and now - lost_at < _CROWDED_FOR

    def lost(self, queue: str, now: datetime) -> None:
        """Note a lost race."""
        self._lost_at[queue] = now

    def free(self, entries: Sequence[Entry]) -> int:
        """Return how many of *entries* nobody here is taking."""
        with self._lock:
            return sum(_key(entry) not in self._taken for entry in entries)

    def pick(
        self, window: Sequence[Entry], count: int, *, now: datetime, crowded: bool
    ) -> list[Entry]:
        """Claim up to *count* entries of *window*: the first ones, or in a crowd any."""
        with self._lock:
            self._forget(now)
            free = [entry for entry in window if _key(entry) not in self._taken]
            if crowded and len(free) > count:
                free = sorted(self.chance.sample(free, count), key=_key_in_order)
            picked = free[:count]
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
