"""Signing in and out, with a key."""

import logging
from http import HTTPStatus
from typing import Final

from headrace.domain.access import Permission, id_in
from headrace.domain.errors import RateLimited, Unauthenticated
from headrace.store.records.keys import LASTS

from .. import formatting, urls
from ..kept_forms import FIELD, read_kept
from ..pages import Flash, Page
from ..parts import Field, Hidden
from ..request_context import RequestContext
from ..routes import Redirect, Reply, SignedIn, cookie, routes
from ..session import DOOR, SESSION

_LONGEST: Final = 256  # letters of a key
_log: Final = logging.getLogger("headrace.console")


@routes.get(urls.SIGN_IN, None)
def show(context: RequestContext) -> Reply:
    """Ask for a key."""
    if context.principal is not None:
        return Redirect(context.request.urls.safe_next(context.request.param("next")))
    return _page(context, context.request.param("next"))


def interrupted(context: RequestContext, kept: str) -> Page:
    """Ask for a key in the place of a form whose session had ended; *kept* is what was typed."""
    note = (
        "Your session has ended, so nothing was done. What you typed is kept: sign in to continue."
    )
    return _page(context, "", status=HTTPStatus.UNAUTHORIZED, note=note, kept=kept)


def needs_https(context: RequestContext) -> Page:
    """Explain why sign-in is impossible over plain http, and what to do."""
    sent = context.request.method == "POST"
    return Page(
        "insecure.html",
        title="Sign in needs https",
        http_status=HTTPStatus.FORBIDDEN if sent else HTTPStatus.OK,
        address=context.request.headers.get("host", ""),
    )


@routes.post(urls.SIGN_IN, None)
def sign_in(context: RequestContext) -> Reply:
    """Take a key and open a session, or say why not."""
    wanted = context.request.given("next")
    presented = context.request.given("key").strip()
    if not presented:
        return _page(context, wanted, "is needed", status=400)
    source, request_id = context.request.source, context.request.request_id
    try:
        session = context.use.sessions.sign_in(
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
        return _page(context, wanted, formatting.sentence(error.detail), status=error.status)
    _log.info("signed in from %s, key %s, request %s", source, session.key_id, request_id)
    ticket, lasts = context.signing.ticket(session), int(LASTS.total_seconds())
    cookies = (
        cookie(context.request, SESSION, ticket, seconds=lasts),
        cookie(context.request, DOOR, "", seconds=0),
    )
    kept = read_kept(context.request.given(FIELD), context.signing)
    if kept is not None:
        return SignedIn(session, kept, cookies)
    return Redirect(context.request.urls.safe_next(wanted), cookies=cookies)


@routes.post(urls.SIGN_OUT, Permission.READ)
def sign_out(context: RequestContext) -> Reply:
    """End the session, also for copies of its cookie."""
    if context.session is not None:
        context.use.sessions.sign_out(context.session)
        request = context.request
        _log.info(
            "signed out from %s, key %s, request %s",
            request.source,
            context.session.key_id,
            request.request_id,
        )
    return Redirect(
        context.url(urls.SIGN_IN),
        Flash("done", "Signed out."),
        cookies=(cookie(context.request, SESSION, "", seconds=0),),
    )


def _page(
    context: RequestContext,
    wanted: str,
    error: str = "",
    *,
    status: int = 200,
    note: str = "",
    kept: str = "",
) -> Page:
    kept = kept or context.request.given(FIELD)
    return Page(
        "signin.html",
        title="Sign in",
        http_status=status,
        action=context.url(urls.SIGN_IN),
        field=Field("key", "API key", kind="password", required=True, error=error, width="l"),
        hidden=(
            Hidden("next", context.request.urls.safe_next(wanted)),
            *([Hidden(FIELD, kept)] if kept else ()),
        ),
        note=note,
    )
