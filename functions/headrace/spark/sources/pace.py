"""How fast a job may go: one rate for all of a batch's readers, and pauses while nothing comes.

How many shards are read at a time is Spark's affair, so no share of a rate would be right for each.
The readers of a batch reserve pieces of one line of time instead, which stands beside its claims;
so do the writers of a job that has no claims, by a name of its own.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol
from uuid import uuid4

from headrace.domain.errors import HeadraceError
from headrace.domain.times import micros_of
from headrace.spark.sources.claims import KEPT, KIND, pace_name
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.store.base import Record, Store

_PIECE: Final = 0.5  # seconds' worth of tasks that are reserved at a time
_MICROS: Final = 1_000_000  # in a second
_CONFLICT: Final = 0.05  # seconds
_UNTIL: Final = "until"
_GROWTH: Final = 2.0


class Pace(Protocol):
    """Says how many tasks may be leased now."""

    def next(self, wanted: int) -> int:
        """Wait until some may be leased; return how many: *wanted* at the most."""

    def back(self, number: int) -> None:
        """Take back so many that were not there to be leased."""


class Unlimited:
    """No limit."""

    def next(self, wanted: int) -> int:
        """Return *wanted*."""
        return wanted

    def back(self, number: int) -> None:
        """Do nothing."""


@dataclass(slots=True)
class SharedPace:
    """Lets all readers of *group* together lease no more than *rate* tasks a second.

    A piece of the line is waited for to its end before its tasks go, so that no batch begins with a
    burst.  What is not used of it this process keeps for its next reader.
    """

    store: Store
    group: str
    rate: float
    now: Callable[[], datetime]
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[float, float], float] = random.uniform
    _kept: int = field(default=0, init=False)

    def next(self, wanted: int) -> int:
        """Wait until some may be leased; return how many: *wanted* at the most."""
        if self._kept:
            number = min(wanted, self._kept)
            self._kept -= number
            return number
        number = max(1, min(wanted, int(self.rate * _PIECE)))
        until = self._reserved(number)
        self.sleep(max(0.0, (until - micros_of(self.now())) / _MICROS))
        return number

    def back(self, number: int) -> None:
        """Take back so many that were not there to be leased."""
        self._kept += number

    def _reserved(self, number: int) -> int:
        """Reserve a piece for so many tasks, behind all others; return its end, in microseconds."""
        name, length = pace_name(self.group), round(number * _MICROS / self.rate)
        while True:
            there, now = self.store.record(KIND, name), self.now()
            begin = max(micros_of(now), there.body[_UNTIL] if there else 0)
            version = there.version if there else 0
            new = Record(KIND, name, {_UNTIL: begin + length}, version + 1, now + KEPT)
            if self.store.put_record(new, replaces=version or None):
                return int(begin + length)
            self.sleep(self.chance(0, _CONFLICT))


@lru_cache(maxsize=4)
def pace(connection: StoreConnection, group: str, rate: float | None) -> Pace:
    """Return the pace of a group's readers, or of a job's writers, in this process."""
    if rate is None:
        return Unlimited()
    return SharedPace(store(connection), group, rate, opened(connection).now)


def begun() -> str:
    """Return the name of a line of time for the writers of one job."""
    return f"job_{uuid4().hex}"


def forget(connection: StoreConnection, line: str) -> None:
    """Remove a line whose job is over; what cannot be removed now the table forgets in time."""
    with suppress(HeadraceError):
        store(connection).drop_record(KIND, pace_name(line))


@dataclass(slots=True)
class IdleLooks:
    """When whoever found nothing looks again: ever later, at the most *longest* seconds later.

    Looks that find something follow each other at once.
    """

    longest: float
    clock: Callable[[], float] = time.monotonic
    _pause: float = field(default=0.0, init=False)
    _next: float | None = field(default=None, init=False)

    @property
    def wait(self) -> float:
        """In how many seconds the next look is; 0 for now."""
        return 0.0 if self._next is None else max(0.0, self._next - self.clock())

    def found(self) -> None:
        """Note a look that found something."""
        self._pause, self._next = 0.0, None

    def nothing(self, *, least: float) -> None:
        """Note a look that found nothing, after which the next comes *least* seconds later."""
        self._pause = max(least, min(self._pause * _GROWTH, self.longest))
        self._next = self.clock() + self._pause
