"""The context of a request: the request, its visitor, and the use cases.

Pages use ``allows`` to decide what to draw; views call ``require`` before they act.
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
"""The field with the random name of a form that may be sent once."""

_ONCE_LENGTH: Final = 32
BACK: Final = "back"
"""The field, or query parameter, with the address of the list to go back to."""

_OURS: Final = ("same-origin", "none")  # none: typed or reloaded by a person
_AT_ONCE: Final = 8  # threads, which wait for the network

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The argument of every view; the sign-in sets ``principal`` and ``session``."""

    request: ConsoleRequest
    use: Service
    signing: CookieSigning
    now: datetime
    principal: Principal | None = None
    session: Session | None = field(default=None, repr=False)

    @property
    def by(self) -> Principal:
        """The visitor.  Raises Unauthenticated without a sign-in."""
        if self.principal is None:
            raise Unauthenticated("sign in first")
        return self.principal

    def allows(self, permission: Permission, queue: str | None = None) -> bool:
        """Return whether the visitor has *permission*, to decide what to draw."""
        return self.by.may(permission, queue)

    def require(self, permission: Permission, *queues: str) -> None:
        """Raise Forbidden unless the visitor has *permission* for each of *queues*."""
        self.by.require(permission, *queues)

    def task(self, task_id: str | None = None) -> Task:
        """Return the task *task_id*, or that of the path, as the visitor may see it."""
        return as_seen_by(self.by, self.use.tasks.get(task_id or self.request.names["id"]))

    def url(self, route: str, /, query: Mapping[str, object] | None = None, **names: str) -> str:
        """Return the address of *route* for this request."""
        return self.request.urls.to(route, query, **names)

    @property
    def cursor(self) -> str | None:
        """The cursor of the requested page of a list; None for the first page."""
        return self.request.param("cursor") or None

    def first_time(self) -> bool:
        """Return whether the form with the field `once` is sent for the first time, and note it.

        A form without the field was not made by one of our pages and counts as sent before.
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
        """The page to go back to, from the form or the address; may be empty."""
        given = self.request.given(BACK) or self.request.param(BACK)
        return given if given and self.request.urls.safe_next(given) == given else ""

    @property
    def onward(self) -> Mapping[str, str]:
        """The query parameter that leads back to this list, if it is filtered or paged."""
        return {BACK: self.here} if "?" in self.here else {}

    def place(self, url: str) -> str:
        """Return the page to go back to if it is the list at *url*, else *url*."""
        return self.back if self.back.partition("?")[0] == url else url

    @property
    def queue(self) -> str:
        """The queue in the path."""
        return self.request.names["queue"]


def check_form(request: ConsoleRequest, signing: CookieSigning, nonce: str) -> None:
    """Raise Forbidden unless the form comes from a page of this browser."""
    if elsewhere(request):
        raise Forbidden("this form was sent by another site")
    if not signing.is_form_token(request.given(TOKEN), nonce):
        raise Forbidden("this form is too old, or was not made for you: open its page again")


def elsewhere(request: ConsoleRequest) -> bool:
    """Return whether another site made this request, by Sec-Fetch-Site."""
    site = request.headers.get("sec-fetch-site")
    return site is not None and site not in _OURS


def from_elsewhere(request: ConsoleRequest) -> bool:
    """Return whether the visitor followed a link on another site.

    Browsers send strict cookies only with requests from our own pages.
    """
    headers = request.headers
    return (
        headers.get("sec-fetch-site") in ("cross-site", "same-site")
        and headers.get("sec-fetch-mode") == "navigate"
    )


def each(look: Callable[[_In], _Out], items: Iterable[_In]) -> tuple[_Out, ...]:
    """Return the result of *look* for each of *items*, in order; raise the first error.

    Each look is made on behalf of the same key and measured by the same meter.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looks = [pool.submit(copy_context().run, look, item) for item in items]
        return tuple(one.result() for one in looks)
