"""Retry strategies by the way their waits grow, as ``retry_strategy=`` takes them.

Every function returns a `RetryStrategy`; durations are seconds or timedeltas.  All raise
InvalidRequest naming the argument that is over its limit.  The waits are spread by *jitter*: 0.1
means between 90 % and 110 % of each; 0 turns that off.
"""

from collections.abc import Iterable
from typing import Final

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.options import named
from headrace.domain import limits
from headrace.domain.retry import DEFAULT_RETRY, Backoff, RetryStrategy

_JITTER: Final = DEFAULT_RETRY.jitter
_RETRIES: Final = DEFAULT_RETRY.max_retries
_BASE: Final = DEFAULT_RETRY.base_seconds
_MOST: Final = DEFAULT_RETRY.max_delay_seconds


@named
def exponential(
    base: Duration = _BASE,
    *,
    max_retries: int = _RETRIES,
    max_delay: Duration = _MOST,
    jitter: float = _JITTER,
) -> RetryStrategy:
    """Wait *base*, then twice that, four times, …: the usual one."""
    return _growing(Backoff.EXPONENTIAL, base, max_retries, max_delay, jitter)


@named
def linear(
    base: Duration = _BASE,
    *,
    max_retries: int = _RETRIES,
    max_delay: Duration = _MOST,
    jitter: float = _JITTER,
) -> RetryStrategy:
    """Wait *base*, then twice that, three times, …."""
    return _growing(Backoff.LINEAR, base, max_retries, max_delay, jitter)


@named
def quadratic(
    base: Duration = _BASE,
    *,
    max_retries: int = _RETRIES,
    max_delay: Duration = _MOST,
    jitter: float = _JITTER,
) -> RetryStrategy:
    """Wait *base*, then four times that, nine times, …."""
    return _growing(Backoff.QUADRATIC, base, max_retries, max_delay, jitter)


@named
def fixed(
    delay: Duration = _BASE, *, max_retries: int = _RETRIES, jitter: float = _JITTER
) -> RetryStrategy:
    """Wait *delay* before every retry, a day at most."""
    seconds = checks.seconds("delay", delay, limits.BASE_SECONDS)
    return _growing(Backoff.FIXED, seconds, max_retries, max(seconds, _MOST), jitter)


@named
def intervals(waits: Iterable[Duration], *, jitter: float = 0) -> RetryStrategy:
    """Wait each of *waits* in turn; there are as many retries as waits.  No jitter by default."""
    each = tuple(
        checks.seconds(f"waits[{place}]", wait, limits.RETRY_DELAY_SECONDS)
        for place, wait in enumerate(waits)
    )
    least, most = limits.INTERVALS
    if not least <= len(each) <= most:
        raise checks.wrong("waits", f"must be {least} to {most} durations, not {len(each)}")
    return RetryStrategy(
        kind=Backoff.INTERVALS,
        max_retries=len(each),
        max_delay_seconds=max(*each, _MOST),
        jitter=_jitter(jitter),
        intervals=each,
    )


def _growing(
    kind: Backoff, base: Duration, max_retries: int, max_delay: Duration, jitter: float
) -> RetryStrategy:
    checks.retries("max_retries", max_retries)
    first = checks.seconds("base", base, limits.BASE_SECONDS)
    longest = checks.seconds("max_delay", max_delay, limits.RETRY_DELAY_SECONDS)
    if longest < first:
        raise checks.wrong("max_delay", f"must be at least base, {first}, not {longest}")
    return RetryStrategy(
        kind=kind,
        max_retries=max_retries,
        base_seconds=first,
        max_delay_seconds=longest,
        jitter=_jitter(jitter),
    )


def _jitter(value: float) -> float:
    fault = limits.number_fault(value, limits.JITTER)
    if fault:
        raise checks.wrong("jitter", fault)
    return value
