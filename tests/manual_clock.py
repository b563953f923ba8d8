"""A clock that moves when told, so that no test has to wait."""

from datetime import UTC, datetime, timedelta


class ManualClock:
    """Call it for the time; it starts at a fixed instant and moves only by ``forward``."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self.time += timedelta(seconds=seconds)
