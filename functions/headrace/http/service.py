"""The service itself: whether it is well, and what it can do.  No key is needed for this."""

from functools import cache
from typing import Any, Final

from headrace import __version__
from headrace.http.request import Reply, this_request
from headrace.http.routing import Answered, Routes
from headrace.runtime.wiring import current_service
from headrace.wire.base import instant, to_json
from headrace.wire.service import Health

routes: Final = Routes("Service")
_OPEN: Final[dict[str, Any]] = {"security": []}


@routes.add("GET", "/v1/health", answer="All is well.", more=_OPEN)
def health() -> Health:
    """Tell whether the service and its tables answer."""
    use = current_service()
    use.queues.list(limit=1)
    return Health(status="ok", version=__version__, now=instant(use.now()))


@routes.add(
    "GET",
    "/v1/openapi.json",
    responses={200: {"description": "The document.", "content": {"application/json": {}}}},
    more=_OPEN,
)
def openapi() -> Answered:
    """This API as an OpenAPI document."""
    # A cold start that handles tasks does without these modules: they take 90 ms to import.
    from headrace.http import app, openapi  # noqa: PLC0415

    made = openapi.served_at(openapi.document(app.TABLE.routes), this_request().base)
    return Reply(to_json(made))


@routes.add(
    "GET",
    "/v1/docs",
    responses={200: {"description": "The page.", "content": {"text/html": {}}}},
    more=_OPEN,
)
def docs() -> Answered:
    """This API as a page to read."""
    from headrace.http import docs_page  # noqa: PLC0415  as above

    headers = {"Content-Security-Policy": docs_page.POLICY}
    return Reply(_page(), headers=headers, content_type="text/html; charset=utf-8")


@cache
def _page() -> str:
    from headrace.http import app, docs_page, openapi  # noqa: PLC0415  as above

    return docs_page.render(openapi.document(app.TABLE.routes))
