"""Cancelling one task: it ends where it is, waiting or in flight, and nobody has it any more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from headrace.domain import plan
from headrace.domain.errors import Finished, NotFound, Unavailable
from headrace.domain.lifecycle import Action, rules
from headrace.domain.task import Task
from headrace.ops.shared.audit import checked_reason
from headrace.ops.shared.leases import note_cancelled
from headrace.ops.shared.observed import commit
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_notes import note_dying, note_left
from headrace.store.base import Done

_LOOKS: Final = 10  # at a task that changes state while it is cancelled


@dataclass(frozen=True, slots=True)
class CancelResult:
    """The task as it is after the call; *kept* is False where its queue keeps no dead ones."""

    task: Task
    kept: bool = True


class Cancelling(ServicePart):
    """The use case, with what it needs from outside."""

    def cancel(
        self, task_id: str, *, check: Callable[[Task], None] = lambda _: None, reason: str = ""
    ) -> CancelResult:
        """End a task that waits or is in flight; one that was cancelled before is left as it is.

        The holder of its lease hears of it with its next heartbeat or report.  *check* may raise
        for a task that must not be touched; *reason* is why, for the audit.
        Raises NotFound, Finished for one that ended otherwise, Unavailable for one that keeps
        changing, and as checked_reason().
        """
        why = checked_reason(reason)
        for _ in range(_LOOKS):
            task = self._read(task_id)
            check(task)
            if task.cancelled:
                return CancelResult(task)
            self._check_live(task)
            with self.service.audit.action(
                "cancel", queue=task.queue, ids=[task_id], reason=why
            ) as outcome:
                done = self._end(task)
                outcome.changed = int(done is not None)
            if done is not None:
                return done
        message = "the task keeps changing; try again"
        raise Unavailable(message)

    def end(self, task_id: str) -> bool:
        """Do so for whoever notes it in the audit; tell whether it was done, and by this call."""
        for _ in range(_LOOKS):
            try:
                task = self._read(task_id)
                if task.cancelled:
                    return False
                self._check_live(task)
            except (NotFound, Finished):
                return False
            if self._end(task) is not None:
                return True
        message = "the task keeps changing; try again"
        raise Unavailable(message)

    def _read(self, task_id: str) -> Task:
        task = self.store.read([task_id]).get(task_id)
        if task is None or task.hidden(self.now()):
            message = f"there is no task {task_id}"
            raise NotFound(message)
        return task

    def _check_live(self, task: Task) -> None:
        if not rules(Action.CANCEL, task.state) or not task.live(self.now()):
            raise Finished(_ended(task))

    def _end(self, task: Task) -> CancelResult | None:
        """End *task*, if it is still as it was read."""
        queue = self.service.queues.cached(task.queue)
        note_dying(self.store, queue, [task])
        change = plan.cancel(task, queue, now=self.now())
        done = commit(self.store, [change])[0]
        if not isinstance(done, Done):
            return None
        if change.gone:
            note_left(self.store, queue.name, [task])
        note_cancelled(self.store, task)
        return CancelResult(
            task if change.gone else replace(done.task, payload=task.payload),
            kept=not change.gone,
        )


def _ended(task: Task) -> str:
    if task.dead_reason is not None:
        return f"task {task.id} is DEAD already: {task.dead_reason}"
    if rules(Action.CANCEL, task.state):
        return f"task {task.id} has expired"
    return f"task {task.id} is {task.state} already"
