"""Webhooks on end: tasks that report the end of other tasks, created from the store's log.

The webhook is a task in the queue that ``on_end`` names.  It is created before its end counts as
recorded, under an id that is derived from that end.  If a batch of the log comes again after a
crash, the same ids are refused as taken, also those of webhooks that were delivered and removed.
A batch that was counted creates none.  So each end is reported once, in the worst case late.

In a queue with groups, a webhook takes a turn of its task's group.  A batch that comes again takes
turns again, and these stay unused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from msgspec import structs

from headrace.domain import limits, plan
from headrace.domain.access import covers
from headrace.domain.change import Change, Outcome, Refused
from headrace.domain.errors import NotFound, Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import TYPES
from headrace.domain.task import State, Task
from headrace.domain.task_groups import Turn
from headrace.domain.times import MICROSECOND, instant_of
from headrace.domain.transitions import Event, Happening, TaskWrite, Transition
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger

_ENDS: Final = {
    Event.SUCCEEDED: State.SUCCEEDED,
    Event.DEAD: State.DEAD,
    Event.CANCELLED: State.DEAD,
}

_TRIES: Final = 5

_log: Final = safe_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Webhook:
    """A task to create in *queue*, which reports the end of the task *reports_end_of*."""

    queue: Queue
    spec: TaskSpec
    at: datetime
    reports_end_of: str
    version: int
    id: str

    def creation(self, place: int, now: datetime, turn: Turn | None) -> Change:
        """Plan the creation of this webhook; *place* is its place among those of one call."""
        creation = plan.enqueue(
            self.spec,
            self.queue,
            task_id=self.id,
            due_at=now + place * MICROSECOND,  # webhooks without turns go in this order
            now=now,
            token=new_request_token(),  # without one, any task of this id would pass for it
            turn=turn,
        )
        insert = creation.insert and structs.replace(
            creation.insert, reports_end_of=self.reports_end_of
        )
        return structs.replace(creation, insert=insert)


class EndWebhooks(ServicePart):
    """Creates the webhooks of tasks that ended."""

    def send(self, writes: Iterable[tuple[TaskWrite, Transition]]) -> None:
        """Create the webhooks of those *writes* that end a task.  A repetition changes nothing.

        Raises Unavailable, also after some were created.
        """
        found = (self._webhook(write, change) for write, change in writes)
        webhooks = [webhook for webhook in found if webhook is not None]
        if not webhooks:
            return
        now = self.now()
        new = {place: (one.queue, one.spec, one.id) for place, one in enumerate(webhooks)}
        turns = self.service.lines.take_for(new, now)
        changes = [one.creation(place, now, turns.get(place)) for place, one in enumerate(webhooks)]
        outcomes: list[Outcome] = []
        for start in range(0, len(changes), limits.BATCH):
            outcomes += self.store.commit(changes[start : start + limits.BATCH])
        for place, (webhook, outcome) in enumerate(zip(webhooks, outcomes, strict=True)):
            if _is_taken(outcome, webhook):
                self._create_under_other_id(webhook, place, now, turns.get(place))

    def _create_under_other_id(
        self, webhook: _Webhook, place: int, now: datetime, turn: Turn | None
    ) -> None:
        """Create *webhook*, whose id another task has, under the next id that is free."""
        for number in range(1, _TRIES):
            other = replace(
                webhook,
                id=self._id(webhook.at, webhook.reports_end_of, webhook.version, number),
            )
            _log.error(
                "Another task has the id %s of the event of the end of task %s."
                " The event is made under the id %s.",
                webhook.id,
                webhook.reports_end_of,
                other.id,
            )
            outcome = self.store.commit([other.creation(place, now, turn)])[0]
            if not _is_taken(outcome, other):
                return
        raise Unavailable("the ids of an on_end event keep being taken")

    def _id(self, at: datetime, task_id: str, version: int, number: int = 0) -> str:
        """Return the id of an event; *number* is 0 unless other tasks have its first ids."""
        return self.service.derived_ids.task_id(at, "end", task_id, version, number)

    def _webhook(self, write: TaskWrite, change: Transition) -> _Webhook | None:
        """Return the webhook for *write*; None if it ends no task or its queue sends none."""
        ended, after = end_of(change), write.after
        if ended is None or after is None or after.reports_end_of is not None:
            return None  # a webhook's own end sends no webhook
        source = self._queue(ended.queue)
        if source is None or not source.notifies_of(_ENDS[ended.event]):
            return None
        on_end = source.settings.on_end
        target = None if on_end is None or on_end.queue is None else self._queue(on_end.queue)
        if target is None:
            _log.warning("The on_end queue of queue %s does not exist", source.name)
            return None
        task = as_ended(write)
        if self.service.objects is not None:
            task = self.service.texts.filled([task], ("result", "progress"))[0]
        at = instant_of(ended.at)
        group_key = None if target.settings.groups is None else task.group_key
        return _Webhook(
            target,
            TaskSpec(payload(task, source, at), group_key=group_key),
            at,
            task.id,
            after.version,
            self._id(at, task.id, after.version),
        )

    def _queue(self, name: str) -> Queue | None:
        try:
            return self.service.queues.cached(name)
        except NotFound:
            return None


def _is_taken(outcome: Outcome, webhook: _Webhook) -> bool:
    """Return whether a task other than *webhook* has its id."""
    there = outcome.task if isinstance(outcome, Refused) else None
    return there is not None and there.reports_end_of != webhook.reports_end_of


def end_of(change: Transition) -> Happening | None:
    """Return the event by which *change* ended a task; None if it ended none."""
    for happening in change.happenings:
        if happening.event in _ENDS:
            return happening
    return None


def as_ended(write: TaskWrite) -> Task:
    """Return the task that *write* ended: the task before, with its end, if only a tombstone stays.

    Raises LookupError if the write left nothing.
    """
    before, after = write.before, write.after
    if after is None:
        raise LookupError("a task that is not there")
    if after.ended_in is None or before is None:
        return after
    last = {name: getattr(after, name) for name in ("result", "result_ref", "dead_reason")}
    return structs.replace(
        before,
        **last,
        place=after.ended_in,
        version=after.version,
        finished_at=after.finished_at,
        retained_until=None,
        errors=after.errors or before.errors,
        lease_id=None,
        lease_expires_at=None,
        lease_length=None,
    )


def _shown(queue: str, patterns: Sequence[str]) -> str | None:
    """Return the name of *queue* if a pattern covers it, or if there are no patterns."""
    return queue if not patterns or any(covers(one, queue) for one in patterns) else None


def payload(task: Task, queue: Queue, at: datetime) -> str:
    """Return the webhook's JSON: *task* of *queue*, which ended at this instant."""
    from headrace.wire import base, tasks  # noqa: PLC0415  few functions send webhooks

    retries = queue.settings.retry_strategy.max_retries
    members = base.task_members(
        task,
        at,
        lambda _: retries,
        payload=False,
        trail=[tasks.Hop.of(hop, queue=_shown(hop.queue, queue.on_end_for)) for hop in task.trail],
        errors=[tasks.TaskError.of(error) for error in task.errors],
        batch=None if task.batch is None else tasks.BatchEnd.of(task.batch),
    )
    body = {
        "type": TYPES[task.state],
        "timestamp": base.instant_text(at),
        "data": tasks.Task(**members),
    }
    return base.to_json(body)
