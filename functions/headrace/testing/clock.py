"""A clock for tests."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
"""When a manual clock starts by default: a Saturday morning."""


class ManualClock:
    """A clock that moves only by ``forward``.  Call it, or read ``now``; threads may share it.

    Raises ValueError for a *time* that is not aware.
    """

    def __init__(self, time: datetime = START) -> None:
        if time.tzinfo is None:
            raise ValueError(f"time must be aware, and {time.isoformat()} has no time zone")
        self.time = time.astimezone(UTC)
        self._lock = threading.Lock()

    def __call__(self) -> datetime:
        """Return the time: aware, UTC."""
        return self.time

    @property
    def now(self) -> datetime:
        """The time: aware, UTC."""
        return self.time

    def forward(self, seconds: float | timedelta) -> None:
        """Move the clock forward.  Raises ValueError for less than 0 seconds."""
        step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if step < timedelta():
            raise ValueError(f"seconds must be 0 or more, not {step.total_seconds():g}")
        with self._lock:
            self.time += step

    def forward_to(self, time: datetime) -> None:
        """Move the clock to *time*, unless it is later."""
        with self._lock:
            self.time = max(self.time, time.astimezone(UTC))

    def __repr__(self) -> str:
        return f"ManualClock({self.time.isoformat()})"
