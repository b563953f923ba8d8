"""Styles, script and icon: kept by browsers for a year, because a change changes their names."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from headrace.domain.errors import NotFound

from .. import urls
from ..request_context import RequestContext
from ..routes import ConsoleResponse, Reply, routes

_KEPT: Final = "public, max-age=31536000, immutable"
FOLDER: Final = Path(__file__).parents[1] / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served; ``name`` has the fingerprint in it."""

    name: str
    text: str
    content_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Return every asset by the name of its file; read once a process."""
    return {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}


@cache
def by_fingerprint() -> dict[str, Asset]:
    """Return every asset by its served name."""
    return {asset.name: asset for asset in assets().values()}


def _read(path: Path) -> Asset:
    text = path.read_text(encoding="utf-8")
    print_ = hashlib.sha256(text.encode()).hexdigest()[:12]
    name = f"{path.stem}-{print_}{path.suffix}"
    return Asset(name, text, _TYPES[path.suffix], f'"{print_}"')


@routes.get(urls.STATIC, None)
def serve(context: RequestContext) -> Reply:
    """Serve a file, or 304 for the one that the browser has."""
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
