"""The service itself: whether it is well, and what it can do.  No key is needed for this."""

from functools import cache
from typing import Any, Final

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response

from headrace import __version__
from headrace.http.request import stage_path
from headrace.http.routing import JSON, Answered, NounRouter, answers, json_answer
from headrace.runtime.wiring import use_cases
from headrace.wire.base import instant, to_json
from headrace.wire.service import Health

router: Final = NounRouter("Service")
_OPEN: Final[dict[str, Any]] = {"security": []}


@router.get(
    "/v1/health",
    summary="Tell whether the service and its tables answer",
    operation_id="health",
    responses=answers(200, "All is well.", "Health"),
    openapi_extensions=_OPEN,
)
def health() -> Answered:
    """Answer when the table does."""
    use = use_cases()
    use.queues.list(limit=1)
    return json_answer(Health(status="ok", version=__version__, now=instant(use.now())))


@router.get(
    "/v1/openapi.json",
    summary="This API as an OpenAPI document",
    operation_id="openapi",
    responses={200: {"description": "The document.", "content": {"application/json": {}}}},
    openapi_extensions=_OPEN,
)
def document() -> Answered:
    """Show the OpenAPI document."""
    # A cold start that handles tasks does without these modules: they take 90 ms to import.
    from headrace.http import openapi  # noqa: PLC0415

    base = stage_path(router.current_event.raw_event)
    made = openapi.served_at(openapi.document(router.api_resolver), base)
    return Response(200, JSON, to_json(made))


@router.get(
    "/v1/docs",
    summary="This API as a page to read",
    operation_id="docs",
    responses={200: {"description": "The page.", "content": {"text/html": {}}}},
    openapi_extensions=_OPEN,
)
def docs() -> Answered:
    """Show the OpenAPI document as a page."""
    from headrace.http import docs_page  # noqa: PLC0415  as above

    headers = {"Content-Security-Policy": docs_page.POLICY}
    return Response(200, "text/html; charset=utf-8", _page(router.api_resolver), headers)


@cache
def _page(resolver: APIGatewayRestResolver) -> str:
    """Return the page of the routes of *resolver*, which stay as they are."""
    from headrace.http import docs_page, openapi  # noqa: PLC0415  as above

    return docs_page.render(openapi.document(resolver))
