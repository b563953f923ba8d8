"""Carry out the reports of workers on their tasks.

Each report is first planned from the lease alone (see ``domain.settle``) and committed without a
read.  Only the tasks of refused changes are read, and the report is planned again from the task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from headrace.domain import limits, settle
from headrace.domain.change import Change
from headrace.domain.copies import altered, quick
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import LeaseName, group_of, is_group_id, names_lease
from headrace.domain.lifecycle import Action, Actor, rules
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.settle import Held
from headrace.domain.task import ErrorKind, State, Task, TaskError
from headrace.ops.shared.commits import commit
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_unmade
from headrace.ops.tasks.enqueue import EnqueueResult
from headrace.store.base import Done
from headrace.store.call_scope import visible

_LOOKS: Final = 5


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


@dataclass(frozen=True, slots=True)
class WorkerError:
    """The error that a worker reports."""

    type: str = ""
    message: str = ""
    detail: str = ""


_NO_ERROR: Final = WorkerError()
_NOTHING_SAID: Final = "0"
_DIGEST_BYTES: Final = 6  # distinguishes reports under one lease; no secret


@quick
class TaskReport:
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


@quick
class ReportResult:
    """The result of one report; ``task`` as it is now, if the queue still has it."""

    task_id: str
    outcome: ReportOutcome
    task: Task | None = None
    detail: str | None = None
    spawned: tuple[EnqueueResult, ...] = ()


class Reports(ServicePart):
    """Carries out reports on tasks in flight."""

    def report(self, queue: str, reports: Sequence[TaskReport]) -> list[ReportResult]:
        """Carry out *reports* about tasks of *queue*; results in the order given.

        Several reports of one task take effect one after the other.  A report whose result cannot
        be stored changes nothing: its worker keeps the lease and decides what to do.
        Raises NotFound when there is no such queue.
        """
        source = self.service.queues.cached(queue)
        now = self.now()
        results = {
            place: ReportResult(report.task_id, ReportOutcome.INVALID, detail=f"result {wrong}")
            for place, report in enumerate(reports)
            if (wrong := limits.result_fault(report.result))
        }
        waiting = {place: report for place, report in enumerate(reports) if place not in results}
        while waiting:
            round_ = _one_of_each_task(waiting)
            results |= self._round(source, round_, now)
            waiting = {place: waiting[place] for place in waiting if place not in round_}
        results |= self._beating(reports, results)
        return [results[place] for place in range(len(reports))]

    def _beating(
        self, reports: Sequence[TaskReport], results: Mapping[int, ReportResult]
    ) -> dict[int, ReportResult]:
        """Return the results of heartbeats under a group, with its present end."""
        beats = {
            place: result.task
            for place, result in results.items()
            if reports[place].status is ReportStatus.INFLIGHT
            and result.outcome is ReportOutcome.OK
            and result.task is not None
            and group_of(result.task.lease_id) is not None
        }
        tasks = with_present_ends(self.store, list(beats.values()))
        return {
            place: replace(results[place], task=task)
            for place, task in zip(beats, tasks, strict=True)
        }

    def _round(
        self, source: Queue, reports: dict[int, TaskReport], now: datetime
    ) -> dict[int, ReportResult]:
        """Carry out reports of different tasks: first unread, then, if refused, as read."""
        born = {
            place: self._with_children(report, source, now)
            for place, report in reports.items()
            if report.spawn
        }
        reports = {place: report for place, report in reports.items() if not report.spawn}
        return born | self._without_children(reports, source, now)

    def _without_children(
        self, reports: dict[int, TaskReport], source: Queue, now: datetime
    ) -> dict[int, ReportResult]:
        held = {place: _held(report, source) for place, report in reports.items()}
        blind = {
            place: self._plan(reports[place], known, source, now)
            for place, known in held.items()
            if known is not None
        }
        results, refused = self._commit(reports, blind)

        # Only the task shows why an unknown lease name is refused.  The id of a lease group does
        # not name the attempt, the worker and the priority, which a failure and a release need.
        unread = [place for place in reports if held[place] is None]
        if unread:
            tasks = self.store.read([reports[place].task_id for place in unread])
            refused |= {place: tasks.get(reports[place].task_id) for place in unread}

        for _ in range(_LOOKS):
            by_sight: dict[int, Change | ReportResult] = {}
            for place, task in refused.items():
                report = reports[place]
                refusal = _refusal(report, source, task, now)
                if task is not None and _repeated(report, source, task):
                    seen = _if_visible(task)
                    by_sight[place] = ReportResult(report.task_id, ReportOutcome.OK, seen)
                elif task is None or refusal is not None:
                    by_sight[place] = refusal or _not_found(report)
                else:
                    known = _held_as_seen(report, task)
                    by_sight[place] = self._plan(report, known, source, now)
            made, refused = self._commit(reports, by_sight)  # refused: the task has just changed
            results |= made
            if not refused:
                return results
        message = "the task keeps changing; report again"
        raise Unavailable(message)

    def _with_children(self, report: TaskReport, source: Queue, now: datetime) -> ReportResult:
        """Carry out a report that creates tasks in its own transaction."""
        for _ in range(_LOOKS):
            task = self.store.read([report.task_id]).get(report.task_id)
            result = self._give_birth(report, task, source, now)
            if result is not None:
                return result
        message = "the task keeps changing; report again"
        raise Unavailable(message)

    def _give_birth(
        self, report: TaskReport, task: Task | None, source: Queue, now: datetime
    ) -> ReportResult | None:
        """Try once on *task* as it was read; return None if it has changed since."""
        secret = _secret(report)
        if task is not None and _repeated(report, source, task):
            born = _begun(report) or task.started_at or now
            again = self.service.spawning.repeated(
                report.spawn,
                secret=secret,
                born=born,
                settled_at=task.finished_at or task.enqueued_at,
            )
            seen = _if_visible(task)
            return ReportResult(report.task_id, ReportOutcome.OK, seen, spawned=again)
        refusal = _refusal(report, source, task, now)
        if task is None or refusal is not None:
            return refusal or _not_found(report)
        change = self._plan(report, _held_as_seen(report, task), source, now)
        if isinstance(change, ReportResult):
            return change
        whole = change if change.seen else change.together(seen=task)
        try:
            born = task.started_at or now
            children = self.service.spawning.children(
                report.spawn, task, secret=secret, born=born, now=now
            )
            done = self.service.spawning.commit(whole, task, children)
        except InvalidRequest as wrong:
            note_unmade(self.store, [change])
            return ReportResult(report.task_id, ReportOutcome.INVALID, detail=str(wrong))
        if done is None:
            note_unmade(self.store, [change])
            return None
        left = _left_by(report, done.task)
        return ReportResult(report.task_id, ReportOutcome.OK, left, spawned=done.children)

    def _commit(
        self, reports: Mapping[int, TaskReport], planned: Mapping[int, Change | ReportResult]
    ) -> tuple[dict[int, ReportResult], dict[int, Task | None]]:
        """Return the known results, and the tasks of the refused changes."""
        changes = {place: plan for place, plan in planned.items() if isinstance(plan, Change)}
        results = {place: plan for place, plan in planned.items() if isinstance(plan, ReportResult)}
        refused: dict[int, Task | None] = {}
        outcomes = commit(self.service, list(changes.values()))
        for place, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Done):
                report = reports[place]
                left = _left_by(report, outcome.task)
                results[place] = ReportResult(report.task_id, ReportOutcome.OK, left)
            else:
                refused[place] = outcome.task
        return results, refused

    def _plan(
        self, report: TaskReport, held: Held, source: Queue, now: datetime
    ) -> Change | ReportResult:
        match report.status:
            case ReportStatus.SUCCEEDED:
                return settle.succeed(held, source, now=now, result=report.result)
            case ReportStatus.INFLIGHT:
                return settle.heartbeat(
                    held, source, now=now, keepalive=report.keepalive, progress=report.progress
                )
            case ReportStatus.FAILED:
                return settle.fail(
                    held,
                    source,
                    now=now,
                    error=_task_error(report, held, now),
                    retryable=report.retryable,
                    delay=report.delay_in_seconds,
                    spread=self.service.random.random(),
                )
            case ReportStatus.RELEASED:
                return settle.release(held, source, now=now, delay=report.delay_in_seconds)
            case ReportStatus.MOVED:
                return self._move(report, held, now)

    def _order_fault(self, report: TaskReport, held: Held, target: Queue) -> str | None:
        """Return why a task cannot join the strict order of *target*, with the field first."""
        if fault := target.order_fault({"delay_in_seconds": report.delay_in_seconds}):
            return fault
        task = held.task or self.store.read([held.task_id], payload=False).get(held.task_id)
        fault = target.group_fault(None if task is None else task.group_key)
        return fault and f"group_key {fault}"

    def _move(self, report: TaskReport, held: Held, now: datetime) -> Change | ReportResult:
        try:
            target = self.service.queues.cached(report.to_queue or "")
        except NotFound as missing:
            # If the task was moved before its target was deleted, it was deleted too.
            return ReportResult(
                report.task_id, ReportOutcome.INVALID, detail=f"to_queue: {missing}"
            )
        if target.strict and (fault := self._order_fault(report, held, target)):
            return ReportResult(report.task_id, ReportOutcome.INVALID, detail=fault)
        in_line = target.settings.groups is not None and not report.delay_in_seconds
        turn = self.service.lines.take_once(target, held.task_id, held.task) if in_line else None
        moved = settle.move(
            held,
            target,
            now=now,
            delay=report.delay_in_seconds,
            payload=report.payload,
            tags=report.tags,
            turn=turn,
        )
        return altered(moved, turn=turn)


def _held(report: TaskReport, queue: Queue) -> Held | None:
    """Return the delivery that *report* names; None if only the task identifies it."""
    lease = LeaseName.parse(report.lease_id)
    if lease is not None:
        return Held(
            report.task_id,
            queue.name,
            lease.secret,
            lease.attempt,
            lease.worker,
            priority=lease.priority,
            started_at=lease.started_at,
            report_digest=report.digest(),
        )
    group = _named_group(report)
    waits_again = report.status in (ReportStatus.RELEASED, ReportStatus.MOVED)
    ranked = waits_again and queue.settings.priority is not None
    if group is None or report.status is ReportStatus.FAILED or ranked:
        return None
    return Held(report.task_id, queue.name, "", 0, group=group, report_digest=report.digest())


def _held_as_seen(report: TaskReport, task: Task) -> Held:
    """Return the delivery that *report* names, from *task* as it was read."""
    return Held.of(task, group=_named_group(report), report_digest=report.digest())


def _named_group(report: TaskReport) -> str | None:
    """Return the id of the lease group, if *report* names one."""
    return report.lease_id if is_group_id(report.lease_id) else None


def _settled_name(report: TaskReport) -> str | None:
    """Return the name of the lease that a task keeps when *report* settles it."""
    lease = LeaseName.parse(report.lease_id)
    return lease.secret if lease is not None else _named_group(report)


def _begun(report: TaskReport) -> datetime | None:
    """Return the start of the delivery that *report* ends, if its lease names it."""
    lease = LeaseName.parse(report.lease_id)
    return None if lease is None else lease.started_at


def _left_by(report: TaskReport, task: Task) -> Task | None:
    """Return *task*, as the store last had it, after *report* took effect.

    Return None if it is not kept, or has moved to a queue that the caller may not see.  A settled
    task that is in flight was delivered again.
    """
    if not visible(task.queue):
        return None
    if report.status is ReportStatus.INFLIGHT or task.state is not State.INFLIGHT:
        return task
    name = _settled_name(report)
    again = task.settled_lease_id == name and group_of(task.lease_id) != name
    return task if again else None


def _if_visible(task: Task) -> Task | None:
    """Return *task*, or None if it has moved to a queue that the caller may not see."""
    return task if visible(task.queue) else None


def _secret(report: TaskReport) -> str:
    """Return a secret of this delivery, from which the ids of children are derived."""
    name = _settled_name(report) or ""
    return f"{name}:{report.task_id}" if _named_group(report) else name


def _repeated(report: TaskReport, queue: Queue, task: Task) -> bool:
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
    name = _settled_name(report)
    return name is not None and task.settled_lease_id == name and group_of(task.lease_id) != name


def _contradicts(report: TaskReport, queue: Queue, task: Task) -> bool:
    """Return whether a different report has settled the lease of *report*.

    A heartbeat settles nothing.  For a moved task only another move counts: any other report is
    about a task that its queue does not have.
    """
    if report.status is ReportStatus.INFLIGHT or not _is_settled(report, task):
        return False
    moved = task.settled_status == Action.MOVE and report.status is ReportStatus.MOVED
    return moved or task.queue == queue.name


def _refusal(
    report: TaskReport, queue: Queue, task: Task | None, now: datetime
) -> ReportResult | None:
    """Return the refusal if *report* must not change *task*, or None."""
    if task is not None and not task.hidden(now) and _contradicts(report, queue, task):
        shown = task if task.queue == queue.name else None
        why = "another report has settled this lease"
        return ReportResult(report.task_id, ReportOutcome.STALE_LEASE, shown, why)
    if task is None or task.queue != queue.name or task.hidden(now):
        return _not_found(report)
    if not rules(ACTIONS[report.status], task.state, actor=Actor.WORKER):
        why = f"the task is {task.status(now)}"
        return ReportResult(report.task_id, ReportOutcome.NOT_INFLIGHT, task, why)
    if not names_lease(report.lease_id, task):
        why = "the task is under another lease"
        return ReportResult(report.task_id, ReportOutcome.STALE_LEASE, task, why)
    return None


def _not_found(report: TaskReport) -> ReportResult:
    return ReportResult(
        report.task_id, ReportOutcome.NOT_FOUND, detail="no such task in this queue"
    )


def _task_error(report: TaskReport, held: Held, now: datetime) -> TaskError:
    return TaskError(
        attempt=held.attempts,
        at=now,
        worker=held.worker,
        kind=ErrorKind.FAILED,
        type=report.error.type,
        message=report.error.message,
        detail=report.error.detail,
        started_at=held.started_at,
    )


def _one_of_each_task(waiting: Mapping[int, TaskReport]) -> dict[int, TaskReport]:
    """Return the first report of each task: later ones are planned on its effect."""
    first: dict[str, int] = {}
    for place, report in waiting.items():
        first.setdefault(report.task_id, place)
    return {place: waiting[place] for place in first.values()}
