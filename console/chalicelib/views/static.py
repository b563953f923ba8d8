"""Styles, script and icon: kept by browsers for a year, because a change changes their names."""

from typing import Final

from console.chalicelib import urls
from console.chalicelib.answer import ConsoleResponse
from console.chalicelib.assets import by_fingerprint
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Reply, Routes
from headrace.domain.errors import NotFound

routes: Final = Routes()
_KEPT: Final = "public, max-age=31536000, immutable"


@routes.get(urls.STATIC, None)
def serve(context: RequestContext) -> Reply:
    """Serve a file, or say that the one the browser has is right."""
    asset = by_fingerprint().get(context.request.names["name"])
    if asset is None:
        raise NotFound("there is no such file")
    headers = {"Cache-Control": _KEPT, "ETag": asset.etag}
    if asset.etag in context.request.headers.get("if-none-match", ""):
        return ConsoleResponse(status=304, content_type=asset.content_type, headers=headers)
    return ConsoleResponse(asset.text, content_type=asset.content_type, headers=headers)


@routes.get(urls.ELSEWHERE, None)
def nothing(context: RequestContext) -> Reply:
    """Say that there is no such page."""
    raise NotFound(f"there is no page at {context.request.target[:200]}")
