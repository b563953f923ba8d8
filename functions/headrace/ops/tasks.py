"""The life of a task: enqueue, dequeue, report, look, delete."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from headrace.domain import plan
from headrace.domain.change import Change
from headrace.domain.errors import Inflight, NotFound
from headrace.domain.ids import new_request_token, new_task_id
from headrace.domain.plan import NewTask
from headrace.domain.queue import Queue
from headrace.domain.task import State, Task
from headrace.ops.queues import Queues
from headrace.store.base import Done, Outcome, Refused, Store

_MICROSECOND: Final = timedelta(microseconds=1)


class EnqueueOutcome(StrEnum):
    """What became of one entry of an enqueue call."""

    CREATED = "CREATED"
    EXISTING = "EXISTING"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The result of one entry; ``task`` is shown for what is there now."""

    outcome: EnqueueOutcome
    id: str | None
    task: Task | None = None
    detail: str | None = None


@dataclass(slots=True)
class Tasks:
    """The use cases of producers and of whoever looks at one task."""

    store: Store
    queues: Queues
    now: Callable[[], datetime]
    new_id: Callable[[datetime], str] = new_task_id
    new_token: Callable[[], str] = new_request_token

    def enqueue(self, queue: str, new: Sequence[NewTask]) -> list[Enqueued]:
        """Put tasks into *queue*, each on its own; results in the order given.

        Raises NotFound when there is no such queue.
        """
        target = self.queues.cached(queue)
        now = self.now()
        results: dict[int, Enqueued] = {}
        changes: dict[int, Change] = {}
        taken: set[datetime] = set()
        for place, entry in enumerate(new):
            due_at = entry.due_at(now)
            while due_at in taken:
                due_at += _MICROSECOND  # tasks of one call keep their order
            taken.add(due_at)
            if entry.expires_at is not None and entry.expires_at <= due_at:
                results[place] = self._too_late(entry, target, now)
                continue
            changes[place] = plan.enqueue(
                entry,
                target,
                task_id=entry.id or self.new_id(now),
                due_at=due_at,
                now=now,
                token=self.new_token() if entry.id else None,
            )
        outcomes = self._insert(list(changes.values()), now)
        for (place, change), outcome in zip(changes.items(), outcomes, strict=True):
            results[place] = _enqueued(change, outcome, target)
        return [results[place] for place in range(len(new))]

    def get(self, task_id: str) -> Task:
        """Return a task, as last written, without consuming it.  Raises NotFound."""
        task = self.store.read([task_id]).get(task_id)
        if task is None or task.hidden(self.now()):
            message = f"there is no task {task_id}"
            raise NotFound(message)
        return task

    def delete(self, task_id: str, *, if_not_inflight: bool = False) -> None:
        """Remove a task in whatever state, or only while no worker has it.

        Raises NotFound, and Inflight when *if_not_inflight* and a worker has it.
        """
        while True:
            task = self.get(task_id)
            if if_not_inflight and task.state is State.INFLIGHT:
                message = f"task {task_id} is in flight"
                raise Inflight(message)
            change = plan.delete(task, unless_changed=if_not_inflight)
            if isinstance(self.store.commit([change])[0], Done):
                return

    def _too_late(self, entry: NewTask, queue: Queue, now: datetime) -> Enqueued:
        """An expiry that the clock has passed is invalid, unless the task is there already."""
        if entry.id is not None:
            there = self.store.read([entry.id]).get(entry.id)
            if there is not None and not there.hidden(now):
                return _existing(there, queue)
        return Enqueued(
            EnqueueOutcome.INVALID, entry.id, detail="expires_at would pass before the task is due"
        )

    def _insert(self, changes: Sequence[Change], now: datetime) -> list[Outcome]:
        """Commit new tasks; an id whose last holder is past its retention is free again."""
        outcomes = self.store.commit(changes)
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Done):
                continue
            if outcome.task is not None:
                if not outcome.task.hidden(now):
                    continue
                self.store.commit([plan.delete(outcome.task, unless_changed=True)])
            outcomes[place] = self.store.commit([changes[place]])[0]
        return outcomes


def _enqueued(change: Change, outcome: Outcome, queue: Queue) -> Enqueued:
    match outcome:
        case Done(task):
            return Enqueued(EnqueueOutcome.CREATED, task.id, task)
        case Refused(Task() as there):
            return _existing(there, queue)
        case Refused():
            detail = "the id is being deleted; try again"
            return Enqueued(EnqueueOutcome.INVALID, change.task_id, detail=detail)


def _existing(there: Task, queue: Queue) -> Enqueued:
    if there.queue != queue.name:
        detail = "the id is used in another queue"
        return Enqueued(EnqueueOutcome.INVALID, there.id, detail=detail)
    return Enqueued(EnqueueOutcome.EXISTING, there.id, there)
