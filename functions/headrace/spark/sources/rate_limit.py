"""How fast a job works: one rate for all its readers or writers, and pauses while nothing is due.

Spark decides how many partitions run at a time, so no share of a rate would be right for each.  So
all processes of a job reserve pieces of one timeline, in a record beside its claims.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final
from uuid import uuid4

from headrace.domain.errors import HeadraceError
from headrace.domain.times import micros_of
from headrace.runtime.wiring import utc_now
from headrace.spark.sources.claims import KEPT, KIND
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.store.base import Record, Store

_PIECE: Final = 0.5  # seconds' worth of tasks that are reserved at a time
_MICROS: Final = 1_000_000  # in a second
_CONFLICT: Final = 0.05  # seconds
_UNTIL: Final = "until"
_GROWTH: Final = 2.0


@dataclass(slots=True)
class RateLimiter:
    """Lets up to *rate* tasks a second through, or with None any number.

    With a *store* that is the rate of all processes that share the timeline *name*, else of this
    limiter.  It waits to the end of a piece before its tasks may go, so that no job begins with a
    burst.  It keeps the unused rest of a piece for the next call.
    """

    rate: float | None
    store: Store | None = None
    name: str = ""
    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[float, float], float] = random.uniform
    _kept: int = field(default=0, init=False)
    _own: int = field(default=0, init=False)

    def next(self, wanted: int) -> int:
        """Wait until some may go; return how many: *wanted* at the most."""
        if self.rate is None:
            return wanted
        if self._kept:
            number = min(wanted, self._kept)
            self._kept -= number
            return number
        number = max(1, min(wanted, int(self.rate * _PIECE)))
        until = self._reserved(round(number * _MICROS / self.rate))
        self.sleep(max(0.0, (until - micros_of(self.now())) / _MICROS))
        return number

    def back(self, number: int) -> None:
        """Take back so many of next() that were not used."""
        self._kept += number if self.rate is not None else 0

    def _reserved(self, length: int) -> int:
        """Reserve a piece of *length* behind all others; return its end, in microseconds."""
        if self.store is None:
            self._own = max(micros_of(self.now()), self._own) + length
            return self._own
        name = _record(self.name)
        while True:
            there, now = self.store.record(KIND, name), self.now()
            begin = max(micros_of(now), there.body[_UNTIL] if there else 0)
            version = there.version if there else 0
            new = Record(KIND, name, {_UNTIL: begin + length}, version + 1, now + KEPT)
            if self.store.put_record(new, replaces=version or None):
                return int(begin + length)
            self.sleep(self.chance(0, _CONFLICT))


@lru_cache(maxsize=4)
def shared_limiter(connection: StoreConnection, name: str, rate: float | None) -> RateLimiter:
    """Return this process's limiter for the timeline *name*: a group of leases, or a job."""
    if rate is None:
        return RateLimiter(None)
    return RateLimiter(rate, store(connection), name, opened(connection).now)


def new_timeline() -> str:
    """Return a new name of a timeline, for the writers of one job."""
    return f"job_{uuid4().hex}"


def forget_timeline(connection: StoreConnection, name: str) -> None:
    """Remove a timeline whose job has ended; else its record expires."""
    with suppress(HeadraceError):
        store(connection).drop_record(KIND, _record(name))


def _record(name: str) -> str:
    return f"{name}/pace"


@dataclass(slots=True)
class IdleBackoff:
    """When to look again after a look that found nothing: ever later, up to *longest* seconds.

    After a look that found something the next follows without a pause.
    """

    longest: float
    clock: Callable[[], float] = time.monotonic
    _pause: float = field(default=0.0, init=False)
    _next: float | None = field(default=None, init=False)

    @property
    def wait(self) -> float:
        """The seconds until the next look; 0 for now."""
        return 0.0 if self._next is None else max(0.0, self._next - self.clock())

    def found(self) -> None:
        """Note a look that found something."""
        self._pause, self._next = 0.0, None

    def nothing(self, *, least: float) -> None:
        """Note a look that found nothing; the next comes at least *least* seconds later."""
        self._pause = max(least, min(self._pause * _GROWTH, self.longest))
        self._next = self.clock() + self._pause
