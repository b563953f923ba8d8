"""Pages that say what went wrong."""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Link
from headrace.domain.errors import FieldError, HeadraceError

_FAILED: Final = 500
_NAMES: Final = {
    400: "That cannot be done",
    401: "Sign in first",
    403: "Not with this key",
    404: "Not here",
    409: "It has changed meanwhile",
    413: "Too large",
    429: "Too many attempts",
    500: "Something broke",
    503: "Not now",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage(Page):
    """What happened, what was not done, and the name by which the logs know it."""

    template: ClassVar[str] = "error.html"
    detail: str
    not_done: str
    fields: tuple[FieldError, ...]
    request_id: str
    way_on: Link

    @classmethod
    def of(cls, error: HeadraceError, *, request_id: str, acted: bool, way_on: Link) -> Self:
        """Return the page for *error*; *acted* when something was to be done."""
        broken = error.status >= _FAILED
        not_done = "Nothing was changed."
        if acted and broken:
            not_done = "It may or may not have been done: look before you try again."
        return cls(
            title=_NAMES.get(error.status, error.title),
            http_status=error.status,
            detail=_sentence(error.detail),
            not_done=not_done,
            fields=tuple(wrong for wrong in error.errors if wrong.message not in error.detail),
            request_id=request_id,
            way_on=way_on,
        )


def _sentence(text: str) -> str:
    shown = text[:1].upper() + text[1:]
    return shown if shown.endswith((".", "?", "!")) else f"{shown}."
