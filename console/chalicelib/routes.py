"""Routes: which view answers what, and what it needs of a key."""

from collections.abc import Callable
from dataclasses import dataclass, field

from console.chalicelib.answer import ConsoleResponse
from console.chalicelib.pages import Flash, Page
from console.chalicelib.request_context import RequestContext
from headrace.domain.access import Permission


@dataclass(frozen=True, slots=True)
class Redirect:
    """Go and look there, by GET; ``flash`` says what was done."""

    url: str
    flash: Flash | None = None
    cookies: tuple[str, ...] = ()


Reply = Page | Redirect | ConsoleResponse
View = Callable[[RequestContext], Reply]


@dataclass(frozen=True, slots=True)
class ConsoleRoute:
    """One route of the template.

    ``needs`` is asked of the key before the view runs, for the queue in the path if there is one;
    None is a route that anybody may take, signed in or not.
    """

    method: str
    path: str
    view: View
    needs: Permission | None


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of one module of views."""

    found: list[ConsoleRoute] = field(default_factory=list)

    def get(self, path: str, needs: Permission | None) -> Callable[[View], View]:
        """Make the function below the view of GET *path*."""
        return self._add("GET", path, needs)

    def post(self, path: str, needs: Permission | None) -> Callable[[View], View]:
        """Make the function below the view of POST *path*: a form with its token."""
        return self._add("POST", path, needs)

    def _add(self, method: str, path: str, needs: Permission | None) -> Callable[[View], View]:
        def register(view: View) -> View:
            self.found.append(ConsoleRoute(method, path, view, needs))
            return view

        return register
