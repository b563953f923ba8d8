"""How many tasks a queue has, counted by the index and not by the recorder."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.domain.filters import TaskFilter
from headrace.domain.queue import Queue
from headrace.domain.task import State, Status
from headrace.ops.tasks.inspect import Inspect
from headrace.ops.tasks.walks import Walk

_DEAD: Final = TaskFilter(states=(State.DEAD,))
_READ: Final = 10_000  # dead tasks, a read unit each
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class ExactCounts:
    """Numbers of tasks as people tell states apart, and how many of the dead were cancelled."""

    counts: Mapping[Status, int]
    cancelled: int


def exact_counts(inspect: Inspect, queue: Queue) -> ExactCounts | None:
    """Count every entry; None where there are more than one call may count.

    The index does not tell who was cancelled, so each of the dead is read.
    """
    scheduled = inspect.count(queue.name, TaskFilter(states=(Status.SCHEDULED,)))
    if scheduled.partial:
        return None
    others = tuple(status for status in Status if status is not Status.SCHEDULED)
    counted = inspect.count(queue.name, TaskFilter(states=others))
    if counted.partial:
        return None
    by_state = counted.by_state
    counts: dict[Status, int] = {
        Status.SCHEDULED: scheduled.count,
        Status.READY: by_state[State.ENQUEUED],
        **{status: by_state[State(status)] for status in others if status is not Status.READY},
    }
    if counts[Status.DEAD] > _READ:
        return None
    until = inspect.now() + timedelta(seconds=inspect.patience)
    cancelled = 0
    for task, _ in inspect.walk(queue, _DEAD, Walk(inspect.now()), page=_PAGE):
        cancelled += task is not None and task.cancelled
        if inspect.now() > until:
            return None
    return ExactCounts(counts, min(cancelled, counts[Status.DEAD]))
