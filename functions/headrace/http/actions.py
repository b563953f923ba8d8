"""Actions on many tasks that the service carries out, and the audit of what was changed by hand."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, LiteralString, TypeAlias
from urllib.parse import unquote

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
from headrace.http.request import principal
from headrace.http.routing import Alias, Routes
from headrace.ops.operators import visibility
from headrace.ops.operators.list_queries import ACTIONS, AUDIT
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.ops.shared.paging import Found
from headrace.runtime.wiring import current_service
from headrace.wire import actions as action_wire
from headrace.wire import service as service_wire
from headrace.wire.base import LEFT_OUT, instant, instant_text

if TYPE_CHECKING:
    from headrace.ops.operators.actions import ShownRun

routes: Final = Routes("Actions")

ActionInPath: TypeAlias = Annotated[str, Field(description="The id of the action.")]
_SHOWN: Final = "How it stands."


class ActionBody(RequestBody):
    """What is to be done to which tasks."""

    action: Literal["delete", "restart", "run", "move", "cancel"]
    queues: Annotated[list[Name], Field(min_length=1, max_length=limits.ACTION_QUEUES)]
    filter: FilterBody = Field(
        description="Those of which all holds; `{}` is every task that the action takes."
    )
    to_queue: Name | None = Field(default=None, description="Where a move goes: another queue.")
    undo_in_seconds: UndoFor = 0
    reason: Reason | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> "ActionBody":
        if (self.action == "move") != (self.to_queue is not None):
            needed: LiteralString = "is needed with move, and has no meaning otherwise"
            raise contradiction(("to_queue", needed))
        if self.undo_in_seconds and self.action != "delete":
            only: LiteralString = "has a meaning with delete only"
            raise contradiction(("undo_in_seconds", only))
        if len(set(self.queues)) < len(self.queues):
            once: LiteralString = "must name each queue once"
            raise contradiction(("queues", once))
        return self


BEGIN: Final[Examples] = {
    "restart": example(
        "All dead ones of two queues whose latest error was a timeout",
        {
            "action": "restart",
            "queues": ["mail", "sms"],
            "filter": {"state": "DEAD", "error": "timeout"},
            "reason": "the provider is back",
        },
    ),
    "delete": example(
        "All dead ones, for a day not for good",
        {
            "action": "delete",
            "queues": ["mail"],
            "filter": {"state": "DEAD"},
            "undo_in_seconds": 86400,
        },
    ),
}


# ------------------------------------------------------------------------------------------ answers


def action_answer(run: "ShownRun") -> action_wire.ActionSeen:
    """An action."""
    return action_wire.ActionSeen.of(
        run,
        filter=filter_shown(run.where.fields()),
        queues=list(run.queues),
        matched=run.total,
        done=run.dealt_with,
        left=dict(run.left),
        undos=dict(run.undos),
        actor=run.by,
        actor_id=run.by_id,
        ended_at=instant(run.ended_at),
    )


# ------------------------------------------------------------------------------------------- routes


@routes.add(
    "POST", "/v1/actions", Permission.OPERATE, status=202, answer="It is begun.", examples=BEGIN
)
def begin_action(body: ActionBody) -> action_wire.ActionSeen:
    """Begin an action on many tasks.

    The service looks for the tasks, and then acts on exactly those: none that came later, and
    none that has changed since it was seen. It goes on whoever is away; `GET /v1/actions/{id}`
    says how far it is, kept for 30 days, and the audit has one entry. Takes a key that may
    operate all of its queues.
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


@routes.add(
    "GET",
    "/v1/actions",
    Permission.OPERATE,
    answer="A page of actions.",
    description=keys_of(ACTIONS),
)
def list_actions(
    queue: Annotated[
        str | None, Field(max_length=128, description="That touch this queue.")
    ] = None,
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> action_wire.Actions:
    """List actions on many tasks, the latest first.

    Those of which all queues are the key's.
    """
    page = visibility.actions(
        current_service().actions,
        principal(),
        queue=queue,
        where=asked(ACTIONS, query),
        limit=limit,
        cursor=cursor,
    )
    shown = [action_answer(run) for run in page.shown]
    return action_wire.Actions(actions=shown, cursor=page.cursor)


@routes.add("GET", "/v1/actions/{id}", Permission.OPERATE, answer=_SHOWN)
def get_action(id: ActionInPath) -> action_wire.ActionSeen:
    """Show how far an action is."""
    run = visibility.action(current_service().actions, principal(), unquote(id))
    return action_answer(run)


@routes.add("POST", "/v1/actions/{id}/pause", Permission.OPERATE, answer=_SHOWN)
def pause_action(id: ActionInPath, _body: EmptyBody = None) -> action_wire.ActionSeen:
    """Let an action rest.

    What it is at, up to 250 tasks, is finished. It can be resumed within 7 days of its
    beginning. 409 `finished`: it is over, or cancelled.
    """
    return _turned(id, "pause")


@routes.add("POST", "/v1/actions/{id}/resume", Permission.OPERATE, answer=_SHOWN)
def resume_action(id: ActionInPath, _body: EmptyBody = None) -> action_wire.ActionSeen:
    """Let an action go on.

    409 `finished`: it is over, or cancelled.
    """
    return _turned(id, "resume")


@routes.add("POST", "/v1/actions/{id}/cancel", Permission.OPERATE, answer=_SHOWN)
def cancel_action(id: ActionInPath, _body: EmptyBody = None) -> action_wire.ActionSeen:
    """End an action where it is.

    What is done stays done, and what it is at, up to 250 tasks, is finished. Safe to repeat.
    409 `finished`: it is over otherwise.
    """
    return _turned(id, "cancel")


def _turned(path: str, turn: Literal["pause", "resume", "cancel"]) -> action_wire.ActionSeen:
    run = visibility.turn_action(current_service().actions, principal(), unquote(path), turn)
    return action_answer(run)


# -------------------------------------------------------------------------------------------- audit

audit_routes: Final = Routes("Audit")


# ------------------------------------------------------------------------------------------ answers


def audit_answer(page: Found[AuditRecord]) -> service_wire.AuditEntries:
    """A page of what was changed by hand."""
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
    """A filter as kept, its instants as every answer writes them."""
    return {
        name: instant_text(datetime.fromisoformat(value)) if name in _FILTER_INSTANTS else value
        for name, value in where.items()
    }


_FILTER_INSTANTS: Final = ("scheduled_after", "scheduled_before", "expires_at")


# ------------------------------------------------------------------------------------------- routes


@audit_routes.add(
    "GET", "/v1/audit", Permission.OPERATE, answer="A page of entries.", description=keys_of(AUDIT)
)
def list_audit(
    queue: Annotated[str | None, Field(max_length=128, description="Exactly this one.")] = None,
    actor: Annotated[
        str | None, Field(max_length=256, description="The name of a key, or its id.")
    ] = None,
    action: Annotated[str | None, Field(max_length=64, description="As in `restart`.")] = None,
    since: Annotated[Instant | None, Alias("from"), Field(description="Not earlier.")] = None,
    before: Annotated[Instant | None, Alias("to"), Field(description="Earlier than this.")] = None,
    query: ListQueryText = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> service_wire.AuditEntries:
    """Show what was changed by hand.

    Newest first, kept for 90 days. An entry is written before the first task is touched and
    completed after the last; one without `changed` goes on, or broke off.
    """
    where = AuditFilter(queue, actor, action, since, before).narrowed(asked(AUDIT, query))
    page = visibility.audit(current_service().audit, principal(), where, limit=limit, cursor=cursor)
    return audit_answer(page)
