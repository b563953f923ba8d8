"""Headers that every answer has: of the API, of the console, of the gateway before them."""

from collections.abc import Mapping
from typing import Final

ALWAYS: Final[Mapping[str, str]] = {
    "Strict-Transport-Security": "max-age=31536000",  # browsers heed it over TLS alone
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
