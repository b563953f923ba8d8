"""When a failed task is tried again: pure arithmetic, no clock."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from headrace.domain import limits
from headrace.domain.settings import setting

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

    kind: Annotated[Backoff, setting("Backoff", "How the wait grows with each retry.")] = (
        Backoff.EXPONENTIAL
    )
    max_retries: Annotated[
        int,
        setting("Retries", "Attempts after the first.", limits.MAX_RETRIES, short="max_retries"),
    ] = 5
    base_seconds: Annotated[
        Seconds,
        setting("Base", "The wait before the first retry.", limits.BASE_SECONDS, short="base"),
    ] = 20
    max_delay_seconds: Annotated[
        Seconds,
        setting(
            "Longest wait",
            "The longest wait, before jitter.",
            limits.RETRY_DELAY_SECONDS,
            short="max_delay",
        ),
    ] = 3600
    jitter: Annotated[
        int | float,
        setting(
            "Jitter, 0 to 1",
            "0.1 spreads each wait between 90 % and 110 % of itself.",
            limits.JITTER,
            short="jitter",
        ),
    ] = 0.1
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
