"""When a failed task is tried again: pure arithmetic, no clock."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Seconds = int | float
_DOUBLINGS: Final = 64  # of a microsecond are half a million years, past every cap


class Backoff(StrEnum):
    """How the wait grows from one retry to the next."""

    EXPONENTIAL = "exponential"  #: base · 2^(n-1)
    LINEAR = "linear"  #: base · n
    QUADRATIC = "quadratic"  #: base · n²
    FIXED = "fixed"  #: base
    INTERVALS = "intervals"  #: the n-th of a list


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    """How often and when a failed task is tried again.

    ``max_retries`` retries mean one delivery more.  All times are seconds, fractions allowed.
    ``jitter`` 0.1 spreads each wait evenly between 90 % and 110 % of itself.
    """

    kind: Backoff = Backoff.EXPONENTIAL
    max_retries: int = 5
    base_seconds: Seconds = 20
    max_delay_seconds: Seconds = 3600
    jitter: int | float = 0.1
    intervals: tuple[Seconds, ...] = ()

    def delay_seconds(self, retry: int, spread: float) -> float:
        """Return the wait before retry number *retry* (1 is the first).

        *spread* is a random number in [0, 1): 0.5 gives the wait without jitter.
        The wait is capped by ``max_delay_seconds`` first and spread after.
        """
        match self.kind:
            case Backoff.EXPONENTIAL:
                wait: float = self.base_seconds * 2.0 ** min(retry - 1, _DOUBLINGS)
            case Backoff.LINEAR:
                wait = self.base_seconds * retry
            case Backoff.QUADRATIC:
                wait = self.base_seconds * retry**2
            case Backoff.INTERVALS:
                wait = self.intervals[min(retry, len(self.intervals)) - 1]
            case _:
                wait = self.base_seconds
        capped = min(wait, self.max_delay_seconds)
        return capped * (1 - self.jitter + 2 * self.jitter * spread)


DEFAULT_RETRY: Final = RetryStrategy()
