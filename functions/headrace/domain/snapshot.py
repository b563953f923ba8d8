"""A task as it was seen: which one, and which of its times in a state.

What is done to many tasks takes time, and workers do not stop for it.  A task that has left the
state it was seen in, and perhaps come back, is another matter than the one that was looked at.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final, Self

from headrace.domain.task import FINISHED, State, Task


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task as it was seen.

    ``state_tag`` is different each time that the task enters a state: a digest of the state, its
    own time, and when the task was created.  A heartbeat does not change it; a delivery, retry,
    move or restart does.
    """

    id: str
    state_tag: str

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return *task* as it is now."""
        seen = f"{task.state} {task.scheduled_at.isoformat()} {task.created_at.isoformat()}"
        return cls(task.id, blake2b(seen.encode(), digest_size=8).hexdigest())

    def shows(self, task: Task) -> bool:
        """Tell whether *task* is still what was seen."""
        return TaskSnapshot.of(task) == self


def came_after(task: Task, moment: datetime) -> bool:
    """Tell whether *task* is known to have come to its state after *moment*."""
    known: tuple[datetime | None, ...]
    if task.state in FINISHED:
        known = (task.finished_at, task.scheduled_at)
    elif task.state is State.INFLIGHT:
        known = (task.started_at,)
    else:
        # One that was delivered since, and is back, is not the one that waited then.
        known = (task.enqueued_at, task.returned_at, task.started_at)
    return any(at is not None and at > moment for at in known)


LIVE: Final = frozenset({State.ENQUEUED, State.INFLIGHT})


def states_at(task: Task, moment: datetime) -> frozenset[State]:
    """Return the states in one of which *task* was at *moment*, in the life and queue it is in.

    None if that life began later.  One, if it can be known: a task shows its last two states,
    waiting and in flight.  Of one that has come and gone more often since, both.
    """
    if task.enqueued_at > moment:
        return frozenset()
    if task.finished_at is not None and task.state in FINISHED and task.finished_at <= moment:
        return frozenset({task.state})
    entered = [(max(task.enqueued_at, task.returned_at or task.enqueued_at), State.ENQUEUED)]
    if task.started_at is not None and task.started_at >= task.enqueued_at:  # in this life
        after = task.state is State.INFLIGHT or task.started_at > entered[0][0]
        entered.insert(0 if after else 1, (task.started_at, State.INFLIGHT))
    known = (frozenset({state}) for since, state in entered if since <= moment)
    return next(known, LIVE)
