"""Actions on many tasks that the service runs, and the audit of changes by operators."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, model_validator

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.operate import BulkAction
from headrace.http.fields import (
    Examples,
    Instant,
    Name,
    Reason,
    RequestBody,
    UndoFor,
    contradiction,
    example,
)
from headrace.http.parameters import Cursor, FilterBody, Limit, ListQueryText, asked, keys_of
from headrace.http.queue_bodies import EmptyBody
from headrace.http.routing import Alias, Routes
from headrace.ops.search.list_queries import ACTIONS, AUDIT
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.ops.shared.paging import Found
from headrace.runtime.wiring import current_service
from headrace.wire import actions as action_wire
from headrace.wire import service as service_wire
from headrace.wire.base import LEFT_OUT, instant, instant_text

if TYPE_CHECKING:
    from headrace.ops.operators.actions import ShownAction

routes: Final = Routes("Actions")

ActionInPath: TypeAlias = Annotated[str, Field(description="The id of the action.")]


class ActionBody(RequestBody):
    """An action, and the tasks that it is for."""

    action: Literal["delete", "restart", "run", "move", "cancel"]
    queues: Annotated[list[Name], Field(min_length=1, max_length=limits.ACTION_QUEUES)]
    filter: FilterBody = Field(
        description="Tasks that match all conditions; `{}` is every task that the action can take."
    )
    to_queue: Name | None = Field(default=None, description="The queue that tasks are moved to.")
    undo_in_seconds: UndoFor = 0
    reason: Reason | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> "ActionBody":
        if (self.action == "move") != (self.to_queue is not None):
            raise contradiction("is needed with move, and has no meaning otherwise", "to_queue")
        if self.undo_in_seconds and self.action != "delete":
            raise contradiction("has a meaning with delete only", "undo_in_seconds")
        if len(set(self.queues)) < len(self.queues):
            raise contradiction("must name each queue once", "queues")
        return self


BEGIN: Final[Examples] = {
    "restart": example(
        "All dead tasks of two queues whose last error was a timeout",
        {
            "action": "restart",
            "queues": ["mail", "sms"],
            "filter": {"state": "DEAD", "error": "timeout"},
            "reason": "the provider is back",
        },
    ),
    "delete": example(
        "All dead tasks, which an undo can restore for a day",
        {
            "action": "delete",
            "queues": ["mail"],
            "filter": {"state": "DEAD"},
            "undo_in_seconds": 86400,
        },
    ),
}


# ------------------------------------------------------------------------------------------ answers


def action_answer(run: "ShownAction") -> action_wire.ActionSeen:
    """Return the answer about an action."""
    return action_wire.ActionSeen.of(
        run,
        filter=filter_shown(run.where.fields()),
        queues=list(run.queues),
        matched=run.total,
        done=run.at,
        left=dict(run.left),
        undos=dict(run.undos),
        actor=run.by,
        actor_id=run.by_id,
        ended_at=instant(run.ended_at),
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add("POST", "/v1/actions", Permission.OPERATE, status=202, examples=BEGIN)
def begin_action(body: ActionBody) -> action_wire.ActionSeen:
    """Start an action on many tasks.

    The service first finds the tasks, then acts on exactly these: not on later tasks, and not on
    tasks that changed after it found them. It continues when the client disconnects. `GET
    /v1/actions/{id}` shows the progress for 30 days, and the audit gets one entry. The key must be
    allowed to operate all of the queues.
    """
    run = current_service().actions.begin_all(
        BulkAction(body.action),
        body.queues,
        body.filter.task_filter(),
        to_queue=body.to_queue,
        undo_in_seconds=int(body.undo_in_seconds),
        reason=body.reason or "",
    )
    return action_answer(run)


@routes.add("GET", "/v1/actions", Permission.OPERATE, description=keys_of(ACTIONS))
def list_actions(
    queue: Annotated[
        str | None, Field(max_length=128, description="Only actions on this queue.")
    ] = None,
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> action_wire.Actions:
    """List actions on many tasks, newest first.

    Shows actions whose queues are all queues of the key.
    """
    page = current_service().actions.list(
        queue=queue,
        where=asked(ACTIONS, query),
        limit=limit,
        cursor=cursor,
    )
    shown = [action_answer(run) for run in page.shown]
    return action_wire.Actions(actions=shown, cursor=page.cursor)


@routes.add("GET", "/v1/actions/{id}", Permission.OPERATE)
def get_action(id: ActionInPath) -> action_wire.ActionSeen:
    """Show the progress of an action."""
    return action_answer(current_service().actions.get(id))


@routes.add("POST", "/v1/actions/{id}/pause", Permission.OPERATE)
def pause_action(id: ActionInPath, _body: EmptyBody = None) -> action_wire.ActionSeen:
    """Pause an action.

    Up to 250 tasks that are being processed are completed first. The action can be resumed within 7
    days of its start. 409 `finished`: the action has ended or was cancelled.
    """
    return action_answer(current_service().actions.pause(id))


@routes.add("POST", "/v1/actions/{id}/resume", Permission.OPERATE)
def resume_action(id: ActionInPath, _body: EmptyBody = None) -> action_wire.ActionSeen:
    """Resume an action.

    409 `finished`: the action has ended or was cancelled.
    """
    return action_answer(current_service().actions.resume(id))


@routes.add("POST", "/v1/actions/{id}/cancel", Permission.OPERATE)
def cancel_action(id: ActionInPath, _body: EmptyBody = None) -> action_wire.ActionSeen:
    """Cancel an action.

    Tasks that are already processed stay as they are, and up to 250 tasks that are being processed
    are completed. Safe to repeat. 409 `finished`: the action has ended.
    """
    return action_answer(current_service().actions.cancel(id))


# -------------------------------------------------------------------------------------------- audit

audit_routes: Final = Routes("Audit")


# ------------------------------------------------------------------------------------------ answers


def audit_answer(page: Found[AuditRecord]) -> service_wire.AuditEntries:
    """Return a page of the audit."""
    return service_wire.AuditEntries(
        entries=[
            service_wire.AuditEntry.of(
                entry,
                filter=None if entry.filter is None else filter_shown(entry.filter),
                reason=entry.reason or LEFT_OUT,
                before=entry.before or LEFT_OUT,
                after=entry.after or LEFT_OUT,
                run=entry.run or LEFT_OUT,
            )
            for entry in page.shown
        ],
        cursor=page.cursor,
    )


def filter_shown(where: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored filter with its instants in the format of all answers."""
    return {
        name: instant_text(datetime.fromisoformat(value)) if name in _FILTER_INSTANTS else value
        for name, value in where.items()
    }


_FILTER_INSTANTS: Final = ("scheduled_after", "scheduled_before", "expires_at")


# ------------------------------------------------------------------------------------------- routes


@audit_routes.add("GET", "/v1/audit", Permission.OPERATE, description=keys_of(AUDIT))
def list_audit(
    queue: Annotated[
        str | None, Field(max_length=128, description="Only changes in this queue.")
    ] = None,
    actor: Annotated[
        str | None, Field(max_length=256, description="The name of a key, or its id.")
    ] = None,
    action: Annotated[
        str | None, Field(max_length=64, description="For example `restart`.")
    ] = None,
    since: Annotated[
        Instant | None, Alias("from"), Field(description="Only entries from this time on.")
    ] = None,
    before: Annotated[
        Instant | None, Alias("to"), Field(description="Only entries before this time.")
    ] = None,
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> service_wire.AuditEntries:
    """Show the changes that operators made.

    Newest first. Entries are kept for 90 days. An entry is written before the first task is changed
    and completed after the last one. An entry without `changed` belongs to a change that still runs
    or was interrupted.
    """
    where = AuditFilter(queue, actor, action, since, before, asked(AUDIT, query))
    page = current_service().audit.list(where, limit=limit, cursor=cursor)
    return audit_answer(page)
