"""The audit: who changed what by hand."""

from typing import Annotated, Final

from aws_lambda_powertools.event_handler.openapi.params import Query

from headrace.http import views
from headrace.http.fields import Instant
from headrace.http.permissions import principal
from headrace.http.routing import Answered, Cursor, Limit, answers, json_answer, new_router
from headrace.ops.operators import visibility
from headrace.ops.shared.audit import AuditFilter
from headrace.runtime.wiring import use_cases

router: Final = new_router()


@router.get(
    "/v1/audit",
    summary="Show what was changed by hand",
    description=(
        "Newest first, kept for 90 days. An entry is written before the first task is touched and "
        "completed after the last; one without `changed` goes on, or broke off."
    ),
    tags=["Audit"],
    operation_id="list_audit",
    responses=answers(200, "A page of entries.", "AuditEntries"),
)
def list_audit(
    queue: Annotated[str | None, Query(max_length=128, description="Exactly this one.")] = None,
    actor: Annotated[
        str | None, Query(max_length=256, description="The name of a key, or its id.")
    ] = None,
    action: Annotated[str | None, Query(max_length=64, description="As in `restart`.")] = None,
    since: Annotated[Instant | None, Query(alias="from", description="Not earlier.")] = None,
    before: Annotated[Instant | None, Query(alias="to", description="Earlier than this.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Answered:
    """Show the audit."""
    where = AuditFilter(queue, actor, action, since, before)
    page = visibility.audit(use_cases().audit, principal(), where, limit=limit, cursor=cursor)
    return json_answer(views.audit(page))
