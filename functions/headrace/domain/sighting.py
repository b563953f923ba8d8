"""A task as it was seen: which one, and which of its stays in a state.

What is done to many tasks takes time, and workers do not stop for it.  A task that has left the
state it was seen in, and perhaps come back, is another matter than the one that was looked at.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Self

from headrace.domain.task import FINISHED, State, Task


@dataclass(frozen=True, slots=True)
class Sighting:
    """One task as it was seen.

    ``stay`` tells this stay in a state from every other: by the state, its own time, and when the
    task was created.  A heartbeat does not change it; a delivery, retry, move or restart does.
    """

    id: str
    stay: str

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return *task* as it is now."""
        told = f"{task.state} {task.scheduled_at.isoformat()} {task.created_at.isoformat()}"
        return cls(task.id, blake2b(told.encode(), digest_size=8).hexdigest())

    def shows(self, task: Task) -> bool:
        """Tell whether *task* is still what was seen."""
        return Sighting.of(task) == self


def came_after(task: Task, moment: datetime) -> bool:
    """Tell whether *task* is known to have come to its state after *moment*."""
    known: tuple[datetime | None, ...]
    if task.state in FINISHED:
        known = (task.finished_at, task.scheduled_at)
    elif task.state is State.INFLIGHT:
        known = (task.started_at,)
    else:
        # One that was delivered since, and is back, is not the one that waited then.
        known = (task.enqueued_at, task.started_at)
    return any(at is not None and at > moment for at in known)
