"""The time of this machine; by itself, so that `headrace --help` need not load the client."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The time of this machine: aware, UTC.  The service's own is in its answers."""
    return datetime.now(UTC)
