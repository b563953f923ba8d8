"""Styles, script and icon, each under a name that changes with what is in it."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "static"
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
