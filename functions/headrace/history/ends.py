"""Webhooks on end: who is told that a task has ended, as the store's log shows it.

A webhook is a task in the queue that is told, made before its end counts as recorded, with an id
that this end always gives.  A batch of the log that comes again after a crash makes the same ones
again, which are there already; once it is counted it makes none.  So each end is told once, late at
the worst, even where the webhook was delivered and is gone by then: its id stays taken.

Where the queue that is told has groups, a webhook takes a turn of its task's group.  A batch that
comes again takes its turns again, which are then nobody's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain import limits, plan
from headrace.domain.access import covers
from headrace.domain.change import Change
from headrace.domain.copies import altered
from headrace.domain.errors import NotFound, Unavailable
from headrace.domain.fairness import Turn
from headrace.domain.ids import new_request_token
from headrace.domain.instants import MICROSECOND, instant_of
from headrace.domain.on_end import TYPES
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.task import State, Task
from headrace.domain.write import TaskWrite
from headrace.history.transitions import Event, Happening, Transition
from headrace.ops.shared.offloaded import OffloadedTexts
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.shared.stack_secret import DerivedIds
from headrace.safe_logging import safe_logger
from headrace.store.base import Outcome, Refused, Store

if TYPE_CHECKING:
    from headrace.ops.shared.lines import Lines

_ENDS: Final = {
    Event.SUCCEEDED: State.SUCCEEDED,
    Event.DEAD: State.DEAD,
    Event.CANCELLED: State.DEAD,
}

_TRIES: Final = 5

_log: Final = safe_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Webhook:
    """A task that is to be made in *queue*, to tell of the end of the task *tells_of*."""

    queue: Queue
    spec: TaskSpec
    at: datetime
    tells_of: str
    version: int
    id: str

    def birth(self, place: int, now: datetime, turn: Turn | None) -> Change:
        """Plan it, as the one in *place* of those made at once."""
        birth = plan.enqueue(
            self.spec,
            self.queue,
            task_id=self.id,
            due_at=now + place * MICROSECOND,  # those without turns go in this order
            now=now,
            token=new_request_token(),  # without one, any task of this id would count as it
            turn=turn,
        )
        return replace(birth, insert=birth.insert and replace(birth.insert, tells_of=self.tells_of))


@dataclass(slots=True, eq=False, repr=False)
class EndWebhooks:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    texts: OffloadedTexts
    group_lines: Callable[[], "Lines"]
    now: Callable[[], datetime]
    ids: DerivedIds

    def tell(self, writes: Iterable[tuple[TaskWrite, Transition]]) -> None:
        """Make the webhooks of those of *writes* that end a task; again changes nothing.

        Raises Unavailable, and some may be made then.
        """
        told: list[_Webhook] = []
        for write, change in writes:
            ended = end_of(change)
            if ended is None:
                continue
            webhook = self._webhook(write, ended)
            if webhook is not None:
                told.append(webhook)
        if not told:
            return
        now = self.now()
        turns = self._turns(told, now)
        births = [one.birth(place, now, turns.get(place)) for place, one in enumerate(told)]
        taken: list[int] = []
        for start in range(0, len(births), limits.BATCH):
            outcomes = self.store.commit(births[start : start + limits.BATCH])
            taken += [
                start + place
                for place, outcome in enumerate(outcomes)
                if _is_taken(outcome, told[start + place])
            ]
        for place in taken:
            self._make_under_other_id(told[place], place, now, turns.get(place))

    def _make_under_other_id(
        self, webhook: _Webhook, place: int, now: datetime, turn: Turn | None
    ) -> None:
        """Make *webhook*, whose id another task holds, under the next id that is free."""
        for number in range(1, _TRIES):
            other = replace(
                webhook,
                id=self._id(webhook.at, webhook.tells_of, webhook.version, number),
            )
            _log.error(
                "Another task has the id %s of the event of the end of task %s."
                " The event is made under the id %s.",
                webhook.id,
                webhook.tells_of,
                other.id,
            )
            outcome = self.store.commit([other.birth(place, now, turn)])[0]
            if not _is_taken(outcome, other):
                return
        raise Unavailable("the ids of an on_end event keep being taken")

    def _id(self, at: datetime, task_id: str, version: int, number: int = 0) -> str:
        """Return the id of an event; *number* is 0 unless other tasks hold its first ids."""
        return self.ids.task_id(at, "end", task_id, version, number)

    def _turns(self, told: Sequence[_Webhook], now: datetime) -> dict[int, Turn]:
        """Return the turns of those of *told* whose queues have groups, by place."""
        places: dict[str, list[int]] = {}
        for place, one in enumerate(told):
            if one.queue.settings.groups is not None:
                places.setdefault(one.queue.name, []).append(place)
        turns: dict[int, Turn] = {}
        for own in places.values():
            new = [told[place].spec for place in own]
            ids = [told[place].id for place in own]
            taken = self.group_lines().take_for(told[own[0]].queue, new, ids, now)
            turns |= {own[number]: turn for number, turn in taken.items()}
        return turns

    def _webhook(self, write: TaskWrite, ended: Happening) -> _Webhook | None:
        """Return the webhook of an end; None where nobody is told of it."""
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
        group_key = None if told.settings.groups is None else task.group_key
        return _Webhook(
            told,
            TaskSpec(message(task, source, at), group_key=group_key),
            at,
            task.id,
            after.version,
            self._id(at, task.id, after.version),
        )

    def _queue(self, name: str) -> Queue | None:
        try:
            return self.queues.cached(name)
        except NotFound:
            return None


def _is_taken(outcome: Outcome, webhook: _Webhook) -> bool:
    """Tell whether a task that is not the event holds its id."""
    there = outcome.task if isinstance(outcome, Refused) else None
    return there is not None and there.tells_of != webhook.tells_of


def end_of(change: Transition) -> Happening | None:
    """Return how a task ended by *change*; None where it did not."""
    for happening in change.happenings:
        if happening.event in _ENDS:
            return happening
    return None


def as_ended(write: TaskWrite) -> Task:
    """Return the task that *write* ended: if only a tombstone is kept, as the task was before.

    Raises LookupError if the write left nothing.
    """
    before, after = write.before, write.after
    if after is None:
        raise LookupError("a task that is not there")
    if after.spent is None or before is None:
        return after
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


def _shown(queue: str, patterns: Sequence[str]) -> str | None:
    """Return the name of *queue* if one of *patterns* covers it, or there are none."""
    return queue if not patterns or any(covers(one, queue) for one in patterns) else None


def message(task: Task, queue: Queue, at: datetime) -> str:
    """Return the JSON that tells of *task* of *queue*, which ended at this instant."""
    from headrace.wire import base, tasks  # noqa: PLC0415  few recorders need them

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
    told = {
        "type": TYPES[task.state],
        "timestamp": base.instant_text(at),
        "data": tasks.Task(**members),
    }
    return base.to_json(told)
