"""Pages: a template with the values that it shows, and the frame around it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain.errors import HeadraceError

from . import formatting
from .parts import Link

_FAILED: Final = 500
_NAMES: Final = {
    400: "That cannot be done",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    409: "It has changed",
    413: "Too large",
    429: "Too many attempts",
    500: "Internal error",
    503: "Service unavailable",
}


class Page:
    """A page of *template*, with what it shows by name: answers of use cases as they are."""

    def __init__(
        self,
        template: str,
        *,
        title: str,
        crumbs: tuple[Link, ...] = (),
        http_status: int = 200,
        **shown: object,
    ) -> None:
        self.template, self.title, self.http_status = template, title, http_status
        self.__dict__.update(shown, crumbs=crumbs)


@dataclass(frozen=True, slots=True)
class Flash:
    """A message about the last action; ``kind`` is done or failed, ``undo`` what can undo it."""

    kind: str
    text: str
    undo: str = ""


@dataclass(frozen=True, slots=True)
class Who:
    """The visitor who is signed in."""

    name: str
    role: str
    queues: str
    sign_out: str
    menu: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class PageCost:
    """The cost of a page: DynamoDB's units, and milliseconds."""

    write: float
    read: float
    millis: float


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything around a page.

    ``files`` are the addresses of static files by name.  ``token`` is in every form, and ``undo``
    is the address for the button of a message.  ``here`` is the address of the page, ``back`` the
    list from which the visitor came.
    """

    now: datetime
    environment: str
    home: str
    files: Mapping[str, str]
    token: str = ""
    who: Who | None = None
    nav: tuple[Link, ...] = ()
    search: str = ""
    searched: str = ""
    flash: Flash | None = None
    undo: str = ""
    here: str = ""
    back: str = ""
    units: PageCost | None = None
    foot: tuple[Link, ...] = ()
    request_id: str = ""


def error_page(error: HeadraceError, *, request_id: str, acted: bool, way_on: Link) -> Page:
    """Return the page for *error*, with the id to look for in the logs; *acted*: by an action."""
    not_done = "Nothing was changed."
    if acted and error.status >= _FAILED:
        not_done = "The change may have been made: check before you try again."
    return Page(
        "error.html",
        title=_NAMES.get(error.status, error.title),
        http_status=error.status,
        detail=formatting.sentence(error.detail),
        not_done=not_done,
        fields=tuple(wrong for wrong in error.errors if wrong.message not in error.detail),
        request_id=request_id,
        way_on=way_on,
    )
