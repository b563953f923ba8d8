"""Calls about many tasks: lists, counts and actions by filter."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import structs

from headrace.client.calls import (
    ApiCall,
    PagedCall,
    RawAnswer,
    SteppedCall,
    gets,
    instant_text,
    lists,
    params_of,
    path_of,
    posts,
    reads,
    steps,
    without_none,
)
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.task import SHOWN_STATES, Level, State
from headrace.wire.actions import Actions, ActionSeen
from headrace.wire.tasks import Bulk, Count, Task, Tasks

ActionName: TypeAlias = Literal["delete", "restart", "run", "move", "cancel"]


class TaskFilters(TypedDict, total=False):
    """Filters of tasks; a task must match all of them.  A filter of None matches every task.

    Args:
        state: one state, or several: ``"dead"``, ``["ready", "inflight"]``; in any case.
        query: filters in the language of the console's search boxes.

    """

    state: str | Sequence[str] | None
    tags: Mapping[str, str] | None
    worker: str | None
    scheduled_after: datetime | None
    scheduled_before: datetime | None
    min_attempts: int | None
    error: str | None
    priority: Level | None
    group_key: str | None
    query: str | None


class Selection(TaskFilters, total=False):
    """The tasks to act on: by ``ids``, by filters, or ``all`` tasks of the queue.

    Args:
        all: takes every task of the queue, so that a forgotten filter does not.
        dry_run: counts the tasks and changes none.
        reason: why it is done, for others to read in the audit.

    """

    ids: Sequence[str] | None
    all: bool
    dry_run: bool
    reason: str | None


def list_tasks(
    queue: str,
    *,
    order: Literal["asc", "desc"] | None = None,
    payload: bool = False,
    limit: int | None = None,
    **filters: Unpack[TaskFilters],
) -> PagedCall[Task]:
    """Yield the tasks of *queue* that match all filters; *limit* is the size of a page."""
    params = _filter_params(**filters) | params_of(
        order=order, payload=payload or None, limit=limit
    )
    return lists(path_of("queues", queue, "tasks"), Tasks, lambda page: page.tasks, params)


def count_tasks(queue: str, **filters: Unpack[TaskFilters]) -> SteppedCall[Count]:
    """Count the tasks of *queue* that match all filters, step by step."""
    params = _filter_params(**filters)

    def at(cursor: str | None) -> ApiCall[Count]:
        more = params_of(cursor=cursor)
        path = path_of("queues", queue, "count")
        return ApiCall("GET", path, reads(Count), params={**params, **more})

    return SteppedCall(at, _counted_together)


def _counted_together(counts: Sequence[Count]) -> Count:
    numbers: Counter[State] = sum((Counter(count.by_state) for count in counts), Counter())
    return msgspec.structs.replace(
        counts[-1],
        count=sum(count.count for count in counts),
        by_state={state: numbers[state] for state in SHOWN_STATES},
        as_of=counts[0].as_of,
    )


def undo(id: str) -> SteppedCall[Bulk]:
    """Restore the tasks of the deletion with this undo, step by step; it can be repeated.

    Raises NotFound if the undo is unknown or too old, or if the queue was deleted.
    """
    return steps(Bulk, "undos", id, total=_acted_together)


def delete_tasks(
    queue: str, *, undo_in_seconds: float | None = None, **selection: Unpack[Selection]
) -> SteppedCall[Bulk]:
    """Delete tasks: ``delete_tasks("mail", state="dead", tags={"tenant": "acme"})``.

    The answer's ``undo`` can restore all of them within *undo_in_seconds*.

    Raises InvalidRequest unless there are either ids, filters or ``all=True``.  The other four
    bulk methods do the same.
    """
    return bulk_tasks("delete", queue, undo_in_seconds=undo_in_seconds, **selection)


def restart_tasks(queue: str, **selection: Unpack[Selection]) -> SteppedCall[Bulk]:
    """Restart dead or succeeded tasks."""
    return bulk_tasks("restart", queue, **selection)


def run_tasks(queue: str, **selection: Unpack[Selection]) -> SteppedCall[Bulk]:
    """Make waiting tasks due now."""
    return bulk_tasks("run", queue, **selection)


def move_tasks(queue: str, to_queue: str, **selection: Unpack[Selection]) -> SteppedCall[Bulk]:
    """Move waiting or dead tasks to another queue."""
    return bulk_tasks("move", queue, to_queue=to_queue, **selection)


def cancel_tasks(queue: str, **selection: Unpack[Selection]) -> SteppedCall[Bulk]:
    """Cancel tasks that wait or are in flight."""
    return bulk_tasks("cancel", queue, **selection)


def bulk_tasks(
    action: ActionName,
    queue: str,
    *,
    ids: Sequence[str] | None = None,
    all: bool = False,
    to_queue: str | None = None,
    dry_run: bool = False,
    undo_in_seconds: float | None = None,
    reason: str | None = None,
    **filters: Unpack[TaskFilters],
) -> SteppedCall[Bulk]:
    """Act on tasks page by page, to show progress.

    Raises InvalidRequest, before anything is done, unless there are either ids, filters or *all*.
    """
    given: dict[str, Any] = {
        "to_queue": to_queue,
        "dry_run": dry_run,
        "undo_in_seconds": undo_in_seconds,
        "reason": reason,
    }

    def page(**which: Any) -> ApiCall[Bulk]:  # noqa: ANN401  of the body
        path = path_of("queues", queue, "tasks", action)
        call = posts(path, reads(Bulk), without_none(**given | which))
        return structs.replace(call, key=None) if dry_run else call

    if ids is None:
        where = filter_body(filters, all=all)
        return SteppedCall(lambda cursor: page(filter=where, cursor=cursor), _acted_together)
    # Ids are never dropped in favour of a filter that means every task.
    if filters or all:
        raise InvalidRequest.of("ids", "and filters or all exclude each other")
    if isinstance(ids, str | bytes):
        raise InvalidRequest.of("ids", "must be a list of ids, not one text")

    def at(cursor: str | None) -> ApiCall[Bulk]:
        # The cursor is the place of the next id, and the undo of the first call.  An empty list
        # is one call: the service says what is wrong with it.
        place, _, undo_id = (cursor or "0").partition(" ")
        start = int(place)
        end = start + limits.BULK_IDS
        undo = {"undo_id": undo_id, "undo_in_seconds": None} if undo_id else {}
        call = page(ids=list(ids[start:end]), **undo)

        def read(answer: RawAnswer) -> Bulk:
            done = call.read(answer)
            undo = f" {done.undo.id}" if done.undo else ""
            more = f"{end}{undo}" if end < len(ids) else None
            return msgspec.structs.replace(done, cursor=more)

        return structs.replace(call, read=read)

    return SteppedCall(at, _acted_together)


def _acted_together(pages: Sequence[Bulk]) -> Bulk:
    return Bulk(
        matched=sum(page.matched for page in pages),
        changed=sum(page.changed for page in pages),
        results=[result for page in pages for result in page.results],
        undo=next((page.undo for page in pages if page.undo), None),
    )


# ------------------------------------------------------------ actions in the background


def begin_action(
    action: ActionName,
    queues: Sequence[str],
    *,
    all: bool = False,
    to_queue: str | None = None,
    undo_in_seconds: float | None = None,
    reason: str | None = None,
    **filters: Unpack[TaskFilters],
) -> ApiCall[ActionSeen]:
    """Let the service act on the tasks of *queues* that match the filters, or on *all*.

    The action runs in the background; ``get_action`` shows its progress.  *to_queue* is the target
    of a move.  ``undo`` can restore deleted tasks within *undo_in_seconds*, by the answer's
    ``undos``.
    Raises NotFound for a missing queue, and InvalidRequest naming the field.
    """
    fields = without_none(to_queue=to_queue, undo_in_seconds=undo_in_seconds, reason=reason)
    body = {"action": action, "queues": list(queues), "filter": filter_body(filters, all=all)}
    return posts(path_of("actions"), reads(ActionSeen), body | fields)


def list_actions(*, queue: str | None = None, query: str | None = None) -> PagedCall[ActionSeen]:
    """Yield the actions of the last 30 days, or those on *queue*, the latest first.

    *query* filters them, in the language of the console's search boxes: ``status:running``.
    Raises InvalidRequest with the place of an error in *query*.
    """
    params = params_of(queue=queue, query=query, limit=limits.LIST_PAGE)
    return lists(path_of("actions"), Actions, lambda page: page.actions, params)


def get_action(id: str) -> ApiCall[ActionSeen]:
    """Return an action and its progress.  Raises NotFound."""
    return gets(ActionSeen, "actions", id)


def pause_action(id: str) -> ApiCall[ActionSeen]:
    """Pause an action.  Raises NotFound, and Finished if it has ended."""
    return posts(path_of("actions", id, "pause"), reads(ActionSeen))


def resume_action(id: str) -> ApiCall[ActionSeen]:
    """Resume a paused action.  Raises as ``pause_action``."""
    return posts(path_of("actions", id, "resume"), reads(ActionSeen))


def cancel_action(id: str) -> ApiCall[ActionSeen]:
    """Cancel an action; changed tasks stay changed.  Raises as ``pause_action``."""
    return posts(path_of("actions", id, "cancel"), reads(ActionSeen))


# ------------------------------------------------------------------------------ filters

_STATE_GROUPS: Final = ("pending", "running", "failed")


def _states(given: str | Sequence[str]) -> str:
    """Return states in the API's spelling, whatever case was given."""
    words = given.split(",") if isinstance(given, str) else given
    return ",".join(
        word.lower() if word.lower() in _STATE_GROUPS else word.upper() for word in words
    )


def _filter_params(**filters: Unpack[TaskFilters]) -> dict[str, str]:
    given = {name: value for name, value in filters.items() if value is not None}
    tags: Any = given.pop("tags", {})
    state: Any = given.pop("state", None)
    named = params_of(state=None if state is None else _states(state), **given)
    return named | {f"tag.{name}": value for name, value in tags.items()}


def filter_body(filters: Mapping[str, Any], *, all: bool = False) -> dict[str, Any]:
    """Return *filters* as request bodies have them; *all* is the filter of every task.

    Raises InvalidRequest unless there is either *all* or a filter that is not None.
    """
    body: dict[str, Any] = {}
    for name, value in filters.items():
        if value is None:
            continue
        if name == "state":
            body[name] = _states(value)
        else:
            is_instant = isinstance(value, datetime)
            body[name] = instant_text(value, field=name) if is_instant else value
    if filters and not body:
        raise InvalidRequest.of("filter", "must not be None in every field")
    if all is bool(body):
        message = "is missing: name ids or filters, or say all=True for every task of the queue"
        raise InvalidRequest.of("filter", "and all exclude each other" if all else message)
    return body
