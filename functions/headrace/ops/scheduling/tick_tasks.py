"""The tasks of ticks: enqueue them, and remove the ones that were enqueued ahead.

The tasks of ticks are written in one transaction with the key lock that records them.  The write
has the key lock that was read as a condition, so only one of several parallel runs succeeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain import limits, plan
from headrace.domain.change import Change, Done, KeyLock, Refused
from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.schedule import GRACE, Progress, Schedule, tick_id
from headrace.domain.task import Missed, State, Task
from headrace.domain.ticks import ticks
from headrace.ops.scheduling.cron import read_cron
from headrace.ops.shared.commits import commit
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.enqueue import (
    EnqueueOutcome,
    EnqueueResult,
    existing,
    key_holder,
    with_id,
)
from headrace.safe_logging import safe_logger
from headrace.store.base import Store
from headrace.store.call_scope import draw_task_id
from headrace.store.records import schedules as schedule_records

_LOOKS: Final = 10  # at a dedupe key that changes hands while we look
_TOGETHER: Final = 24  # tasks of one transaction

_log: Final = safe_logger(__name__)


class OvertakenError(Exception):
    """Somebody else has moved the key lock; look again."""


@dataclass(frozen=True, slots=True)
class At:
    """Where a schedule is: its name, its key lock as text and as progress, and what time it is."""

    name: str
    text: str
    progress: Progress
    now: datetime

    def moved(
        self,
        chunk: Sequence[datetime],
        following: Callable[[datetime], datetime | None],
        other_ids: Mapping[datetime, str] | None = None,
    ) -> tuple["At", KeyLock]:
        """Return where it is with *chunk* enqueued, and the key lock that goes with it."""
        return self._with(
            self.progress.plus(chunk, now=self.now, following=following, other_ids=other_ids)
        )

    def without(self, tick: datetime) -> tuple["At", KeyLock]:
        """Return the progress without *tick*, and its key lock."""
        return self._with(self.progress.minus(tick))

    def _with(self, progress: Progress) -> tuple["At", KeyLock]:
        lock = schedule_records.progress_lock(self.name, progress, expects=self.text)
        return replace(self, text=str(lock.value), progress=progress), lock


class TickTasks(ServicePart):
    """Enqueues and removes the tasks of ticks."""

    def task_id(self, queue: str, name: str, tick: datetime, progress: Progress) -> str:
        """Return the id of the task that a tick made, or would make."""
        other = progress.other_ids.get(tick)
        return other or tick_id(self.service.derived_ids.secret.value(), queue, name, tick)

    def enqueue(self, schedule: Schedule, queue: Queue, at: At, wanted: Sequence[datetime]) -> int:
        """Enqueue ticks, as many at a time as a transaction takes; return how many were new.

        A late one is due when it was to be, so it expires as if it had been there in time: the
        next sweep then ends it as it ends any task that waited for too long.
        """
        target, new, made = schedule.target(queue), schedule.new_task(), 0

        def following(tick: datetime) -> datetime | None:
            return next(ticks(schedule, read_cron, tick), None)

        size = max(1, min(_TOGETHER, limits.SPAWNED_BYTES // limits.utf8_bytes(new.payload)))
        for start in range(0, len(wanted), size):
            chunk = wanted[start : start + size]
            then, fence = at.moved(chunk, following)
            if new.dedupe_key is None and self._together(schedule, target, chunk, at.now, fence):
                at, made = then, made + len(chunk)
                continue
            for tick in chunk:  # of one key only one can live; or one is there already
                outcome, at = self._enqueue_one(schedule, target, at, tick, following)
                if outcome is EnqueueOutcome.DUPLICATE and not at.progress.has(tick):
                    return made  # the tick is tried again
                made += outcome is EnqueueOutcome.CREATED
        return made

    def _enqueue_one(
        self,
        schedule: Schedule,
        queue: Queue,
        at: At,
        tick: datetime,
        following: Callable[[datetime], datetime | None],
    ) -> tuple[EnqueueOutcome, At]:
        """Enqueue one tick; under another id if the task that has its id is not its own.

        A duplicate counts as made when it is too late to try it again.
        """
        new = schedule.new_task()
        for number in range(_LOOKS):
            task_id = tick_id(
                self.service.derived_ids.secret.value(), schedule.queue, schedule.name, tick, number
            )
            then, fence = at.moved([tick], following, {tick: task_id} if number else None)
            result = self.create(queue, replace(new, id=task_id), due_at=tick, fence=fence)
            if result.outcome is EnqueueOutcome.DUPLICATE:
                if not _over(schedule, tick, at.now):
                    return result.outcome, at
                move(self.store, fence)
            if result.outcome is not EnqueueOutcome.EXISTING:
                return result.outcome, then
            found = with_id(self.store, task_id)
            if found is None or found.schedule == schedule.name:  # only a tick has both
                move(self.store, fence)
                return result.outcome, then
            _log.error(
                "Task %s in queue %s has the id of a tick of schedule %s in queue %s."
                " The tick is enqueued under another id.",
                task_id,
                found.queue,
                schedule.name,
                schedule.queue,
            )
        raise Unavailable("the ids of a tick keep being taken; try again")

    def take_back(self, at: At) -> tuple[str, Progress]:
        """Remove the tasks enqueued ahead that are unchanged, each together with its tick."""
        queue, _, name = at.name.partition("/")
        ids = {
            tick: self.task_id(queue, name, tick, at.progress) for tick in at.progress.ahead(at.now)
        }
        tasks = self.store.read(ids.values()) if ids else {}
        for tick, task_id in ids.items():
            task = tasks.get(task_id)
            if task is None or not _untouched(task, queue, name, tick):
                continue
            then, fence = at.without(tick)
            change = plan.delete(task).together(fence, seen=task)
            outcome = commit(self.service, [change])[0]
            if not isinstance(outcome, Done):
                raise OvertakenError
            at = then
        return at.text, at.progress

    def create(
        self, queue: Queue, new: TaskSpec, *, due_at: datetime, fence: KeyLock | None = None
    ) -> EnqueueResult:
        """Put in one task as enqueue does, only together with *fence* if there is one.

        It is due at *due_at*, be that past.
        Raises Unavailable when its dedupe key keeps changing hands.
        """
        holder: str | None = None
        now = self.now()
        for _ in range(_LOOKS):
            change = self._birth(queue, new, due_at=due_at, now=now, replaces=holder)
            if fence is not None:
                change = change.together(fence, seen=None)
            outcome = self.store.commit([change])[0]
            if isinstance(outcome, Done):
                return EnqueueResult(EnqueueOutcome.CREATED, outcome.task.id, outcome.task)
            _stop_if_overtaken(change, outcome, fence)
            if outcome.task is not None:
                if new.id is None:  # an id of ours: this very request had put it in before
                    return EnqueueResult(EnqueueOutcome.CREATED, outcome.task.id, outcome.task)
                if outcome.task.has_id(now):
                    return existing(outcome.task, outcome.task.queue)
                self.store.commit([plan.delete(outcome.task, unless_changed=True)])
            if outcome.task is not None or new.dedupe_key is None:
                continue
            holder, held = key_holder(self.store, queue.name, new.dedupe_key, now)
            if held is not None:
                return EnqueueResult(EnqueueOutcome.DUPLICATE, held.id, held)
        message = "the dedupe key keeps changing hands; try again"
        raise Unavailable(message)

    def _together(
        self,
        schedule: Schedule,
        queue: Queue,
        chunk: Sequence[datetime],
        now: datetime,
        fence: KeyLock,
    ) -> bool:
        """Enqueue a chunk in one transaction; return whether no task of it existed."""
        new = schedule.new_task()
        births = [
            self._birth(
                queue,
                replace(
                    new,
                    id=tick_id(
                        self.service.derived_ids.secret.value(), schedule.queue, schedule.name, tick
                    ),
                ),
                due_at=tick,
                now=now,
            )
            for tick in chunk
        ]
        whole = births[0].together(fence, *births[1:], seen=None)
        outcome = self.store.commit([whole])[0]
        if isinstance(outcome, Done):
            return True
        _stop_if_overtaken(whole, outcome, fence)
        return False

    def _birth(
        self,
        queue: Queue,
        new: TaskSpec,
        *,
        due_at: datetime,
        now: datetime,
        replaces: str | None = None,
    ) -> Change:
        return plan.enqueue(
            new,
            queue,
            task_id=new.id or draw_task_id(now),
            due_at=due_at,
            now=now,
            token=new_request_token(),
            replaces=replaces,
        )


def move(store: Store, lock: KeyLock) -> None:
    """Write a key lock by itself.  Raises OvertakenError when it is not what it was."""
    if not store.set_key_lock(lock):
        raise OvertakenError


def _over(schedule: Schedule, tick: datetime, now: datetime) -> bool:
    """Return whether *tick*, whose dedupe key is held, counts as made."""
    grace = timedelta() if schedule.settings.missed is Missed.ALL else GRACE
    return tick <= now - grace


def _untouched(task: Task, queue: str, name: str, tick: datetime) -> bool:
    """Return whether a task is still as its tick made it."""
    facts = (task.queue, task.schedule, task.state, task.due_at, task.attempts)
    return facts == (queue, name, State.ENQUEUED, tick, 0)


def _stop_if_overtaken(change: Change, refused: Refused, fence: KeyLock | None) -> None:
    if any(change.also[place] is fence for place in refused.blocked):
        raise OvertakenError
