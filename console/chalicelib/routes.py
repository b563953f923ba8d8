"""Routes: the view of each path, the permission it needs, and the types of its responses.

Every response has the security headers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from headrace.domain.access import Permission
from headrace.runtime.function import ALWAYS
from headrace.store.records.keys import Session

from .kept_forms import KeptForm
from .pages import Flash, Page
from .request import ConsoleRequest
from .request_context import RequestContext
from .urls import ELSEWHERE

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
    """A response; ``cookies`` are whole lines for Set-Cookie."""

    body: str = ""
    status: int = 200
    content_type: str = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()

    def all_headers(self) -> dict[str, Any]:
        """Return all headers, with those for security; by default the response is not cached."""
        return {
            "Content-Type": self.content_type,
            **SECURITY,
            **self.headers,
            **({"Set-Cookie": list(self.cookies)} if self.cookies else {}),
        }


def cookie(request: ConsoleRequest, name: str, value: str, *, seconds: int) -> str:
    """Return a cookie for the console; 0 *seconds* removes it.  *value* has no spaces."""
    secure = "; Secure" if request.secure else ""
    return (
        f"{name}={value}; Path={request.urls.root}; Max-Age={seconds}; "
        f"HttpOnly; SameSite=Strict{secure}"
    )


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect by GET; ``flash`` is shown on the page that follows."""

    url: str
    flash: Flash | None = None
    cookies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The page after a sign-in that interrupted a form, with the cookies of the *session*."""

    session: Session
    kept: KeptForm
    cookies: tuple[str, ...]


Reply = SignedIn | Page | Redirect | ConsoleResponse
View = Callable[[RequestContext], Reply]
_View = TypeVar("_View", bound=View)


@dataclass(frozen=True, slots=True)
class ConsoleRoute:
    """One route of the template.

    ``needs`` is checked before the view runs, for the queue in the path if it has one.  A route
    with None needs no sign-in.
    """

    method: str
    path: str
    view: View
    needs: Permission | None


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of all views; each module adds its routes."""

    found: list[ConsoleRoute] = field(default_factory=list)

    def get(self, path: str, needs: Permission | None) -> Callable[[_View], _View]:
        """Decorate the view of GET *path*."""
        return self._add("GET", path, needs)

    def post(self, path: str, needs: Permission | None) -> Callable[[_View], _View]:
        """Decorate the view of POST *path*: a form with its token."""
        return self._add("POST", path, needs)

    def find(self, path: str) -> tuple[str, dict[str, str]]:
        """Return the most specific route path that matches *path*, with its path parameters.

        A path without a route gets the page that answers 404.
        """
        parts = [unquote(part) for part in path.strip("/").split("/")]
        paths = sorted({route.path for route in self.found}, key=_parameters)
        for template in paths:
            names = template.strip("/").split("/")
            if len(names) == len(parts) and all(map(_matches, names, parts)):
                given = zip(names, parts, strict=True)
                return template, {name[1:-1]: part for name, part in given if name[0] == "{"}
        return ELSEWHERE, {"path": "/".join(parts[1:])}

    def _add(self, method: str, path: str, needs: Permission | None) -> Callable[[_View], _View]:
        def register(view: _View) -> _View:
            self.found.append(ConsoleRoute(method, path, view, needs))
            return view

        return register


def _parameters(path: str) -> int:
    return path.count("{")


def _matches(name: str, part: str) -> bool:
    """Whether the segment *part* of a request is *name*, the segment of a route."""
    return name == part or (name.startswith("{") and not name.endswith("+}") and part != "")


routes: Final = Routes()
