"""The audit: who changed what by hand."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field

from headrace.domain.access import Permission
from headrace.http.fields import Instant
from headrace.http.parameters import Cursor, Limit, ListQueryText, asked, keys_of
from headrace.http.permissions import principal
from headrace.http.routing import Alias, Routes
from headrace.ops.operators import visibility
from headrace.ops.operators.list_queries import AUDIT
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.ops.shared.paging import Found
from headrace.runtime.wiring import current_service
from headrace.wire import service as service_wire
from headrace.wire.base import LEFT_OUT, instant_text

routes: Final = Routes("Audit")


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


@routes.add(
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
