"""Webhooks on end: who is told that a task has ended, as the store's log shows it.

A webhook is a task in the queue that is told, made before its end counts as recorded, with an id
that this end always gives.  A batch of the log that comes again after a crash makes the same ones
again, which are there already; once it is counted it makes none.  So each end is told once, late at
the worst, even where the webhook was delivered and is gone by then: its id stays taken.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headrace.domain import limits, plan
from headrace.domain.change import Change
from headrace.domain.copies import altered
from headrace.domain.errors import NotFound
from headrace.domain.ids import derived_task_id
from headrace.domain.instants import MICROSECOND, instant_of
from headrace.domain.on_end import TYPES, end_seed
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.task import State, Task
from headrace.domain.write import TaskWrite
from headrace.history.transitions import MALFORMED, Event, Happening, Transition
from headrace.ops.shared.offloaded import OffloadedTexts
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Store

_ENDS: Final = {
    Event.SUCCEEDED: State.SUCCEEDED,
    Event.DEAD: State.DEAD,
    Event.CANCELLED: State.DEAD,
}

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class EndWebhooks:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    texts: OffloadedTexts
    now: Callable[[], datetime]
    derived_id: Callable[[datetime, str], str] = derived_task_id

    def tell(self, writes: Iterable[tuple[TaskWrite, Transition]]) -> None:
        """Make the webhooks of those of *writes* that end a task; again changes nothing.

        Raises Unavailable, and some may be made then.
        """
        births: list[Change] = []
        now = self.now()
        for write, change in writes:
            ended = end_of(change)
            if ended is None:
                continue
            try:
                birth = self._birth(write, ended, now + len(births) * MICROSECOND)
            except MALFORMED as error:
                _log.error(
                    "The end of a task is told to nobody: %s in write %s",
                    type(error).__name__,
                    write.sequence,
                )
                continue
            if birth is not None:
                births.append(birth)
        for start in range(0, len(births), limits.BATCH):
            # One that is refused is there, or was.
            self.store.commit(births[start : start + limits.BATCH])

    def _birth(self, write: TaskWrite, ended: Happening, due_at: datetime) -> Change | None:
        """Plan the webhook of an end; None where nobody is told of it."""
        state, after = _ENDS[ended.event], write.after
        source = self._queue(ended.queue)
        if source is None or after is None or not source.tells_of(state):
            return None
        if after.tells_of is not None:
            return None  # or there would be no end of it
        on_end = source.settings.on_end
        told = None if on_end is None or on_end.queue is None else self._queue(on_end.queue)
        if told is None:
            _log.warning("Nobody is told of ends in %s: the queue for it is gone", source.name)
            return None
        task = as_ended(write)
        if self.texts.objects is not None:
            task = self.texts.filled([task], ("result", "progress"))[0]
        at = instant_of(ended.at)
        birth = plan.enqueue(
            TaskSpec(webhook(task, source, at)),
            told,
            task_id=self.derived_id(at, end_seed(task.id, after.version)),
            due_at=due_at,
            now=self.now(),
            token=None,
        )
        return replace(birth, insert=birth.insert and replace(birth.insert, tells_of=task.id))

    def _queue(self, name: str) -> Queue | None:
        try:
            return self.queues.cached(name)
        except NotFound:
            return None


def end_of(change: Transition) -> Happening | None:
    """Return how a task ended by *change*; None where it did not."""
    return next((one for one in change.happenings if one.event in _ENDS), None)


def as_ended(write: TaskWrite) -> Task:
    """Return the task that *write* ended, as it ended: of one that nobody keeps, as it was before.

    Raises what a view raises that is none of a task.
    """
    if write.after is None:
        raise LookupError("a task that is not there")
    after = write.after.whole()
    if after.spent is None or write.before is None:
        return after
    before = write.before.whole()
    last = {name: getattr(after, name) for name in ("result", "result_ref", "dead_reason")}
    return altered(
        before,
        **last,
        place=after.spent,
        version=after.version,
        finished_at=after.finished_at,
        retained_until=None,
        errors=after.errors or before.errors,
        lease_id=None,
        lease_expires_at=None,
        lease_length=None,
    )


def webhook(task: Task, queue: Queue, at: datetime) -> str:
    """Return the JSON that tells of *task* of *queue*, which ended at this instant."""
    from headrace.wire import base, tasks  # noqa: PLC0415  few recorders need them

    retries = queue.settings.retry_strategy.max_retries
    members = base.task_members(
        task,
        at,
        lambda _: retries,
        payload=False,
        trail=[tasks.Hop.of(hop) for hop in task.trail],
        errors=[tasks.TaskError.of(error) for error in task.errors],
        batch=None if task.batch is None else tasks.BatchEnd.of(task.batch),
    )
    told = {
        "type": TYPES[task.state],
        "timestamp": base.instant_text(at),
        "data": tasks.Task(**members),
    }
    return base.to_json(told)
