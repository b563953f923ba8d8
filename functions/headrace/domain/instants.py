"""Instants as numbers: microseconds since 1970, as index, lake and counters keep them."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MINUTE: Final = 60_000_000  # microseconds


def micros_of(instant: datetime) -> int:
    """Return *instant* in microseconds since 1970."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(micros: float) -> datetime:
    """Return the instant so many microseconds after 1970 began."""
    return EPOCH + micros * MICROSECOND
