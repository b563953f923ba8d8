"""The reports of workers on their tasks, and whether a report applies to a task as it is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from msgspec import Struct, field

from headrace.domain import limits
from headrace.domain.ids import group_of, names_lease
from headrace.domain.lifecycle import Action, Actor, rules
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.settle import ReportedLease
from headrace.domain.task import ErrorKind, State, Task, TaskError
from headrace.ops.tasks.enqueue import EnqueueResult
from headrace.store.call_scope import visible


class ReportStatus(StrEnum):
    """The status that a worker reports."""

    SUCCEEDED = "SUCCEEDED"
    INFLIGHT = "INFLIGHT"
    FAILED = "FAILED"
    RELEASED = "RELEASED"
    MOVED = "MOVED"


class ReportOutcome(StrEnum):
    """The outcome of a report."""

    OK = "OK"
    NOT_FOUND = "NOT_FOUND"
    NOT_INFLIGHT = "NOT_INFLIGHT"
    STALE_LEASE = "STALE_LEASE"
    INVALID = "INVALID"


ACTIONS: Final[Mapping[ReportStatus, Action]] = {
    ReportStatus.SUCCEEDED: Action.SUCCEED,
    ReportStatus.INFLIGHT: Action.HEARTBEAT,
    ReportStatus.FAILED: Action.FAIL,
    ReportStatus.RELEASED: Action.RELEASE,
    ReportStatus.MOVED: Action.MOVE,
}


_MARK: Final = "… [cut]"
_MARK_BYTES: Final = len(_MARK.encode())
_ROOM: Final = limits.ERROR_BYTES - 512  # attempt, time, worker and kind are stored with the error


@dataclass(frozen=True, slots=True)
class WorkerError:
    """The error that a worker reports."""

    type: str = ""
    message: str = ""
    detail: str = ""

    def shortened(self) -> "WorkerError":
        """Return the error, cut to the size that is stored; the longest text is cut first."""
        return WorkerError(*_shortened([self.type, self.message, self.detail], _ROOM))


def _shortened(texts: Sequence[str], room: int) -> list[str]:
    """Return *texts*, cut so that together they take at most *room* bytes as JSON in UTF-8.

    The quotes around them do not count. A cut text ends with the mark.
    """
    sizes = [_size(text) for text in texts]
    if sum(sizes) <= room:
        return list(texts)
    most = _share(sizes, room)
    return [
        _cut(text, most) if size > most else text for text, size in zip(texts, sizes, strict=True)
    ]


def _share(sizes: Sequence[int], room: int) -> int:
    """Return the size to which long texts are cut, if short texts leave their room to them."""
    left = len(sizes)
    for size in sorted(sizes):
        if size > room // left:
            break
        room -= size
        left -= 1
    return room // left


def _cut(text: str, most: int) -> str:
    """Return the longest start of *text* that leaves room for the mark."""
    low, high = 0, most  # a character takes at least a byte
    while low < high:
        middle = (low + high + 1) // 2
        if _size(text[:middle]) <= most - _MARK_BYTES:
            low = middle
        else:
            high = middle - 1
    return text[:low] + _MARK


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


_NO_ERROR: Final = WorkerError()
_NOTHING_SAID: Final = "0"
_DIGEST_BYTES: Final = 6  # distinguishes reports under one lease; no secret


class TaskReport(Struct, frozen=True):
    """One report; ``lease_id`` as the dequeue returned it, JSON texts unparsed."""

    task_id: str
    lease_id: str
    status: ReportStatus
    result: str | None = None
    progress: str | None = None
    error: WorkerError = field(default_factory=WorkerError)
    retryable: bool = True
    delay_in_seconds: Seconds | None = None
    to_queue: str | None = None
    payload: str | None = None
    tags: Mapping[str, str] | None = None
    keepalive: Seconds | None = None
    spawn: tuple[tuple[str, TaskSpec], ...] = ()

    def digest(self) -> str:
        """Return a digest of the content; reports of one status and digest are repeats."""
        error = self.error
        if self.result is None and self.to_queue is None and not self.spawn and error == _NO_ERROR:
            return _NOTHING_SAID
        said = (self.result, error, self.to_queue, self.spawn)
        return blake2b(repr(said).encode(), digest_size=_DIGEST_BYTES).hexdigest()


class ReportResult(Struct, frozen=True):
    """The result of one report; ``task`` as it is now, if the queue still has it."""

    task_id: str
    outcome: ReportOutcome
    task: Task | None = None
    detail: str | None = None
    spawned: tuple[EnqueueResult, ...] = ()


def reported_lease(report: TaskReport, queue: Queue) -> ReportedLease:
    """Return the lease of a task of *queue* that *report* names."""
    return ReportedLease(report.task_id, queue.name, report.lease_id, report.digest())


def task_after(report: TaskReport, task: Task) -> Task | None:
    """Return *task*, as the store last had it, after *report* took effect.

    Return None if it is not kept, or has moved to a queue that the caller may not see.  A settled
    task that is in flight was delivered again.
    """
    if not visible(task.queue):
        return None
    if report.status is ReportStatus.INFLIGHT or task.state is not State.INFLIGHT:
        return task
    return task if _is_settled(report, task) else None


def if_visible(task: Task) -> Task | None:
    """Return *task*, or None if it has moved to a queue that the caller may not see."""
    return task if visible(task.queue) else None


def is_repeat(report: TaskReport, queue: Queue, task: Task) -> bool:
    """Return whether *report*, or an equal one, took effect on *task* before.

    False if the named group has leased the task again: the report may be about that delivery.
    """
    action = ACTIONS[report.status]
    if not _is_settled(report, task) or task.settled_status != action:
        return False
    if task.settled_digest != report.digest():
        return False
    return task.queue == queue.name or action is Action.MOVE


def _is_settled(report: TaskReport, task: Task) -> bool:
    """Return whether a report ended the delivery that *report* names."""
    name = report.lease_id
    return task.settled_lease_id == name and group_of(task.lease_id) != name


def _contradicts(report: TaskReport, queue: Queue, task: Task) -> bool:
    """Return whether a different report has settled the lease of *report*.

    A heartbeat settles nothing.  For a moved task only another move counts: any other report is
    about a task that its queue does not have.
    """
    if report.status is ReportStatus.INFLIGHT or not _is_settled(report, task):
        return False
    moved = task.settled_status == Action.MOVE and report.status is ReportStatus.MOVED
    return moved or task.queue == queue.name


def refusal_of(
    report: TaskReport, queue: Queue, task: Task | None, now: datetime
) -> ReportResult | None:
    """Return the refusal if *report* must not change *task*, or None."""
    if task is not None and not task.is_hidden(now) and _contradicts(report, queue, task):
        shown = task if task.queue == queue.name else None
        why = "another report has settled this lease"
        return ReportResult(report.task_id, ReportOutcome.STALE_LEASE, shown, why)
    if task is None or task.queue != queue.name or task.is_hidden(now):
        return not_found(report)
    if not rules(ACTIONS[report.status], task.state, actor=Actor.WORKER):
        why = f"the task is {task.status(now)}"
        return ReportResult(report.task_id, ReportOutcome.NOT_INFLIGHT, task, why)
    if not names_lease(report.lease_id, task):
        why = "the task is under another lease"
        return ReportResult(report.task_id, ReportOutcome.STALE_LEASE, task, why)
    return None


def not_found(report: TaskReport) -> ReportResult:
    return ReportResult(
        report.task_id, ReportOutcome.NOT_FOUND, detail="no such task in this queue"
    )


def task_error(report: TaskReport, task: Task, now: datetime) -> TaskError:
    return TaskError(
        attempt=task.attempts,
        at=now,
        worker=task.worker,
        kind=ErrorKind.FAILED,
        type=report.error.type,
        message=report.error.message,
        detail=report.error.detail,
        started_at=task.started_at,
    )
