"""What goes back to the browser, with the headers that every answer has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from console.chalicelib.request import ConsoleRequest
from headrace.runtime.headers import ALWAYS

HTML: Final = "text/html; charset=utf-8"

SECURITY: Final[Mapping[str, str]] = {
    **ALWAYS,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class ConsoleResponse:
    """An answer; ``cookies`` are whole lines for Set-Cookie."""

    body: str = ""
    status: int = 200
    content_type: str = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()

    def all_headers(self) -> dict[str, Any]:
        """Return every header, security's included; nothing is kept unless it says so."""
        return {
            "Content-Type": self.content_type,
            **SECURITY,
            **self.headers,
            **({"Set-Cookie": list(self.cookies)} if self.cookies else {}),
        }


def cookie(request: ConsoleRequest, name: str, value: str, *, seconds: int) -> str:
    """Return a cookie for our pages only; 0 *seconds* takes it away.  *value* has no spaces."""
    secure = "; Secure" if request.secure else ""
    return (
        f"{name}={value}; Path={request.urls.root}; Max-Age={seconds}; "
        f"HttpOnly; SameSite=Strict{secure}"
    )
