"""A rate limiter, and a store that retries while the tables are throttled or away."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.domain.errors import Unavailable

TRIES: Final = 9
_FIRST: Final = 0.1  # seconds
_LONGEST: Final = 10.0
_AT_A_TIME: Final = 0.5  # seconds' worth of tasks


@dataclass(frozen=True, slots=True)
class RetryingStore:
    """A store whose every call is made again while it is unavailable.

    It waits a random time up to a bound that doubles (full jitter), so that many who were throttled
    together do not come back together; in all half a minute at most.  All calls of a store may be
    repeated.
    """

    store: Any
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[float, float], float] = random.uniform

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the store has)
        call = getattr(self.store, name)

        def retrying(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (likewise)
            bound = _FIRST
            for _ in range(TRIES - 1):
                try:
                    return call(*given, **named)
                except Unavailable:
                    self.sleep(self.chance(0, bound))
                    bound = min(_LONGEST, 2 * bound)
            return call(*given, **named)

        return retrying


@dataclass(slots=True)
class RateLimiter:
    """Lets no more than *rate* tasks a second through; None is any number."""

    rate: float | None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _next: float | None = field(default=None, init=False)

    def next(self, wanted: int) -> int:
        """Wait until some may go through; how many: *wanted* at the most.

        The time they take is waited before they go, so that no batch begins with a burst.
        """
        if self.rate is None:
            return wanted
        number = max(1, min(wanted, int(self.rate * _AT_A_TIME)))
        now = self.clock()
        due = max(now, self._next if self._next is not None else now) + number / self.rate
        self.sleep(max(0.0, due - now))
        self._next = due
        return number
