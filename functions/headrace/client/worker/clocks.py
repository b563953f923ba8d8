"""When a lease ends by this machine's monotonic clock, whatever its wall clock says."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeAlias

Monotonic: TypeAlias = Callable[[], float]

_DRIFT: Final = 0.001
"""Seconds that two clocks may come apart in one second."""


class ServiceClock:
    """The service's clock, as far as its answers tell.  Threads may share it.

    Each answer carries the service's time, which lies between the question and the answer; what
    is known from all of them is kept as the least and the most that the two clocks may differ.
    """

    def __init__(self, monotonic: Monotonic = time.monotonic) -> None:
        self.monotonic = monotonic
        self._known: tuple[float, float, float] | None = None  # at, least, most

    def heard(self, now: datetime, *, sent_at: float) -> None:
        """Take in an answer with the service's time *now* to the request of *sent_at*."""
        answered_at = self.monotonic()
        service_time = now.timestamp()
        least, most = service_time - answered_at, service_time - sent_at
        if self._known is not None:
            at, low, high = self._known
            drift = (answered_at - at) * _DRIFT
            low, high = low - drift, high + drift
            if low <= most and least <= high:  # otherwise one of the clocks was set
                least, most = max(least, low), min(most, high)
        self._known = (answered_at, least, most)

    def monotonic_at(self, instant: datetime) -> float:
        """Return when it is *instant* there, on this machine's monotonic clock: at the earliest.

        Raises RuntimeError before any answer was heard.
        """
        if self._known is None:
            raise RuntimeError("the service's time is not known yet")
        return instant.timestamp() - self._known[2]
