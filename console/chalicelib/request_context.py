"""The context of a request: the request, who makes it, and the use cases it may ask.

Also whether the request comes from our own pages, and several looks at the table at once.

Pages ask ``allows`` what to draw; views ask again, through ``require``, before they do anything.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from headrace.domain.access import Permission, Principal, as_seen_by
from headrace.domain.errors import Forbidden, Unauthenticated
from headrace.domain.task import Task
from headrace.runtime.service import Service
from headrace.store.records.keys import Session

from .request import ConsoleRequest
from .session import CookieSigning

TOKEN: Final = "token"  # noqa: S105  the name of a field
ONCE: Final = "once"
"""The field of a form that may be sent once: a random name for it."""

_ONCE_LENGTH: Final = 32
BACK: Final = "back"
"""The field, or the part of an address, that names the list to go back to."""

_OURS: Final = ("same-origin", "none")  # none: typed or reloaded by a person
_AT_ONCE: Final = 8  # what a page waits for is the network, not the work

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The argument of every view; without ``principal`` and ``session`` nobody is signed in."""

    request: ConsoleRequest
    use: Service
    signing: CookieSigning
    now: datetime
    principal: Principal | None = None
    session: Session | None = field(default=None, repr=False)

    @property
    def by(self) -> Principal:
        """Who is signed in.  Raises Unauthenticated for nobody."""
        if self.principal is None:
            raise Unauthenticated("sign in first")
        return self.principal

    def allows(self, permission: Permission, queue: str | None = None) -> bool:
        """Tell whether the visitor is permitted to: decides what to draw."""
        return self.by.may(permission, queue)

    def require(self, permission: Permission, *queues: str) -> None:
        """Raise Forbidden unless the visitor is permitted to, for each of *queues*."""
        self.by.require(permission, *queues)

    def task(self, task_id: str | None = None) -> Task:
        """Return the task of this id, else of the path, as the visitor may see it."""
        return as_seen_by(self.by, self.use.tasks.get(task_id or self.request.names["id"]))

    def url(self, route: str, /, query: Mapping[str, object] | None = None, **names: str) -> str:
        """Return an address of ours as this visitor must see it."""
        return self.request.urls.to(route, query, **names)

    @property
    def cursor(self) -> str | None:
        """Where the page of a list begins that the address asks for; None for the first."""
        return self.request.param("cursor") or None

    def first_time(self) -> bool:
        """Tell whether the form, which holds `once`, is sent for the first time; it is used then.

        A form without that field was not made by a page of ours: it counts as sent before.
        """
        form = self.request.given(ONCE)
        if self.session is None or not form.isalnum() or len(form) != _ONCE_LENGTH:
            return False
        return self.use.sessions.use_form(self.session, form)

    @property
    def here(self) -> str:
        """The address of the page that is shown, with its filter, order and cursor."""
        return self.request.target

    @property
    def back(self) -> str:
        """The page to go back to, as the form or the address names it; empty for none."""
        given = self.request.given(BACK) or self.request.param(BACK)
        return given if given and self.request.urls.safe_next(given) == given else ""

    @property
    def onward(self) -> Mapping[str, str]:
        """The part of an address that leads back to this list, where it is filtered or paged."""
        return {BACK: self.here} if "?" in self.here else {}

    def place(self, url: str) -> str:
        """Return the page to go back to where it is that list, else *url* as it is."""
        return self.back if self.back.partition("?")[0] == url else url

    @property
    def queue(self) -> str:
        """The queue in the path."""
        return self.request.names["queue"]


def check_form(request: ConsoleRequest, signing: CookieSigning, nonce: str) -> None:
    """Raise Forbidden unless the form comes from a page that we gave to this browser."""
    if elsewhere(request):
        raise Forbidden("this form was sent by another site")
    if not signing.is_form_token(request.given(TOKEN), nonce):
        raise Forbidden("this form is too old, or was not made for you: open its page again")


def elsewhere(request: ConsoleRequest) -> bool:
    """Tell whether the browser says that another site made this request."""
    site = request.headers.get("sec-fetch-site")
    return site is not None and site not in _OURS


def from_elsewhere(request: ConsoleRequest) -> bool:
    """Tell whether a link on another site led here.

    Browsers send a strict cookie only along with requests from our own pages.
    """
    headers = request.headers
    return (
        headers.get("sec-fetch-site") in ("cross-site", "same-site")
        and headers.get("sec-fetch-mode") == "navigate"
    )


def each(look: Callable[[_In], _Out], items: Iterable[_In]) -> tuple[_Out, ...]:
    """Return the result of *look* for each of *items*, in order; the first fault is raised.

    Each look is made on behalf of the same key and measured by the same meter.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looks = [pool.submit(copy_context().run, look, item) for item in items]
        return tuple(one.result() for one in looks)
