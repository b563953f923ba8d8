"""Carry out the reports of one call.

A success and a heartbeat are planned from the lease alone (see ``domain.settle``) and committed
without a read.  All other reports are planned from the task, and so is a report whose change was
refused.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import structs

from headrace.domain import limits, settle
from headrace.domain.change import Change, Done
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import group_of
from headrace.domain.queue import Queue
from headrace.domain.settle import ReportedLease
from headrace.domain.task import Task
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportResult,
    ReportStatus,
    TaskReport,
    if_visible,
    is_repeat,
    not_found,
    refusal_of,
    reported_lease,
    task_after,
    task_error,
)
from headrace.ops.shared.commits import commit
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_unmade

_LOOKS: Final = 5
_UNREAD: Final = (ReportStatus.SUCCEEDED, ReportStatus.INFLIGHT)  # planned from the lease alone


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
        tasks = with_present_ends(self.store, list(beats.values())) if beats else ()
        return {
            place: structs.replace(results[place], task=task)
            for place, task in zip(beats, tasks, strict=True)
        }

    def _round(
        self, source: Queue, reports: dict[int, TaskReport], now: datetime
    ) -> dict[int, ReportResult]:
        """Carry out reports of different tasks."""
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
        results: dict[int, ReportResult] = {}
        named = [one.task_id for one in reports.values() if one.status not in _UNREAD]
        tasks = self.store.read(named, payload=False) if named else {}
        planned = {
            place: self._plan_unread(report, source, now)
            if report.status in _UNREAD
            else self._plan_as_read(report, tasks.get(report.task_id), source, now)
            for place, report in reports.items()
        }
        for _ in range(_LOOKS):
            made, refused = self._commit(reports, planned)  # refused: the task has just changed
            results |= made
            if not refused:
                return results
            planned = {
                place: self._plan_as_read(reports[place], task, source, now)
                for place, task in refused.items()
            }
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
        if task is not None and is_repeat(report, source, task):
            again = self.service.spawning.repeated(report.spawn, task, lease_id=report.lease_id)
            seen = if_visible(task)
            return ReportResult(report.task_id, ReportOutcome.OK, seen, spawned=again)
        change = self._plan_as_read(report, task, source, now)
        if task is None or isinstance(change, ReportResult):
            return change if isinstance(change, ReportResult) else not_found(report)
        whole = change if change.seen else change.together(seen=task)
        try:
            children = self.service.spawning.children(
                report.spawn, task, lease_id=report.lease_id, now=now
            )
            done = self.service.spawning.commit(whole, task, children, lease_id=report.lease_id)
        except InvalidRequest as wrong:
            note_unmade(self.store, [change])
            return ReportResult(report.task_id, ReportOutcome.INVALID, detail=str(wrong))
        if done is None:
            note_unmade(self.store, [change])
            return None
        left = task_after(report, done.task)
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
                left = task_after(report, outcome.task)
                results[place] = ReportResult(report.task_id, ReportOutcome.OK, left)
            else:
                refused[place] = outcome.task
        return results, refused

    def _plan_unread(self, report: TaskReport, source: Queue, now: datetime) -> Change:
        """Plan a success or a heartbeat from the lease that *report* names."""
        lease = reported_lease(report, source)
        if report.status is ReportStatus.SUCCEEDED:
            return settle.succeed(lease, source, now=now, result=report.result)
        return settle.heartbeat(
            lease, source, now=now, keepalive=report.keepalive, progress=report.progress
        )

    def _plan_as_read(
        self, report: TaskReport, task: Task | None, source: Queue, now: datetime
    ) -> Change | ReportResult:
        """Plan *report* from its task; return a result where nothing is to be changed."""
        refusal = refusal_of(report, source, task, now)
        if task is not None and is_repeat(report, source, task):
            return ReportResult(report.task_id, ReportOutcome.OK, if_visible(task))
        if task is None or refusal is not None:
            return refusal or not_found(report)
        return self._plan(report, task, source, now)

    def _plan(
        self, report: TaskReport, task: Task, source: Queue, now: datetime
    ) -> Change | ReportResult:
        lease = reported_lease(report, source)
        match report.status:
            case ReportStatus.SUCCEEDED:
                return settle.succeed(lease, source, now=now, result=report.result, task=task)
            case ReportStatus.INFLIGHT:
                return settle.heartbeat(
                    lease,
                    source,
                    now=now,
                    keepalive=report.keepalive,
                    progress=report.progress,
                    task=task,
                )
            case ReportStatus.FAILED:
                return settle.fail(
                    task,
                    source,
                    now=now,
                    error=task_error(report, task, now),
                    retryable=report.retryable,
                    delay=report.delay_in_seconds,
                    spread=self.service.random.random(),
                    lease=lease,
                )
            case ReportStatus.RELEASED:
                delay = report.delay_in_seconds
                return settle.release(task, source, now=now, delay=delay, lease=lease)
            case ReportStatus.MOVED:
                return self._move(report, task, lease, now)

    def _move(
        self, report: TaskReport, task: Task, lease: ReportedLease, now: datetime
    ) -> Change | ReportResult:
        try:
            target = self.service.queues.cached(report.to_queue or "")
        except NotFound as missing:
            # If the task was moved before its target was deleted, it was deleted too.
            return ReportResult(task.id, ReportOutcome.INVALID, detail=f"to_queue: {missing}")
        if target.strict and (fault := _order_fault(report, task, target)):
            return ReportResult(task.id, ReportOutcome.INVALID, detail=fault)
        in_line = target.settings.groups is not None and not report.delay_in_seconds
        return settle.move(
            task,
            target,
            now=now,
            lease=lease,
            delay=report.delay_in_seconds,
            payload=report.payload,
            tags=report.tags,
            turn=self.service.lines.take_once(target, task) if in_line else None,
        )


def _order_fault(report: TaskReport, task: Task, target: Queue) -> str | None:
    """Return why *task* cannot join the strict order of *target*, with the field first."""
    if fault := target.order_fault({"delay_in_seconds": report.delay_in_seconds}):
        return fault
    fault = target.group_fault(task.group_key)
    return fault and f"group_key {fault}"


def _one_of_each_task(waiting: Mapping[int, TaskReport]) -> dict[int, TaskReport]:
    """Return the first report of each task: later ones are planned on its effect."""
    first: dict[str, int] = {}
    for place, report in waiting.items():
        first.setdefault(report.task_id, place)
    return {place: waiting[place] for place in first.values()}
