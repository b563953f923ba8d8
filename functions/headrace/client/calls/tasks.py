"""Calls about tasks: making them, looking at them, acting on many."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from headrace.client.batches import not_enqueued
from headrace.client.call import (
    ApiCall,
    ListPage,
    PagedCall,
    RawAnswer,
    SteppedCall,
    instant_text,
    nothing,
    params_of,
    path_of,
    reads,
)
from headrace.client.codec import Codec
from headrace.client.models import Bulk, Count, Enqueued, Model, Reason, Task, remember_codec
from headrace.client.sending import NewTask, json_body, task_entry, tasks_body
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.ids import new_idempotency_key
from headrace.domain.task import State

Action: TypeAlias = Literal["delete", "restart", "run", "move"]


class _Results(Model, frozen=True, kw_only=True):
    results: list[Enqueued]


class _Tasks(Model, frozen=True, kw_only=True):
    tasks: list[Task]
    cursor: str | None


class _Reasons(Model, frozen=True, kw_only=True):
    reasons: list[Reason]


def enqueue_entries(queue: str, entries: Sequence[bytes]) -> ApiCall[list[Enqueued]]:
    """Put up to 25 tasks, written by ``task_entry``, into *queue*; INVALID is a result too."""

    def read(answer: RawAnswer) -> list[Enqueued]:
        return reads(_Results)(answer).results

    return ApiCall(
        "POST", path_of("queues", queue, "tasks"), read, body=lambda _: tasks_body(entries)
    )


def enqueue_task(queue: str, task: NewTask) -> ApiCall[Enqueued]:
    """Put one task into *queue*.  Raises NotEnqueued."""
    entry: list[bytes] = []

    def body(codec: Codec) -> bytes:
        if not entry:  # a repeat carries the same id
            entry.append(task_entry(task, codec, path="tasks[0]"))
        return tasks_body(entry)

    return ApiCall("POST", path_of("queues", queue, "tasks"), read_one, body=body)


def read_one(answer: RawAnswer) -> Enqueued:
    """Read what became of the only task.  Raises NotEnqueued."""
    result = reads(_Results)(answer).results[0]
    if result.outcome == "INVALID":
        raise not_enqueued({"task": result.detail or ""}, [result])
    return result


def get_task(id: str, *, payload: bool | None = None) -> ApiCall[Task]:
    """Return a task as it stands; *payload* left out shows it to keys that may see it.

    Raises NotFound.
    """
    return ApiCall("GET", path_of("tasks", id), _read_task, params=params_of(payload=payload))


def delete_task(id: str, *, if_not_inflight: bool = False) -> ApiCall[None]:
    """Delete a task.  Raises NotFound, or Inflight if that was to be respected."""
    return ApiCall(
        "DELETE",
        path_of("tasks", id),
        nothing,
        params=params_of(if_not_inflight=if_not_inflight or None),
        repeatable=False,
    )


def explain_task(id: str) -> ApiCall[list[Reason]]:
    """Return every reason why a task is not running; none: the next worker gets it."""

    def read(answer: RawAnswer) -> list[Reason]:
        return reads(_Reasons)(answer).reasons

    return ApiCall("GET", path_of("tasks", id, "explain"), read)


def list_tasks(  # noqa: PLR0913 (the API's own fields)
    queue: str,
    *,
    state: str | Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    worker: str | None = None,
    scheduled_after: datetime | None = None,
    scheduled_before: datetime | None = None,
    min_attempts: int | None = None,
    error: str | None = None,
    order: Literal["asc", "desc"] | None = None,
    payload: bool = False,
    limit: int | None = None,
) -> PagedCall[Task]:
    """Go through the tasks of *queue* that all of the filters hold for; *limit* is of a page."""
    params = _filter_params(
        state=_words(state),
        tags=tags,
        worker=worker,
        scheduled_after=scheduled_after,
        scheduled_before=scheduled_before,
        min_attempts=min_attempts,
        error=error,
    ) | params_of(order=order, payload=payload or None, limit=limit)

    def read(answer: RawAnswer) -> ListPage[Task]:
        page = reads(_Tasks)(answer)
        for task in page.tasks:
            remember_codec(task, answer.codec)
        return ListPage(page.tasks, page.cursor)

    return PagedCall(
        lambda cursor: ApiCall(
            "GET",
            path_of("queues", queue, "tasks"),
            read,
            params={**params, **params_of(cursor=cursor)},
        )
    )


def count_tasks(
    queue: str,
    *,
    state: str | Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    worker: str | None = None,
    scheduled_after: datetime | None = None,
    scheduled_before: datetime | None = None,
    min_attempts: int | None = None,
    error: str | None = None,
) -> SteppedCall[Count]:
    """Count the tasks of *queue* that all of the filters hold for, step by step."""
    params = _filter_params(
        state=_words(state),
        tags=tags,
        worker=worker,
        scheduled_after=scheduled_after,
        scheduled_before=scheduled_before,
        min_attempts=min_attempts,
        error=error,
    )

    def at(cursor: str | None) -> ApiCall[Count]:
        more = params_of(cursor=cursor)
        path = path_of("queues", queue, "count")
        return ApiCall("GET", path, reads(Count), params={**params, **more})

    return SteppedCall(at, _counted_together)


def _counted_together(one: Count, other: Count) -> Count:
    numbers = Counter(one.by_state) + Counter(other.by_state)
    return Count(
        count=one.count + other.count,
        by_state={state: numbers[state] for state in State},
        exact=other.exact,
        as_of=one.as_of,
        partial=other.partial,
        cursor=other.cursor,
    )


def bulk_by_ids(
    action: Action,
    queue: str,
    ids: Sequence[str],
    *,
    to_queue: str | None = None,
    dry_run: bool = False,
) -> ApiCall[Bulk]:
    """Act on up to 250 tasks that are named."""
    return _bulk(action, queue, {"ids": list(ids)}, to_queue, dry_run=dry_run)


def bulk_by_filter(
    action: Action,
    queue: str,
    where: Mapping[str, Any],
    *,
    to_queue: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    dry_run: bool = False,
) -> ApiCall[Bulk]:
    """Act on the tasks that a filter holds for: one page of them, and where to go on."""
    meant = {"filter": _filter_body(where), "limit": limit, "cursor": cursor}
    return _bulk(action, queue, meant, to_queue, dry_run=dry_run)


def _bulk(
    action: Action,
    queue: str,
    meant: Mapping[str, Any],
    to_queue: str | None,
    *,
    dry_run: bool,
) -> ApiCall[Bulk]:
    fields = {**meant, "dry_run": dry_run, "to_queue": to_queue}
    body = {name: value for name, value in fields.items() if value is not None}
    return ApiCall(
        "POST",
        path_of("queues", queue, "tasks", action),
        reads(Bulk),
        body=lambda _: json_body(body),
        key=None if dry_run else new_idempotency_key(),
    )


def _words(state: str | Sequence[str] | None) -> str | None:
    return state if state is None or isinstance(state, str) else ",".join(state)


def _filter_params(*, tags: Mapping[str, str] | None, **given: object) -> dict[str, str]:
    return params_of(**given) | {f"tag.{name}": value for name, value in (tags or {}).items()}


def _filter_body(where: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in where.items():
        if value is None:
            continue
        if name == "state":
            body[name] = _words(value)
        else:
            is_instant = isinstance(value, datetime)
            body[name] = instant_text(value, field=f"filter.{name}") if is_instant else value
    if where and not body:  # {} is every task, but whoever names a field means some
        message = "names fields and gives all of them as None"
        raise InvalidRequest(f"filter {message}", errors=[FieldError("filter", message)])
    return body


def _read_task(answer: RawAnswer) -> Task:
    task = reads(Task)(answer)
    remember_codec(task, answer.codec)
    return task
