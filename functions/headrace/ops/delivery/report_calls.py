"""Carry out the reports of one call.

Each report is first planned from the lease alone (see ``domain.settle``) and committed without a
read.  Only the tasks of refused changes are read, and the report is planned again from the task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from headrace.domain import limits, settle
from headrace.domain.change import Change, Done
from headrace.domain.copies import altered
from headrace.domain.errors import InvalidRequest, NotFound, Unavailable
from headrace.domain.ids import group_of
from headrace.domain.queue import Queue
from headrace.domain.settle import Delivery
from headrace.domain.task import Task
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportResult,
    ReportStatus,
    TaskReport,
    begun_at,
    child_secret,
    delivery_as_read,
    if_visible,
    is_repeat,
    named_delivery,
    not_found,
    refusal_of,
    task_after,
    task_error,
)
from headrace.ops.shared.commits import commit
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_unmade

_LOOKS: Final = 5


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
        held = {place: named_delivery(report, source) for place, report in reports.items()}
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
                refusal = refusal_of(report, source, task, now)
                if task is not None and is_repeat(report, source, task):
                    seen = if_visible(task)
                    by_sight[place] = ReportResult(report.task_id, ReportOutcome.OK, seen)
                elif task is None or refusal is not None:
                    by_sight[place] = refusal or not_found(report)
                else:
                    known = delivery_as_read(report, task)
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
        secret = child_secret(report)
        if task is not None and is_repeat(report, source, task):
            born = begun_at(report) or task.started_at or now
            again = self.service.spawning.repeated(
                report.spawn,
                secret=secret,
                born=born,
                settled_at=task.finished_at or task.enqueued_at,
            )
            seen = if_visible(task)
            return ReportResult(report.task_id, ReportOutcome.OK, seen, spawned=again)
        refusal = refusal_of(report, source, task, now)
        if task is None or refusal is not None:
            return refusal or not_found(report)
        change = self._plan(report, delivery_as_read(report, task), source, now)
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

    def _plan(
        self, report: TaskReport, held: Delivery, source: Queue, now: datetime
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
                    error=task_error(report, held, now),
                    retryable=report.retryable,
                    delay=report.delay_in_seconds,
                    spread=self.service.random.random(),
                )
            case ReportStatus.RELEASED:
                return settle.release(held, source, now=now, delay=report.delay_in_seconds)
            case ReportStatus.MOVED:
                return self._move(report, held, now)

    def _order_fault(self, report: TaskReport, held: Delivery, target: Queue) -> str | None:
        """Return why a task cannot join the strict order of *target*, with the field first."""
        if fault := target.order_fault({"delay_in_seconds": report.delay_in_seconds}):
            return fault
        task = held.task or self.store.read([held.task_id], payload=False).get(held.task_id)
        fault = target.group_fault(None if task is None else task.group_key)
        return fault and f"group_key {fault}"

    def _move(self, report: TaskReport, held: Delivery, now: datetime) -> Change | ReportResult:
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


def _one_of_each_task(waiting: Mapping[int, TaskReport]) -> dict[int, TaskReport]:
    """Return the first report of each task: later ones are planned on its effect."""
    first: dict[str, int] = {}
    for place, report in waiting.items():
        first.setdefault(report.task_id, place)
    return {place: waiting[place] for place in first.values()}
