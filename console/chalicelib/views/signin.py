"""Signing in and out, with a key."""

import logging
from dataclasses import replace
from typing import Final

from console.chalicelib import urls
from console.chalicelib.answer import cookie
from console.chalicelib.pages.frame import Flash
from console.chalicelib.pages.parts import Field, Hidden
from console.chalicelib.pages.signin import SignInPage
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.session import DOOR, SESSION
from console.chalicelib.visit import Visit
from headrace.domain.access import Permission
from headrace.domain.errors import RateLimited, Unauthenticated
from headrace.ops.key_body import id_in
from headrace.ops.session_body import LASTS

routes: Final = Routes()
_LONGEST: Final = 256  # letters of a key
_log: Final = logging.getLogger("headrace.console")


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
    source, request_id = visit.request.source, visit.request.request_id
    try:
        session = visit.use.sessions.sign_in(
            presented[:_LONGEST], source=source, request_id=request_id
        )
    except (Unauthenticated, RateLimited) as error:
        claimed = id_in(presented[:_LONGEST]) or "none"
        _log.warning(
            "sign-in refused from %s, key %s: %s, request %s",
            source,
            claimed,
            error.code,
            request_id,
        )
        return _page(visit, wanted, _sentence(error.detail), status=error.status)
    _log.info("signed in from %s, key %s, request %s", source, session.key_id, request_id)
    return Redirect(
        visit.request.urls.safe_next(wanted),
        cookies=(
            cookie(
                visit.request,
                SESSION,
                visit.signing.ticket(session),
                seconds=int(LASTS.total_seconds()),
            ),
            cookie(visit.request, DOOR, "", seconds=0),
        ),
    )


@routes.post(urls.SIGN_OUT, Permission.READ)
def sign_out(visit: Visit) -> Reply:
    """End the session, here and for whoever has a copy of its cookie."""
    if visit.session is not None:
        visit.use.sessions.sign_out(visit.session)
        request = visit.request
        _log.info(
            "signed out from %s, key %s, request %s",
            request.source,
            visit.session.key_id,
            request.request_id,
        )
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
