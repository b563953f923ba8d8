"""The clock of this machine; the service's own is in its answers."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return this machine's time: aware, UTC."""
    return datetime.now(UTC)
