"""The tasks of ticks: enqueue them, and remove the ones that were enqueued ahead.

The tasks of ticks are written in one transaction with the key lock that records them.  The write
has the key lock that was read as a condition, so only one of several parallel runs succeeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from headrace.domain import limits, plan
from headrace.domain.change import Done, KeyLock
from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.queue import Queue
from headrace.domain.schedule import GRACE, Missed, Progress, Schedule, tick_id
from headrace.domain.task import State, Task
from headrace.domain.ticks import ticks
from headrace.ops.scheduling.cron import read_cron
from headrace.ops.shared.commits import OvertakenError, check_fence, commit, with_id
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.safe_logging import safe_logger
from headrace.store.base import Store
from headrace.store.records import schedules as schedule_records

_LOOKS: Final = 10  # at a dedupe key that changes hands while we look
_TOGETHER: Final = 24  # tasks of one transaction

_log: Final = safe_logger(__name__)


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
            result = self.service.tasks.enqueue_at(
                queue, structs.replace(new, id=task_id), tick, fence=fence
            )
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
        secret = self.service.derived_ids.secret.value()
        births = [
            plan.enqueue(
                new,
                queue,
                task_id=tick_id(secret, schedule.queue, schedule.name, tick),
                due_at=tick,
                now=now,
                token=new_request_token(),
            )
            for tick in chunk
        ]
        whole = births[0].together(fence, *births[1:], seen=None)
        outcome = self.store.commit([whole])[0]
        if isinstance(outcome, Done):
            return True
        check_fence(whole, outcome, fence)
        return False


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
