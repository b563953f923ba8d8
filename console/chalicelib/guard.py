"""Whether a request comes from our own pages: asked of every form before anything else."""

from typing import Final

from console.chalicelib.request import ConsoleRequest
from console.chalicelib.session import Signing
from headrace.domain.errors import Forbidden

TOKEN: Final = "token"  # noqa: S105  the name of a field
_OURS: Final = ("same-origin", "none")  # none: typed or reloaded by a person


def check_form(request: ConsoleRequest, signing: Signing, nonce: str) -> None:
    """Raise Forbidden unless a form was sent by a page of ours, to the browser that sends it."""
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
