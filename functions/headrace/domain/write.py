"""One write of one task, as the log of a store shows it to the recorder."""

from typing import NamedTuple, TypeAlias

from headrace.domain.task import State, Task

Spot: TypeAlias = tuple[str, State]
"""A queue, and a state in it."""


class TaskWrite(NamedTuple):
    """One write of one task: the task before and after it, None where there was none.

    ``sequence`` grows from write to write, at least within a shard of the log.
    ``recorded_at`` is when the log saw the write, in microseconds since 1970.  ``forgotten`` means
    that the store itself removed the task, because the task was past its retention.
    ``payload_bytes`` is the size of the payload where the log left the payload out.
    """

    sequence: int
    recorded_at: int
    before: Task | None
    after: Task | None
    forgotten: bool = False
    payload_bytes: int | None = None


def spot_of(task: Task | None) -> Spot | None:
    """Return the queue and the state of *task*; None for a tombstone."""
    return None if task is None or task.spent is not None else last_spot_of(task)


def last_spot_of(task: Task | None) -> Spot | None:
    """Return the queue and the state of *task*, of a tombstone those in which the task ended.

    None for a task that was deleted.
    """
    if task is None:
        return None
    place = task.spent or task.place
    return None if place.state is State.DELETED else (place.queue, place.state)
