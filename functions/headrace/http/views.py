"""What is inside, as the JSON that goes out.

Answers are put together as text, so that payloads, results and progress stand in them exactly as
they came in, without being parsed again.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.lease import shown_lease
from headrace.domain.queue import Queue
from headrace.domain.task import State, Task, TaskError
from headrace.ops.delivery.dequeue import DequeueResult
from headrace.ops.delivery.reports import ReportOutcome, ReportResult, ReportStatus, TaskReport
from headrace.ops.operators.bulk import BulkAnswer
from headrace.ops.operators.keys import IssuedKey, KeyPage, current_actor
from headrace.ops.shared.audit import AuditListing
from headrace.ops.shared.paging import AnswerRoom
from headrace.ops.shared.queues import PurgeResult, QueueListing
from headrace.ops.tasks.enqueue import EnqueueResult
from headrace.ops.tasks.explain import NotRunningReason
from headrace.ops.tasks.inspect import Counted, TaskListing
from headrace.store.records.keys import ShownKey

if TYPE_CHECKING:
    from headrace.history.recounting import Recounted

dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

MaxRetries = Callable[[str], int]
"""Gives the retries that a queue grants, by its name."""


def rfc3339(at: datetime | None) -> str | None:
    """Return *at*, which is UTC, as every answer writes it."""
    return None if at is None else f"{at.isoformat(timespec='microseconds')[:26]}Z"


# ---------------------------------------------------------------------------------------- queues


def queue_fields(queue: Queue) -> dict[str, Any]:
    """Return *queue* as it is shown, and may be sent back."""
    return {
        "name": queue.name,
        **asdict(queue.settings),
        "created_at": rfc3339(queue.created_at),
        "updated_at": rfc3339(queue.updated_at),
        "version": queue.version,
    }


def queue_json(queue: Queue, **more: object) -> str:
    """Return one queue, with *more* that is known of it."""
    return dumps({**queue_fields(queue), **more})


def queues_json(page: QueueListing) -> str:
    """Return a page of queues."""
    return dumps({"queues": [queue_fields(queue) for queue in page.queues], "cursor": page.cursor})


def purged_json(purged: PurgeResult) -> str:
    """Return how many tasks a purge has removed so far."""
    return dumps({"deleted": purged.deleted})


# ------------------------------------------------------------------------------------------ keys


def new_key_json(made: IssuedKey) -> str:
    """Return a key just made or rotated, with its secret."""
    return dumps({**_key_fields(made.key), "secret": made.secret})


def keys_json(page: KeyPage) -> str:
    """Return a page of keys."""
    keys = [{**_key_fields(key), "last_used_at": rfc3339(key.last_used_at)} for key in page.keys]
    return dumps({"keys": keys, "cursor": page.cursor})


def _key_fields(key: ShownKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "queues": key.queues,
        "prefix": key.prefix,
        "created_at": rfc3339(key.created_at),
        "expires_at": rfc3339(key.expires_at),
    }


# ----------------------------------------------------------------------------------------- tasks


def task_json(
    task: Task, *, now: datetime, max_retries: MaxRetries, payload: bool, lease: bool = False
) -> str:
    """Return *task* as it stands at *now*; its lease only to the worker that has it."""
    queue = task.place.queue
    retries = task.retry.max_retries if task.retry is not None else max_retries(queue)
    shown = f'"payload":{task.payload or "null"},' if payload else ""
    held = f',"lease":{_lease(task)}' if lease else ""
    # Ids, queue names, states and reasons are made of letters that need no escape.
    return (
        f'{{"id":"{task.id}","queue":"{queue}",'
        f'"state":"{task.place.state.value}","status":"{task.status(now).value}",{shown}'
        f'"tags":{dumps(dict(task.tags)) if task.tags else "{}"},'
        f'"dedupe_key":{_text(task.dedupe_key)},'
        f'"created_at":{_at(task.created_at)},"scheduled_at":{_at(task.due_at)},'
        f'"expires_at":{_at(task.expires_at)},"attempts":{task.attempts},'
        f'"max_retries":{retries},'
        f'"keepalive_timeout_in_seconds":{_number(task.keepalive)},'
        f'"lease_expires_at":{_at(task.lease_expires_at)},"worker":{_text(task.worker)},'
        f'"progress":{task.progress or "null"},"started_at":{_at(task.started_at)},'
        f'"finished_at":{_at(task.finished_at)},"result":{task.result or "null"},'
        f'"dead_reason":{_text(task.dead_reason)},"errors":{_errors(task.errors)},'
        f'"trail":{_trail(task)},"retained_until":{_at(task.retained_until)},'
        f'"schedule":{_text(task.schedule)}{held}}}'
    )


def tasks_json(page: TaskListing, *, now: datetime, max_retries: MaxRetries, payload: bool) -> str:
    """Return a page of tasks."""
    tasks = (
        task_json(task, now=now, max_retries=max_retries, payload=payload) for task in page.tasks
    )
    return f'{{"tasks":[{",".join(tasks)}],"cursor":{_text(page.cursor)}}}'


def enqueued_json(
    results: Iterable[EnqueueResult], *, now: datetime, max_retries: MaxRetries
) -> str:
    """Return the outcome of each entry of an enqueue."""
    parts = []
    room = AnswerRoom()
    for result in results:
        task = "null"
        if result.task is not None:
            task = task_json(result.task, now=now, max_retries=max_retries, payload=False)
            if not room.takes(task):  # tasks made long ago may have results and errors
                task = "null"
        parts.append(
            f'{{"outcome":"{result.outcome.value}","id":{_text(result.id)},"task":{task},'
            f'"queue":{_text(result.queue)},"detail":{_text(result.detail)}}}'
        )
    return f'{{"results":[{",".join(parts)}]}}'


def dequeued_json(found: DequeueResult, *, max_retries: MaxRetries) -> str:
    """Return the tasks handed out, each with its lease."""
    tasks = (
        task_json(task, now=found.now, max_retries=max_retries, payload=True, lease=True)
        for task in found.tasks
    )
    return (
        f'{{"tasks":[{",".join(tasks)}],"now":{_at(found.now)},'
        f'"poll_after_seconds":{_number(found.poll_after_seconds)}}}'
    )


def reported_json(
    reports: Iterable[TaskReport], results: Iterable[ReportResult], now: datetime
) -> str:
    """Return the outcome of each report."""
    parts = (_reported(report, result) for report, result in zip(reports, results, strict=True))
    return f'{{"results":[{",".join(parts)}],"now":{_at(now)}}}'


def counted_json(counted: Counted) -> str:
    """Return how many tasks there are."""
    by_state = {state.value: counted.by_state.get(state, 0) for state in State}
    return dumps(
        {
            "count": counted.count,
            "by_state": by_state,
            "exact": not counted.partial,
            "as_of": rfc3339(counted.as_of),
            "partial": counted.partial,
            "cursor": counted.cursor,
        }
    )


def recounted_json(recounted: "Recounted") -> str:
    """Return the progress of a recount."""

    def by_state(counts: Sequence[int]) -> dict[str, int]:
        return {state.value: number for state, number in zip(State, counts, strict=True)}

    return dumps(
        {
            "counts": by_state(recounted.counts),
            "was": by_state(recounted.was),
            "cursor": recounted.cursor,
        }
    )


# --------------------------------------------------------------------------------- for operators


def explained_json(reasons: Iterable[NotRunningReason]) -> str:
    """Return why a task is not running."""
    shown = [{**asdict(reason), "until": rfc3339(reason.until)} for reason in reasons]
    return dumps({"reasons": shown})


def bulk_json(answer: BulkAnswer) -> str:
    """Return the outcome for the tasks that were meant."""
    return dumps(asdict(answer))


def audit_json(page: AuditListing) -> str:
    """Return a page of what was changed by hand."""
    entries = [
        {**asdict(entry), "at": rfc3339(entry.at), "filter": _audited(entry.filter)}
        for entry in page.entries
    ]
    return dumps({"entries": entries, "cursor": page.cursor})


def _audited(where: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a filter as kept, its instants as every answer writes them."""
    if where is None:
        return None
    return {
        name: rfc3339(datetime.fromisoformat(value)) if name in _FILTER_INSTANTS else value
        for name, value in where.items()
    }


_FILTER_INSTANTS: Final = ("scheduled_after", "scheduled_before", "expires_at")


# ----------------------------------------------------------------------------------------- parts


def _reported(report: TaskReport, result: ReportResult) -> str:
    task, done = result.task, result.outcome is ReportOutcome.OK
    beats = done and report.status is ReportStatus.INFLIGHT
    if task is not None and done and task.state is State.INFLIGHT and not beats:
        task = None  # nothing is kept of it; what came back is how it last was
    state = f'"{task.place.state.value}"' if task is not None else "null"
    lease = _lease(task) if task is not None and beats else "null"
    spawned = ",".join(
        f'{{"outcome":"{child.outcome.value}","id":{_text(child.id)}}}' for child in result.spawned
    )
    return (
        f'{{"task_id":"{result.task_id}","outcome":"{result.outcome.value}","state":{state},'
        f'"scheduled_at":{_at(task.due_at) if task is not None else "null"},"lease":{lease},'
        f'"spawned":[{spawned}],"detail":{_text(result.detail)}}}'
    )


def _lease(task: Task) -> str:
    return f'{{"id":"{shown_lease(task)}","expires_at":{_at(task.lease_expires_at)}}}'


def _errors(errors: tuple[TaskError, ...]) -> str:
    if not errors:
        return "[]"
    entries: list[Mapping[str, Any]] = [
        {
            "attempt": error.attempt,
            "at": rfc3339(error.at),
            "worker": error.worker,
            "kind": error.kind,
            "type": error.type,
            "message": error.message,
            "detail": error.detail,
        }
        for error in errors
    ]
    return dumps(entries)


def _trail(task: Task) -> str:
    if not task.trail:
        return "[]"
    by = current_actor()
    hops = [
        {"queue": by.shown(hop.queue) if by else hop.queue, "at": rfc3339(hop.at)}
        for hop in task.trail
    ]
    return dumps(hops)


def _at(at: datetime | None) -> str:
    return "null" if at is None else f'"{at.isoformat(timespec="microseconds")[:26]}Z"'


def _text(value: str | None) -> str:
    return "null" if value is None else str(quoted(value))


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value}"
