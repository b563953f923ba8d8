"""What tasks should become, in plain Python: design 1 read once more, by somebody else.

The model knows nothing of changes, conditions or the index; it has a dictionary and a clock.
"""

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.domain.ids import shard_of
from headrace.domain.queue import DeadLetterConfig, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Task

SPREAD: Final = 0.25  # what chance says whenever a wait is spread
_ERRORS_KEPT: Final = 20
_TRAIL_KEPT: Final = 50


@dataclass(frozen=True)
class Retry:
    """A retry strategy and, worked out by hand, the waits it means (seconds)."""

    strategy: RetryStrategy
    waits: tuple[float, ...]


RETRIES: Final = {
    "never": Retry(RetryStrategy(max_retries=0), ()),
    "at once": Retry(RetryStrategy(Backoff.FIXED, 2, 0, jitter=0), (0, 0)),
    "once": Retry(RetryStrategy(Backoff.LINEAR, 1, 5, jitter=0), (5,)),
    "growing": Retry(RetryStrategy(Backoff.EXPONENTIAL, 4, 2, 5, jitter=0), (2, 4, 5, 5)),
    "squares": Retry(RetryStrategy(Backoff.QUADRATIC, 2, 1.5, jitter=0), (1.5, 6)),
    "listed": Retry(
        RetryStrategy(Backoff.INTERVALS, 2, intervals=(4, 10), jitter=0.5),
        (3, 7.5),  # three quarters: the spread above
    ),
}


@dataclass
class Rules:
    """The settings of a queue, as far as they decide anything here (seconds; 0: never, none)."""

    keepalive: float = 10
    expires: int = 60
    retry: str = "once"
    dead_letters: int = 1000
    history: int = 1000
    shards: int = 1
    shards_in_use: int = 1
    paused: bool = False
    resume_at: datetime | None = None

    def settings(self) -> QueueSettings:
        return QueueSettings(
            keepalive_timeout_in_seconds=self.keepalive,
            expires_in_seconds=self.expires,
            retry_strategy=RETRIES[self.retry].strategy,
            dead_letter_queue_config=DeadLetterConfig(
                enable=self.dead_letters > 0, retention_period_in_seconds=self.dead_letters or 1
            ),
            history_retention_in_seconds=self.history,
            shards=self.shards,
        )

    def holds_back(self, now: datetime) -> bool:
        return self.paused and (self.resume_at is None or now < self.resume_at)


@dataclass
class Group:
    """A group lease as it should be stored."""

    id: str
    keepalive: float
    opened: datetime
    granted: datetime  # its end at first, where the index keeps its tasks
    end: datetime
    state: str = "OPEN"
    cancelled: set[str] = field(default_factory=set)

    def holds(self, now: datetime) -> bool:
        return self.state == "OPEN" and self.end > now


@dataclass
class Known:
    """One task as it should be stored."""

    id: str
    queue: str
    shard: int
    state: str
    at: datetime  # its place in the index
    due: datetime
    created: datetime
    enqueued: datetime
    payload: str
    expires: datetime | None = None
    keepalive: float | None = None
    retry: str | None = None
    attempts: int = 0
    version: int = 1
    move: str = "enqueue"
    lease: str | None = None
    lease_end: datetime | None = None
    lease_length: float | None = None
    worker: str | None = None
    progress: str | None = None
    started: datetime | None = None
    finished: datetime | None = None
    result: str | None = None
    reason: str | None = None
    errors: list[tuple[int, str, str]] = field(default_factory=list)
    trail: list[str] = field(default_factory=list)
    retained: datetime | None = None
    settled: tuple[str, str] | None = None
    beaten: bool = False  # a heartbeat has moved the end of this lease
    named: str | None = None  # what the report at hand calls the lease
    returned: datetime | None = None  # when it last came back to wait
    first: bool = False  # whether no earlier delivery can have gone by the group's id

    def hidden(self, now: datetime) -> bool:
        return self.retained is not None and self.retained <= now

    def expired(self, now: datetime) -> bool:
        return self.state == "ENQUEUED" and self.expires is not None and self.expires <= now

    @property
    def group(self) -> str | None:
        """The group that the lease is under."""
        head, mark, _ = (self.lease or "").partition(":")
        return head if mark else None

    def answers_to(self, name: str) -> bool:
        """Whether *name*, of a group or of a delivery, means the lease that is held."""
        if name == self.lease is not None:
            return True
        return self.group is not None and name == self.group and self.first

    def settled_under(self, group: str) -> bool:
        return self.settled is not None and self.settled[0].partition(":")[0] == group


def known(task: Task) -> Known:
    """Return the stored *task* in the words of the model."""
    retry = next((name for name, it in RETRIES.items() if it.strategy == task.retry), None)
    settled = (task.settled_lease_id, task.settled_status)
    return Known(
        id=task.id,
        queue=task.place.queue,
        shard=task.place.shard,
        state=str(task.place.state),
        at=task.scheduled_at,
        due=task.due_at,
        created=task.created_at,
        enqueued=task.enqueued_at,
        payload=task.payload or "",
        expires=task.expires_at,
        keepalive=task.keepalive,
        retry=retry,
        attempts=task.attempts,
        version=task.version,
        move=task.last_move,
        lease=task.lease_id,
        lease_end=task.lease_expires_at,
        lease_length=task.lease_length.total_seconds() if task.lease_length else None,
        worker=task.worker,
        progress=task.own_progress,
        started=task.started_at,
        finished=task.finished_at,
        result=task.result,
        reason=str(task.dead_reason) if task.dead_reason else None,
        errors=[(error.attempt, str(error.kind), error.message) for error in task.errors],
        trail=[hop.queue for hop in task.trail],
        retained=task.retained_until,
        settled=(settled[0], settled[1]) if settled[0] and settled[1] else None,
        returned=task.returned_at,
    )


@dataclass
class Model:
    """All queues and tasks as they should be.

    ``ended`` says how those ended that are gone, ``spent`` until when the ids of those are taken
    that nobody removed, and where they ended.
    """

    queues: dict[str, Rules]
    tasks: dict[str, Known] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    spent: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    def lapsed(self, task: Known, now: datetime) -> bool:
        """Whether the lease of *task* is past its end: its own, or its group's."""
        group = self.groups.get(task.group or "")
        end = group.end if group is not None else task.lease_end
        return end is not None and end <= now

    def prolonged(self, task: Known) -> bool:
        """Whether the end of its lease is not as first granted: its own, or its group's."""
        group = self.groups.get(task.group or "")
        return task.beaten if group is None else group.end != group.granted

    def under(self, group: Group) -> list[Known]:
        return [task for task in self.tasks.values() if task.group == group.id]

    def visible(self, task_id: str, now: datetime) -> Known | None:
        task = self.tasks.get(task_id)
        return None if task is None or task.hidden(now) else task

    def of(self, queue: str, state: str, now: datetime | None = None) -> list[Known]:
        """Return the tasks of *queue* in *state* in order; with *now* the visible ones."""
        found = [task for task in self.tasks.values() if (task.queue, task.state) == (queue, state)]
        found = [task for task in found if now is None or not task.hidden(now)]
        return sorted(found, key=lambda task: (task.at, task.id))

    # -- what may happen to a task -------------------------------------------------------------

    def enqueue(self, task: Known) -> None:
        self.tasks[task.id] = task
        self.ended.pop(task.id, None)

    def new(self, task_id: str, queue: str, payload: str, due: datetime, now: datetime) -> Known:
        expires = self.queues[queue].expires
        return Known(
            id=task_id,
            queue=queue,
            shard=self._shard(queue, task_id),
            state="ENQUEUED",
            at=due,
            due=due,
            created=now,
            enqueued=now,
            payload=payload,
            expires=due + timedelta(seconds=expires) if expires else None,
        )

    def lease_seconds(self, task: Known, requested: float | None) -> float:
        own = requested if requested is not None else task.keepalive
        return own if own is not None else self.queues[task.queue].keepalive

    def deliver(
        self,
        task: Known,
        lease: str,
        worker: str,
        now: datetime,
        requested: float | None,
        group: Group | None = None,
    ) -> None:
        task.lease_length = group.keepalive if group else self.lease_seconds(task, requested)
        task.lease_end = group.end if group else now + timedelta(seconds=task.lease_length)
        task.lease, task.worker, task.started = lease, worker, now
        task.progress, task.beaten = None, False
        task.attempts += 1
        if group is not None:
            back = task.returned is not None and task.returned > group.opened
            task.first = not back and not task.settled_under(group.id)
        self._put(task, "dequeue", "INFLIGHT", group.granted if group else task.lease_end)

    def heartbeat(
        self, task: Known, now: datetime, keepalive: float | None, progress: str | None
    ) -> None:
        task.progress = progress if progress is not None else task.progress
        task.version += 1
        task.move = "heartbeat"
        if task.group is not None:
            return
        task.lease_length = keepalive if keepalive is not None else task.lease_length
        task.lease_end = now + timedelta(seconds=task.lease_length or 0)
        task.beaten = True
        if keepalive is not None and task.at > task.lease_end:  # cut shorter than granted
            task.at, task.shard = task.lease_end, self._shard(task.queue, task.id)

    def succeed(self, task: Known, now: datetime, result: str | None) -> None:
        task.result = result if result is not None else task.result
        self._finish(task, "succeed", "SUCCEEDED", now, self.queues[task.queue].history)

    def fail(
        self,
        task: Known,
        action: str,
        now: datetime,
        message: str,
        *,
        retryable: bool = True,
        delay: float | None = None,
    ) -> None:
        kind = "lease_expired" if action == "reclaim" else "failed"
        task.errors = [*task.errors, (task.attempts, kind, message)][-_ERRORS_KEPT:]
        waits = RETRIES[task.retry or self.queues[task.queue].retry].waits
        if not retryable:
            self._bury(task, action, "rejected", now)
        elif task.attempts > len(waits):
            self._bury(task, action, "exhausted", now)
        else:
            self._wait(task, action, now, delay if delay is not None else waits[task.attempts - 1])

    def reclaim(self, task: Known, now: datetime) -> None:
        if task.group is not None:
            self.groups[task.group].state = "LAPSED"
        self.fail(task, "reclaim", now, f"lease expired (worker {task.worker})")

    def release(self, task: Known, now: datetime, delay: float | None) -> None:
        task.attempts -= 1
        self._wait(task, "release", now, delay or 0)

    def release_from_closed_group(self, task: Known, now: datetime) -> None:
        task.attempts, task.named = task.attempts - 1, None
        settled = task.settled
        self._wait(task, "release", now, 0)
        task.settled = settled

    def move(
        self, task: Known, target: str, now: datetime, delay: float | None, payload: str | None
    ) -> None:
        task.trail = [*task.trail, task.queue][-_TRAIL_KEPT:]
        fresh = self.new(task.id, target, "", now + timedelta(seconds=delay or 0), now)
        task.queue, task.due, task.enqueued = target, fresh.due, now
        task.returned = now
        task.payload = payload if payload is not None else task.payload
        task.expires, task.keepalive, task.retry, task.attempts = fresh.expires, None, None, 0
        task.progress = None
        self._unlease(task, "move")
        self._put(task, "move", "ENQUEUED", task.due)

    def expire(self, task: Known, now: datetime) -> None:
        self._bury(task, "expire", "expired", now)

    def cancel(self, task: Known, now: datetime) -> None:
        group = self.groups.get(task.group or "")
        if group is not None and group.state == "OPEN":
            group.cancelled.add(task.id)
        self._bury(task, "cancel", "cancelled", now)

    def remove(self, task: Known, how: str) -> None:
        del self.tasks[task.id]
        self.ended[task.id] = how

    # -- what these have in common -------------------------------------------------------------

    def _wait(self, task: Known, action: str, now: datetime, seconds: float) -> None:
        due = now + timedelta(seconds=seconds)
        if task.expires is not None and task.expires <= due:
            self._bury(task, action, "expired", now)
            return
        task.due, task.returned = due, now
        self._unlease(task, action)
        self._put(task, action, "ENQUEUED", due)

    def _bury(self, task: Known, action: str, reason: str, now: datetime) -> None:
        task.reason = reason
        self._finish(task, action, "DEAD", now, self.queues[task.queue].dead_letters)

    def _finish(self, task: Known, action: str, state: str, now: datetime, kept: int) -> None:
        if not kept:
            self.remove(task, f"{action} in a queue that keeps no {state}")
            seconds = math.ceil((now - _EPOCH) / timedelta(seconds=1) + 900)
            self.spent[task.id] = task.queue, _EPOCH + timedelta(seconds=seconds)
            return
        task.finished = now
        seconds = math.ceil((now - _EPOCH) / timedelta(seconds=1) + kept)
        task.retained = _EPOCH + timedelta(seconds=seconds)
        self._unlease(task, action)
        self._put(task, action, state, now)

    def _unlease(self, task: Known, action: str) -> None:
        if action not in ("reclaim", "expire", "cancel") and task.lease:
            task.settled = (task.named or task.lease, action)
        task.named = None
        task.lease = task.lease_end = task.lease_length = None

    def _put(self, task: Known, action: str, state: str, at: datetime) -> None:
        task.state, task.at, task.move = state, at, action
        task.shard = self._shard(task.queue, task.id)
        task.version += 1
        task.beaten = False

    def _shard(self, queue: str, task_id: str) -> int:
        return shard_of(task_id, self.queues[queue].shards)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def copied(task: Known) -> Known:
    """Return a copy to compare with later."""
    return replace(task, errors=list(task.errors), trail=list(task.trail))
