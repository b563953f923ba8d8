"""Why a task is not running, without touching it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.fingerprints import current_fingerprint_of
from headrace.domain.queue import Queue
from headrace.domain.task import FINISHED, TURN_LANE, DeadReason, State, Task
from headrace.domain.task_groups import shown_turn, turn_of_instant
from headrace.domain.texts import amount
from headrace.domain.times import about
from headrace.domain.worker import QueueWorkers
from headrace.ops.shared.lanes import ShardReader, turn_of
from headrace.ops.shared.push_status import status_of
from headrace.ops.shared.service_part import ServicePart
from headrace.store.call_scope import current_actor

_COUNTED: Final = 1_000  # tasks ahead that are worth counting
_ERROR: Final = 300  # letters of what a task died of
_NOTICED_AFTER: Final = timedelta(seconds=10)  # a worker without heartbeats would have it by then


class ReasonCode(StrEnum):
    """Why a task is not running."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    RATE_LIMITED = "rate_limited"
    CONCURRENCY_LIMITED = "concurrency_limited"
    LEASED = "leased"
    FINISHED = "finished"
    BEHIND = "behind"
    GROUP_LIMITED = "group_limited"
    GROUP_BLOCKED = "group_blocked"
    TARGET_BACKING_OFF = "target_backing_off"
    NO_WORKERS = "no_workers"


@dataclass(frozen=True, slots=True)
class NotRunningReason:
    """One reason, in words, and until when it holds if that is known."""

    code: ReasonCode
    detail: str
    until: datetime | None = None


class Explain(ServicePart):
    """Finds the reasons why a task is not running."""

    def reasons(self, task: Task) -> tuple[NotRunningReason, ...]:
        """Return every reason that keeps *task*, as just read, from being started now.

        None at all: it goes to the next worker that asks.
        """
        now = self.now()
        if task.state in FINISHED:
            return (NotRunningReason(ReasonCode.FINISHED, _ended(task)),)
        if task.state is State.INFLIGHT:
            return (_leased(task, now),)
        if not task.is_live(now):
            detail = "the task has expired and is buried within a minute"
            return (NotRunningReason(ReasonCode.FINISHED, detail),)
        queue = self.service.queues.get(task.queue)
        reasons = [*self._of_queue(queue, now)]
        if task.due_at > now:
            not_due = NotRunningReason(ReasonCode.SCHEDULED, _not_due(task, queue), task.due_at)
            return (not_due, *reasons)
        noticed = now - task.due_at >= _NOTICED_AFTER
        workers = self.service.listening.of(queue) if noticed else QueueWorkers()
        if workers is None:
            reasons.insert(0, NotRunningReason(ReasonCode.NO_WORKERS, _no_workers(queue)))
        ahead, behind = self._behind(task, queue, now)
        if workers is not None and workers.all_busy and not queue.is_paused(now):
            # Busy workers have no separate code: the task is behind the tasks that they run.
            words = "; ".join(filter(None, (behind, workers.busy_words(ahead))))
            behind = f"{words} until it starts" if workers.started > 0 else words
        if queue.settings.groups is not None:
            reasons += self._group_limited(task, queue)
        if behind:
            reasons.append(NotRunningReason(ReasonCode.BEHIND, behind))
        return tuple(reasons)

    def _of_queue(self, queue: Queue, now: datetime) -> list[NotRunningReason]:
        reasons = []
        dequeuing = queue.settings.dequeuing_settings
        if queue.is_paused(now):
            reasons.append(NotRunningReason(ReasonCode.PAUSED, _paused(queue), queue.resume_at))
        if dequeuing.max_inflight_tasks and self.service.slots.full(queue):
            most = amount(dequeuing.max_inflight_tasks, "task")
            detail = f"queue {queue.name} has {most} in flight, its limit"
            reasons.append(NotRunningReason(ReasonCode.CONCURRENCY_LIMITED, detail))
        wait = self.service.tokens.wait_seconds(queue) if dequeuing.rate_limiting else 0.0
        if wait > 0:
            until = now + timedelta(seconds=wait)
            detail = f"the rate limit of queue {queue.name} is used up"
            reasons.append(NotRunningReason(ReasonCode.RATE_LIMITED, detail, until))
        target = queue.settings.target
        if target is not None:
            doing = status_of(self.store, queue.name, target, now)
            if doing.busy:
                code = ReasonCode.TARGET_BACKING_OFF
                reasons.append(NotRunningReason(code, doing.backing_off))
        return reasons

    def _behind(self, task: Task, queue: Queue, now: datetime) -> tuple[int, str]:
        """Count the tasks whose turn comes first, and say so; with several shards, on its own."""
        if queue.settings.groups is not None:
            return self._behind_in_lane(task, queue)
        turn = queue.turn(task.place.lane, task.due_at)
        latest = max(turn + (turn - queue.turn(lane, turn)) for lane in queue.lanes)
        reader = ShardReader(self.store, queue, task.place.shard, self.now, until=min(now, latest))
        own = (turn, task.due_at, task.id)
        count = sum(turn_of(queue, entry) < own for entry in reader.page(_COUNTED))
        if count == 0:
            return 0, ""
        more = "at least " if count == _COUNTED and not reader.exhausted else ""
        what = "task is" if count == 1 else "tasks are"
        what = f"{what} due before it"
        if queue.lanes != [0]:
            what = "task has its turn" if count == 1 else "tasks have their turn"
            what = f"{what} before it, by due time and priority"
        return count, f"{more}{count} {what}"

    def _group_limited(self, task: Task, queue: Queue) -> list[NotRunningReason]:
        key = task.group_key
        blocking = self.service.group_limits.blocking(queue, [key], besides=task).get(key)
        if blocking is None:
            return []
        if queue.strict:
            detail = f"the tasks of group {key} are done one after the other: {blocking.why}"
            return [NotRunningReason(ReasonCode.GROUP_BLOCKED, detail, blocking.until)]
        which = "tasks without a key have" if key is None else f"group {key} has"
        detail = f"{which} {queue.group_limit} in flight, as many as allowed: {blocking.why}"
        return [NotRunningReason(ReasonCode.GROUP_LIMITED, detail, blocking.until)]

    def _behind_in_lane(self, task: Task, queue: Queue) -> tuple[int, str]:
        """Count the earlier tasks in its lane; lanes take turns."""
        own = (task.scheduled_at, task.id)
        page = self.store.entries(task.place, until=task.scheduled_at, limit=_COUNTED)
        count = sum((entry.scheduled_at, entry.task_id) < own for entry in page.entries)
        if count == 0:
            return 0, ""
        more = "at least " if count == _COUNTED and page.last is not None else ""
        if task.place.lane != TURN_LANE:
            what = "task that was" if count == 1 else "tasks that were"
            what = f"{what} delayed or came back {'is' if count == 1 else 'are'} due before it"
            return count, f"{more}{count} {what}"
        turn = shown_turn(turn_of_instant(task.scheduled_at))
        delivered = shown_turn(self.service.lines.delivered(queue))
        what = "task has its turn" if count == 1 else "tasks have their turn"
        what = f"{what} before it: its turn is {turn:g}, delivered is {delivered:g}"
        return count, f"{more}{count} {what}"


def _paused(queue: Queue) -> str:
    """Return that *queue* is paused; operators also see who paused the queue and why."""
    words = f"queue {queue.name} is paused"
    actor, pause = current_actor(), queue.pause
    if pause is None or not (actor is None or actor.may(Permission.OPERATE, queue.name)):
        return words
    return f"{words} by {pause.by}{f': {pause.reason}' if pause.reason else ''}"


def _not_due(task: Task, queue: Queue) -> str:
    """Return that *task* is not due yet; of a retry also what the attempt before it failed of."""
    if not task.errors or current_fingerprint_of(task) is None:
        return "the task is not due yet"
    most = (task.retry or queue.settings.retry_strategy).max_retries + 1
    attempt = f"attempt {task.errors[-1].attempt} of {most}"
    return f"waits for its retry: {attempt} failed with {_latest_error(task)}"


def _no_workers(queue: Queue) -> str:
    return (
        f"queue {queue.name} has no workers: none has sent a heartbeat, and no task was started"
        " in the last two minutes"
    )


def _ended(task: Task) -> str:
    """Return how *task* ended; of one that was given up also what it died of."""
    if task.dead_reason is None:
        return f"the task is {task.state}"
    said = f"the task is {task.state} ({task.dead_reason})"
    if not task.errors or task.dead_reason not in (DeadReason.REJECTED, DeadReason.EXHAUSTED):
        return said
    return f"{said} after attempt {task.errors[-1].attempt}: {_latest_error(task)}"


def _latest_error(task: Task) -> str:
    error = task.errors[-1]
    words = ": ".join(filter(None, (error.type, error.message)))
    words = words or str(error.kind).replace("_", " ")
    return words if len(words) <= _ERROR else f"{words[:_ERROR]}…"


def _leased(task: Task, now: datetime) -> NotRunningReason:
    end = task.lease_expires_at
    who = task.worker or "its worker"
    if end is not None and end <= now:
        detail = (
            f"the lease of {who} ended {about((now - end).total_seconds())} ago without a report:"
            " the task is retried within a minute"
        )
        return NotRunningReason(ReasonCode.LEASED, detail)
    long = about((now - (task.started_at or now)).total_seconds())
    return NotRunningReason(ReasonCode.LEASED, f"{who} has been running the task for {long}", end)
