"""What is inside, as the answers of ``headrace.wire``.

Payloads, results and progress stand in them exactly as they came in, without being parsed again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.lease import Group, shown_lease
from headrace.domain.queue import Queue
from headrace.domain.task import State, Status, Task, TaskError
from headrace.history.histogram import Histogram
from headrace.history.metrics import MetricPoint, MetricSeries
from headrace.history.stats import QueueStats
from headrace.history.tally import COUNTED
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.ops.delivery.reports import ReportOutcome, ReportResult, ReportStatus, TaskReport
from headrace.ops.operators.bulk import BulkAnswer
from headrace.ops.operators.keys import IssuedKey, KeyPage, current_actor
from headrace.ops.operators.workers import LiveWorker, WorkerPage
from headrace.ops.scheduling.schedules import Seen
from headrace.ops.shared.audit import AuditListing
from headrace.ops.shared.paging import AnswerRoom
from headrace.ops.shared.queues import PurgeResult, QueueListing
from headrace.ops.tasks.enqueue import EnqueueResult
from headrace.ops.tasks.explain import NotRunningReason
from headrace.ops.tasks.inspect import Counted, TaskListing
from headrace.store.records.keys import ShownKey
from headrace.wire import queues as queue_wire
from headrace.wire import service as service_wire
from headrace.wire import tasks as task_wire
from headrace.wire.base import (
    LEFT_OUT,
    instant,
    instant_text,
    raw,
    to_json,
    word,
)

if TYPE_CHECKING:
    from headrace.history.recounting import Recounted

MaxRetries = Callable[[str], int]
"""Gives the retries that a queue grants, by its name."""

_MICROSECONDS: Final = 6  # decimals of a second
_RATE: Final = 4


# ---------------------------------------------------------------------------------------- queues


def queue(
    queue: Queue, stats: QueueStats | None = None, schedules: Iterable[Seen] | None = None
) -> queue_wire.Queue:
    """A queue; in full with its stats and schedules."""
    settings = queue.settings
    return queue_wire.Queue(
        name=queue.name,
        description=settings.description,
        keepalive_timeout_in_seconds=settings.keepalive_timeout_in_seconds,
        expires_in_seconds=settings.expires_in_seconds,
        retry_strategy=settings.retry_strategy,
        dequeuing_settings=settings.dequeuing_settings,
        dead_letter_queue_config=settings.dead_letter_queue_config,
        history_retention_in_seconds=settings.history_retention_in_seconds,
        shards=settings.shards,
        created_at=instant(queue.created_at),
        updated_at=instant(queue.updated_at),
        version=queue.version,
        stats=LEFT_OUT if stats is None else queue_stats(stats),
        schedules=LEFT_OUT if schedules is None else [in_short(seen) for seen in schedules],
    )


def queues(page: QueueListing) -> queue_wire.Queues:
    """A page of queues."""
    return queue_wire.Queues(queues=[queue(one) for one in page.queues], cursor=page.cursor)


def purged(purge: PurgeResult) -> queue_wire.Purged:
    """How many tasks a purge has removed so far."""
    return queue_wire.Purged(deleted=purge.deleted, in_background=LEFT_OUT)


def recount(recounted: "Recounted") -> queue_wire.Recount:
    """The progress of a recount."""

    def by_state(counts: Sequence[int]) -> dict[State, int]:
        return dict(zip(State, counts, strict=True))

    return queue_wire.Recount(
        counts=by_state(recounted.counts), was=by_state(recounted.was), cursor=recounted.cursor
    )


def queue_stats(stats: QueueStats) -> queue_wire.Stats:
    """A queue's statistics."""
    rates = stats.rates
    return queue_wire.Stats(
        counts=queue_wire.Counts(
            **{status.value.lower(): stats.counts[status] for status in Status}
        ),
        age_of_oldest_ready_seconds=_seconds(stats.age_of_oldest_ready),
        age_of_oldest_inflight_seconds=_seconds(stats.age_of_oldest_inflight),
        rates=queue_wire.Rates(
            enqueued_per_second=round(rates.enqueued, _RATE),
            dequeued_per_second=round(rates.dequeued, _RATE),
            succeeded_per_second=round(rates.succeeded, _RATE),
            failed_per_second=round(rates.failed, _RATE),
        ),
        as_of=instant(stats.as_of),
        staleness_seconds=round(stats.staleness, _MICROSECONDS),
    )


def metrics(series: MetricSeries) -> queue_wire.Metrics:
    """A series of points."""
    return queue_wire.Metrics(
        points=[_point(point) for point in series.points],
        step_seconds=series.step_seconds,
        as_of=instant(series.as_of),
        staleness_seconds=round(series.staleness, _MICROSECONDS),
    )


def _point(point: MetricPoint) -> queue_wire.Point:
    activity = point.activity
    wait = Histogram() if activity is None else activity.wait
    run = Histogram() if activity is None else activity.run
    numbers = {
        event.value: None if activity is None else activity.number(event) for event in COUNTED
    }
    return queue_wire.Point(
        at=instant(point.at),
        **numbers,
        wait_p50=_seconds(wait.percentile(0.5)),
        wait_p99=_seconds(wait.percentile(0.99)),
        run_p50=_seconds(run.percentile(0.5)),
        run_p99=_seconds(run.percentile(0.99)),
    )


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, _MICROSECONDS)


# ------------------------------------------------------------------------------------- schedules


def schedule(seen: Seen, *, payload: bool) -> queue_wire.Schedule:
    """A schedule, its payload only for those who may see it."""
    settings = seen.schedule.settings
    return queue_wire.Schedule(
        name=seen.schedule.name,
        cron=settings.cron,
        every_seconds=settings.every_seconds,
        timezone=settings.timezone,
        paused=settings.paused,
        next_run_at=instant(seen.next_run_at),
        tags=dict(settings.tags),
        dedupe_key=settings.dedupe_key,
        expires_in_seconds=settings.expires_in_seconds,
        keepalive_timeout_in_seconds=settings.keepalive_timeout_in_seconds,
        retry_strategy=settings.retry_strategy,
        last_run_at=instant(seen.last_run_at),
        created_at=instant(seen.schedule.created_at),
        updated_at=instant(seen.schedule.updated_at),
        payload_json=raw(settings.payload) if payload else LEFT_OUT,
    )


def in_short(seen: Seen) -> queue_wire.ScheduleInShort:
    """The short form of a schedule, as its queue shows it."""
    settings = seen.schedule.settings
    return queue_wire.ScheduleInShort(
        name=seen.schedule.name,
        cron=settings.cron,
        every_seconds=settings.every_seconds,
        timezone=settings.timezone,
        paused=settings.paused,
        next_run_at=instant(seen.next_run_at),
    )


# ----------------------------------------------------------------------------------------- tasks


def task(
    task: Task, *, now: datetime, max_retries: MaxRetries, payload: bool = True
) -> task_wire.Task:
    """A task as it stands at *now*."""
    return task_wire.Task(**_members(task, now, max_retries, payload=payload))


def _members(
    task: Task, now: datetime, max_retries: MaxRetries, *, payload: bool
) -> dict[str, Any]:
    place, retry = task.place, task.retry
    return {
        "id": task.id,
        "queue": place.queue,
        "state": place.state,
        "status": task.status(now),
        "payload_json": raw(task.payload) if payload else LEFT_OUT,
        "tags": dict(task.tags),
        "dedupe_key": task.dedupe_key,
        "created_at": instant(task.created_at),
        "scheduled_at": instant(task.due_at),
        "expires_at": instant(task.expires_at),
        "attempts": task.attempts,
        "max_retries": retry.max_retries if retry is not None else max_retries(place.queue),
        "keepalive_timeout_in_seconds": task.keepalive,
        "lease_expires_at": instant(task.lease_expires_at),
        "worker": task.worker,
        "progress_json": raw(task.progress),
        "started_at": instant(task.started_at),
        "finished_at": instant(task.finished_at),
        "result_json": raw(task.result),
        "dead_reason": task.dead_reason,
        "errors": [_error(error) for error in task.errors],
        "trail": _trail(task),
        "retained_until": instant(task.retained_until),
        "schedule": task.schedule,
    }


def tasks(
    page: TaskListing, *, now: datetime, max_retries: MaxRetries, payload: bool
) -> task_wire.Tasks:
    """A page of tasks."""
    shown = [task(one, now=now, max_retries=max_retries, payload=payload) for one in page.tasks]
    return task_wire.Tasks(tasks=shown, cursor=page.cursor)


def enqueued(
    results: Iterable[EnqueueResult], *, now: datetime, max_retries: MaxRetries
) -> task_wire.EnqueueResults:
    """The outcome of each entry of an enqueue."""
    shown = []
    room = AnswerRoom()
    for result in results:
        made = None
        if result.task is not None:
            made = task(result.task, now=now, max_retries=max_retries, payload=False)
            if not room.takes(to_json(made)):  # tasks made long ago may have results and errors
                made = None
        shown.append(
            task_wire.Enqueued(
                outcome=word(result.outcome),
                id=result.id,
                task=made,
                queue=result.queue,
                detail=result.detail,
            )
        )
    return task_wire.EnqueueResults(results=shown)


def dequeued(found: DequeueResult, *, max_retries: MaxRetries) -> task_wire.Dequeued:
    """The tasks handed out, each with its lease."""
    leased = [
        task_wire.LeasedTask(
            **_members(task, found.now, max_retries, payload=True), lease=_lease(task)
        )
        for task in found.tasks
    ]
    return task_wire.Dequeued(
        tasks=leased, now=instant(found.now), poll_after_seconds=found.poll_after_seconds
    )


def reported(
    reports: Iterable[TaskReport], results: Iterable[ReportResult], now: datetime
) -> task_wire.ReportResults:
    """The outcome of each report."""
    return task_wire.ReportResults(
        results=[
            _reported(report, result) for report, result in zip(reports, results, strict=True)
        ],
        now=instant(now),
    )


def _reported(report: TaskReport, result: ReportResult) -> task_wire.Reported:
    task, done = result.task, result.outcome is ReportOutcome.OK
    beats = done and report.status is ReportStatus.INFLIGHT
    if task is not None and done and task.state is State.INFLIGHT and not beats:
        task = None  # nothing is kept of it; what came back is how it last was
    return task_wire.Reported(
        task_id=result.task_id,
        outcome=word(result.outcome),
        state=None if task is None else task.place.state,
        scheduled_at=None if task is None else instant(task.due_at),
        lease=_lease(task) if task is not None and beats else None,
        spawned=[
            task_wire.Spawned(outcome=word(child.outcome), id=child.id or "")
            for child in result.spawned
        ],
        detail=result.detail,
        now=LEFT_OUT,
    )


def count(counted: Counted) -> task_wire.Count:
    """How many tasks there are."""
    return task_wire.Count(
        count=counted.count,
        by_state={state: counted.by_state.get(state, 0) for state in State},
        exact=not counted.partial,
        as_of=instant(counted.as_of),
        partial=counted.partial,
        cursor=counted.cursor,
    )


def explained(reasons: Iterable[NotRunningReason]) -> task_wire.Explained:
    """Why a task is not running."""
    return task_wire.Explained(
        reasons=[
            task_wire.Reason(code=reason.code, detail=reason.detail, until=instant(reason.until))
            for reason in reasons
        ]
    )


def bulk(answer: BulkAnswer) -> task_wire.Bulk:
    """The outcome for the tasks that were meant."""
    return task_wire.Bulk(
        matched=answer.matched,
        changed=answer.changed,
        results=[
            task_wire.BulkResult(id=one.id, outcome=word(one.outcome), detail=one.detail)
            for one in answer.results
        ],
        cursor=answer.cursor,
    )


def group_lease(group: Group) -> task_wire.Leased:
    """A group lease."""
    return task_wire.Leased(
        lease=task_wire.Lease(id=group.id, expires_at=instant(group.expires_at))
    )


def _lease(task: Task) -> task_wire.Lease:
    return task_wire.Lease(id=shown_lease(task), expires_at=instant(task.lease_expires_at))


def _error(error: TaskError) -> task_wire.TaskError:
    return task_wire.TaskError(
        attempt=error.attempt,
        at=instant(error.at),
        worker=error.worker,
        kind=word(error.kind),
        type=error.type,
        message=error.message,
        detail=error.detail,
    )


def _trail(task: Task) -> list[task_wire.Hop]:
    if not task.trail:
        return []
    by = current_actor()
    return [
        task_wire.Hop(queue=by.shown(hop.queue) if by else hop.queue, at=instant(hop.at))
        for hop in task.trail
    ]


# ------------------------------------------------------------------------- keys, audit, workers


def new_key(made: IssuedKey) -> service_wire.NewKey:
    """A key just made or rotated, with its secret."""
    return service_wire.NewKey(
        **{**_key_members(made.key), "last_used_at": LEFT_OUT}, secret=made.secret
    )


def keys(page: KeyPage) -> service_wire.Keys:
    """A page of keys."""
    return service_wire.Keys(
        keys=[service_wire.Key(**_key_members(key)) for key in page.keys], cursor=page.cursor
    )


def _key_members(key: ShownKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "queues": list(key.queues),
        "prefix": key.prefix,
        "created_at": instant(key.created_at),
        "expires_at": instant(key.expires_at),
        "last_used_at": instant(key.last_used_at),
    }


def audit(page: AuditListing) -> service_wire.AuditEntries:
    """A page of what was changed by hand."""
    return service_wire.AuditEntries(
        entries=[
            service_wire.AuditEntry(
                at=instant(entry.at),
                actor=entry.actor,
                actor_id=entry.actor_id,
                action=entry.action,
                queue=entry.queue,
                filter=_audited(entry.filter),
                ids=None if entry.ids is None else list(entry.ids),
                matched=entry.matched,
                changed=entry.changed,
                request_id=entry.request_id,
            )
            for entry in page.entries
        ],
        cursor=page.cursor,
    )


def _audited(where: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A filter as kept, its instants as every answer writes them."""
    if where is None:
        return None
    return {
        name: instant_text(datetime.fromisoformat(value)) if name in _FILTER_INSTANTS else value
        for name, value in where.items()
    }


_FILTER_INSTANTS: Final = ("scheduled_after", "scheduled_before", "expires_at")


def worker(worker: LiveWorker) -> service_wire.WorkerSeen:
    """A worker."""
    heartbeat = worker.heartbeat
    return service_wire.WorkerSeen(
        name=heartbeat.name,
        queues=list(heartbeat.queues),
        concurrency=heartbeat.concurrency,
        running=None if heartbeat.running is None else list(heartbeat.running),
        version=heartbeat.version,
        started_at=instant(heartbeat.started_at),
        seen_at=instant(worker.seen_at),
        command=worker.command,
    )


def workers(page: WorkerPage) -> service_wire.Workers:
    """A page of workers."""
    return service_wire.Workers(workers=[worker(one) for one in page.workers], cursor=page.cursor)
