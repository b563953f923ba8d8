"""A worker that sends heartbeats: what it says of itself, and what an operator asks of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

FORGOTTEN_AFTER: Final = timedelta(minutes=5)
"""A worker that is silent for so long counts as gone, whenever the table's broom comes."""

_ON_DUTY_FOR: Final = timedelta(seconds=75)  # without a heartbeat: 2.5 times the usual


class Command(StrEnum):
    """What a worker may be asked: to take nothing more, or to finish and end."""

    QUIET = "quiet"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """A heartbeat, as the worker sent it; ``started_at`` tells a process from the next one.

    ``running`` are ids of tasks; None where they are not shown.
    """

    name: str
    queues: tuple[str, ...]
    started_at: datetime
    concurrency: int = 1
    running: tuple[str, ...] | None = ()
    version: str = ""


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker as of its last heartbeat, and what it is asked to do."""

    heartbeat: WorkerHeartbeat
    seen_at: datetime
    command: Command | None = None

    def alive(self, now: datetime) -> bool:
        """Tell whether it was heard of lately."""
        return now - self.seen_at < FORGOTTEN_AFTER

    def on_duty(self, now: datetime) -> tuple[str, ...]:
        """Return the queues whose tasks it takes now; none once it is asked to stop."""
        if self.command is not None or now - self.seen_at >= _ON_DUTY_FOR:
            return ()
        return self.heartbeat.queues
