"""Why a task is not running, without touching it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from headrace.domain.queue import Queue
from headrace.domain.task import State, Task
from headrace.ops.shared.limiting import Limiting
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Store

_COUNTED: Final = 1_000  # tasks ahead that are worth counting


class ReasonCode(StrEnum):
    """Why a task is not running."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    RATE_LIMITED = "rate_limited"
    CONCURRENCY_LIMITED = "concurrency_limited"
    LEASED = "leased"
    FINISHED = "finished"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class NotRunningReason:
    """One reason, in words, and until when it holds if that is known."""

    code: ReasonCode
    detail: str
    until: datetime | None = None


@dataclass(slots=True)
class Explain:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    limiting: Limiting
    now: Callable[[], datetime]

    def reasons(self, task: Task) -> tuple[NotRunningReason, ...]:
        """Return every reason that keeps *task*, as just read, from being started now.

        None at all: it goes to the next worker that asks.
        """
        now = self.now()
        if task.state in (State.SUCCEEDED, State.DEAD):
            why = f" ({task.dead_reason})" if task.dead_reason else ""
            return (NotRunningReason(ReasonCode.FINISHED, f"the task is {task.state}{why}"),)
        if task.state is State.INFLIGHT:
            return (_leased(task, now),)
        if not task.live(now):
            detail = "the task has expired and is buried within a minute"
            return (NotRunningReason(ReasonCode.FINISHED, detail),)
        queue = self.queues.get(task.queue)
        reasons = [*self._of_queue(queue, now)]
        if task.due_at > now:
            reasons.insert(
                0, NotRunningReason(ReasonCode.SCHEDULED, "the task is not due yet", task.due_at)
            )
        else:
            reasons += self._behind(task)
        return tuple(reasons)

    def _of_queue(self, queue: Queue, now: datetime) -> list[NotRunningReason]:
        reasons = []
        dequeuing = queue.settings.dequeuing_settings
        if queue.paused(now):
            detail = f"deliveries of queue {queue.name} are paused"
            reasons.append(NotRunningReason(ReasonCode.PAUSED, detail, queue.resume_at))
        if dequeuing.max_inflight_tasks and self.limiting.slots.full(queue):
            detail = f"{dequeuing.max_inflight_tasks} tasks are in flight, as many as allowed"
            reasons.append(NotRunningReason(ReasonCode.CONCURRENCY_LIMITED, detail))
        wait = self.limiting.tokens.wait_seconds(queue) if dequeuing.rate_limiting else 0.0
        if wait > 0:
            until = now + timedelta(seconds=wait)
            reasons.append(
                NotRunningReason(ReasonCode.RATE_LIMITED, "the token bucket is empty", until)
            )
        return reasons

    def _behind(self, task: Task) -> list[NotRunningReason]:
        """Count who is due before it; with several shards, on its own."""
        page = self.store.entries(task.place, until=task.due_at, limit=_COUNTED)
        ahead = [entry.task_id for entry in page.entries]
        count = ahead.index(task.id) if task.id in ahead else len(ahead)
        if count == 0:
            return []
        more = "at least " if task.id not in ahead and page.last else ""
        return [NotRunningReason(ReasonCode.BEHIND, f"{more}{count} tasks are due before it")]


def _leased(task: Task, now: datetime) -> NotRunningReason:
    end = task.lease_expires_at
    if end is not None and end <= now:
        who = task.worker or "its worker"
        ago = f"{(now - end).total_seconds():.0f} s ago"
        detail = (
            f"{who} has not been heard of, and the lease ended {ago}: the task is taken back by the"
            " next worker that asks, at the latest within a minute"
        )
        return NotRunningReason(ReasonCode.LEASED, detail)
    by = f" by {task.worker}" if task.worker else ""
    return NotRunningReason(ReasonCode.LEASED, f"the task is being worked on{by}", end)
