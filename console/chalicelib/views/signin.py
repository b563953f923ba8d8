"""Signing in and out, with a key."""

from dataclasses import replace
from typing import Final

from console.chalicelib import urls
from console.chalicelib.answer import cookie
from console.chalicelib.pages.frame import Flash
from console.chalicelib.pages.parts import Field, Hidden
from console.chalicelib.pages.signin import SignInPage
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.session import DOOR, LASTS, SESSION
from console.chalicelib.visit import Visit
from headrace.domain.access import Permission
from headrace.domain.errors import RateLimited, Unauthenticated

routes: Final = Routes()
_LONGEST: Final = 256  # letters of a key


@routes.get(urls.SIGN_IN, None)
def show(visit: Visit) -> Reply:
    """Ask for a key."""
    if visit.principal is not None:
        return Redirect(visit.request.urls.safe_next(visit.request.asked("next")))
    return _page(visit, visit.request.asked("next"))


@routes.post(urls.SIGN_IN, None)
def sign_in(visit: Visit) -> Reply:
    """Take a key and open a session, or say why not."""
    wanted = visit.request.given("next")
    presented = visit.request.given("key").strip()
    if not presented:
        return _page(visit, wanted, "is needed", status=400)
    try:
        principal = visit.use.attempts.verify(presented[:_LONGEST], source=visit.request.source)
    except Unauthenticated as error:
        return _page(visit, wanted, _sentence(error.detail), status=error.status)
    except RateLimited as error:
        return _page(visit, wanted, _sentence(error.detail), status=error.status)
    _, value = visit.signing.open(principal.key_id, visit.now)
    return Redirect(
        visit.request.urls.safe_next(wanted),
        cookies=(
            cookie(visit.request, SESSION, value, seconds=int(LASTS.total_seconds())),
            cookie(visit.request, DOOR, "", seconds=0),
        ),
    )


@routes.post(urls.SIGN_OUT, Permission.READ)
def sign_out(visit: Visit) -> Reply:
    """End the session in this browser."""
    return Redirect(
        visit.url(urls.SIGN_IN),
        Flash("done", "You are signed out."),
        cookies=(cookie(visit.request, SESSION, "", seconds=0),),
    )


def _page(visit: Visit, wanted: str, error: str = "", *, status: int = 200) -> SignInPage:
    page = SignInPage(
        title="Sign in",
        action=visit.url(urls.SIGN_IN),
        field=Field("key", "API key", kind="password", required=True, error=error, width="l"),
        hidden=(Hidden("next", visit.request.urls.safe_next(wanted)),),
    )
    return replace(page, http_status=status)


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}."
