"""The tasks of ticks: made together with the key lock that notes them, and taken back with it.

The key lock is a fence: it is written on condition of what it said, in one transaction with the
tasks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headrace.domain import limits, plan
from headrace.domain.change import Change, KeyLock
from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_request_token, new_task_id
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.schedule import Progress, Schedule, tick_id
from headrace.domain.task import State, Task
from headrace.domain.ticks import ReadCron, ticks
from headrace.ops.shared.uniqueness import commit
from headrace.ops.tasks.enqueue import EnqueueOutcome, EnqueueResult, existing
from headrace.store.base import Done, Refused, Store
from headrace.store.records import schedules as schedule_records

_LOOKS: Final = 10  # at a dedupe key that changes hands while we look
_TOGETHER: Final = 24  # tasks of one transaction


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
        self, chunk: Sequence[datetime], following: Callable[[datetime], datetime | None]
    ) -> tuple["At", KeyLock]:
        """Return where it is with *chunk* enqueued, and the key lock that goes with it."""
        return self._with(self.progress.plus(chunk, now=self.now, following=following))

    def without(self, tick: datetime) -> tuple["At", KeyLock]:
        """Return where it is with *tick* taken back, and the key lock that goes with it."""
        return self._with(self.progress.minus(tick))

    def _with(self, progress: Progress) -> tuple["At", KeyLock]:
        lock = schedule_records.progress_lock(self.name, progress, expects=self.text)
        return replace(self, text=str(lock.value), progress=progress), lock


@dataclass(slots=True)
class TickTasks:
    """The use case, with what it needs from outside."""

    store: Store
    now: Callable[[], datetime]
    read_cron: ReadCron
    new_token: Callable[[], str] = new_request_token

    def enqueue(self, schedule: Schedule, queue: Queue, at: At, wanted: Sequence[datetime]) -> int:
        """Enqueue ticks, as many at a time as a transaction takes; return how many were new.

        A late one is due when it was to be, so it expires as if it had been there in time: the
        next sweep then ends it as it ends any task that waited for too long.
        """
        target, new, made = schedule.target(queue), schedule.new_task(), 0

        def following(tick: datetime) -> datetime | None:
            return next(ticks(schedule, self.read_cron, tick), None)

        size = max(1, min(_TOGETHER, limits.SPAWNED_BYTES // limits.utf8_bytes(new.payload)))
        for start in range(0, len(wanted), size):
            chunk = wanted[start : start + size]
            then, fence = at.moved(chunk, following)
            if new.dedupe_key is None and self._together(schedule, target, chunk, at.now, fence):
                at, made = then, made + len(chunk)
                continue
            for tick in chunk:  # of one key only one can live; or one is there already
                then, fence = at.moved([tick], following)
                task = _of_tick(new, schedule, tick)
                result = self.create(target, task, due_at=tick, fence=fence)
                if result.outcome is EnqueueOutcome.DUPLICATE:
                    return made  # the tick is tried again until it is missed
                if result.outcome is EnqueueOutcome.EXISTING:
                    move(self.store, fence)
                at, made = then, made + (result.outcome is EnqueueOutcome.CREATED)
        return made

    def take_back(self, at: At) -> tuple[str, Progress]:
        """Remove the tasks enqueued ahead that nobody has touched, each together with its tick."""
        queue, _, name = at.name.partition("/")
        ids = {tick: tick_id(queue, name, tick) for tick in at.progress.ahead(at.now)}
        tasks = self.store.read(ids.values()) if ids else {}
        for tick, task_id in ids.items():
            task = tasks.get(task_id)
            if task is None or not _untouched(task, queue, name, tick):
                continue
            then, fence = at.without(tick)
            change = plan.delete(task).together(fence, seen=task)
            outcome = commit(self.store, [change])[0]
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
        now, key = self.now(), new.dedupe_key or ""
        for _ in range(_LOOKS):
            change = self._birth(queue, new, due_at=due_at, now=now, replaces=holder)
            if fence is not None:
                change = change.together(fence, seen=None)
            outcome = self.store.commit([change])[0]
            if isinstance(outcome, Done):
                return EnqueueResult(EnqueueOutcome.CREATED, outcome.task.id, outcome.task)
            _stop_if_overtaken(change, outcome, fence)
            if outcome.task is not None:
                if outcome.task.has_id(now):
                    return existing(outcome.task, outcome.task.queue)
                self.store.commit([plan.delete(outcome.task, unless_changed=True)])
            if outcome.task is not None or new.dedupe_key is None:
                continue
            lock = plan.holder(queue.name, key, value=None, expects=None)
            holder = self.store.key_lock(lock.kind, lock.name)
            held = self.store.read([holder]).get(holder) if holder else None
            if held is not None and held.holds(queue.name, key, now):
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
        """Put in the tasks of a chunk in one transaction; tell whether none was there before."""
        new = schedule.new_task()
        births = [
            self._birth(queue, _of_tick(new, schedule, tick), due_at=tick, now=now)
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
            task_id=new.id or new_task_id(now),
            due_at=due_at,
            now=now,
            token=self.new_token(),
            replaces=replaces,
        )


def move(store: Store, lock: KeyLock) -> None:
    """Write a key lock by itself.  Raises OvertakenError when it is not what it was."""
    if not store.set_key_lock(lock):
        raise OvertakenError


def _of_tick(new: TaskSpec, schedule: Schedule, tick: datetime) -> TaskSpec:
    return replace(new, id=tick_id(schedule.queue, schedule.name, tick))


def _untouched(task: Task, queue: str, name: str, tick: datetime) -> bool:
    """Tell whether a task is still as its tick made it."""
    facts = (task.queue, task.schedule, task.state, task.due_at, task.attempts)
    return facts == (queue, name, State.ENQUEUED, tick, 0)


def _stop_if_overtaken(change: Change, refused: Refused, fence: KeyLock | None) -> None:
    if any(change.also[place] is fence for place in refused.blocked):
        raise OvertakenError
