"""Answer an event of API Gateway: the steps that every page has in common.

Identify the visitor, check the form and the permission, call the view, and render its page or an
error page.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headrace.ops.operators.sessions import new_nonce
from headrace.runtime.service import Service
from headrace.runtime.wiring import current_service, utc_now
from headrace.store.call_scope import Meter, acting, metered

from . import urls
from .kept_forms import RESUME, go_on, kept_form, shown_again
from .pages import Flash, Frame, Page, PageCost, Who, error_page
from .parts import Link
from .render import etag, render
from .request import ConsoleRequest, read_request
from .request_context import RequestContext, check_form, from_elsewhere
from .routes import ConsoleResponse, ConsoleRoute, Redirect, Reply, SignedIn, cookie, routes
from .session import DOOR, DOOR_LASTS, FLASH, SESSION, CookieSigning
from .views import navigation, signin
from .views.static import assets

_FLASH_SECONDS: Final = 60
_log: Final = logging.getLogger("headrace.console")
_log.setLevel(logging.INFO)  # for sign-in and sign-out; the level of Lambda is higher


@dataclass(frozen=True, slots=True)
class _ConsoleCall:
    """One call of the function, with its cost so far."""

    event: Mapping[str, Any]
    request_id: str
    meter: Meter
    started: float

    @property
    def environment(self) -> str:
        return str(self.event["requestContext"].get("stage") or "")


def answer(route: ConsoleRoute, event: Mapping[str, Any], request_id: str) -> ConsoleResponse:
    """Answer one request for *route*."""
    with metered() as meter:
        call = _ConsoleCall(event, request_id, meter, time.perf_counter())
        context: RequestContext | None = None
        try:
            use = current_service()
            request = read_request(
                event, request_id, insecure_cookies=use.settings.insecure_cookies
            )
            context = _enter(request, use)
            made = _finish(_reply(route, context), context, call)
        except HeadraceError as error:
            made = _refusal(error, context, call)
        except Exception:  # noqa: BLE001  the edge of the process: logged, and the function lives on
            _log.exception("%s %s failed, request %s", route.method, route.path, request_id)
            failure = HeadraceError("The service failed.")
            made = _refusal(failure, context, call)
        _note_refusal(route, context, made)
        return made


def _enter(request: ConsoleRequest, use: Service) -> RequestContext:
    """Identify the visitor: the session must be live, and its key still valid."""
    signing = CookieSigning.of(use.settings)
    context = RequestContext(request, use, signing, use.now())
    named = signing.named(request.cookies.get(SESSION, ""))
    if named is None:
        return context
    try:
        session, principal = use.sessions.resume(*named, active=not request.refresh)
    except Unauthenticated:
        return context
    return replace(context, principal=principal, session=session)


def _reply(route: ConsoleRoute, context: RequestContext) -> Reply:
    request = context.request
    if route.needs is not None and context.principal is None:
        return _redirect_to_sign_in(context)
    if route.path == urls.SIGN_IN and request.loses_cookies and DOOR not in request.cookies:
        return signin.needs_https(context)
    if route.method == "POST":
        check_form(request, context.signing, _nonce(context))
    if route.needs is not None:
        context.require(route.needs, *([context.queue] if "queue" in request.names else []))
    if context.principal is None:
        return route.view(context)
    if route.method == "POST" and request.given(RESUME):
        return _form_again(route, context)
    with acting(context.principal, request_id=request.request_id):
        return route.view(context)


def _form_again(route: ConsoleRoute, context: RequestContext) -> Reply:
    """Show a form again, filled with the values from before the session ended."""
    page = _page_of(route.path)
    if page is None or page.needs is None:
        raise NotFound("this form has no page")
    context = shown_again(context)
    queues = [context.queue] if "queue" in context.request.names else []
    context.require(page.needs, *queues)
    with acting(context.by, request_id=context.request.request_id):
        return page.view(context)


def _page_of(path: str) -> ConsoleRoute | None:
    """Return the GET route of *path*, which shows the form."""
    return next((one for one in routes.found if (one.method, one.path) == ("GET", path)), None)


def _path_of(target: str, at: urls.Urls) -> str | None:
    """Return the path of the POST route of *target*."""
    path, _ = routes.find(target.partition("?")[0].removeprefix(at.base))
    takes_forms = any(one.path == path and one.method == "POST" for one in routes.found)
    return path if takes_forms else None


def _note_refusal(
    route: ConsoleRoute, context: RequestContext | None, made: ConsoleResponse
) -> None:
    """Log a forbidden request, and add it to the audit if it would have changed something."""
    if context is None or context.principal is None or made.status != HTTPStatus.FORBIDDEN:
        return
    request, who = context.request, context.principal
    what = f"{route.method} {route.path}"
    _log.warning("%s refused to key %s, request %s", what, who.key_id, request.request_id)
    if route.method == "POST":
        queue = request.names.get("queue")
        with acting(who, request_id=request.request_id), suppress(Unavailable):
            context.use.audit.note("refuse", queue=queue, where={"request": what}, changed=0)


def _redirect_to_sign_in(context: RequestContext) -> Reply:
    request = context.request
    if request.refresh:
        raise Unauthenticated("the session is over: sign in again")
    kept = kept_form(request, context.signing) if request.method == "POST" else None
    if kept is not None and _path_of(kept.target, request.urls) not in (None, urls.SIGN_OUT):
        return signin.interrupted(context, kept.written(context.signing))
    if request.method != "GET":
        flash = Flash("failed", "Your session had ended, so nothing was done. Sign in again.")
        return Redirect(context.url(urls.SIGN_IN), flash)
    if from_elsewhere(request) and SESSION not in request.cookies:
        # Browsers withhold strict cookies from a request that another site began.
        return Page("bounce.html", title="Opening", url=request.target)
    return Redirect(context.url(urls.SIGN_IN, {"next": request.target}))


def _nonce(context: RequestContext) -> str:
    """Return the nonce of the session, or that of the cookie of a visitor without a session."""
    if context.session is not None:
        return context.session.nonce
    return str(context.signing.read(DOOR, context.request.cookies.get(DOOR, "")) or "")


def _finish(reply: Reply, context: RequestContext, call: _ConsoleCall) -> ConsoleResponse:
    request = context.request
    if isinstance(reply, ConsoleResponse):
        return reply
    if isinstance(reply, SignedIn):
        return _go_on(reply, context, call)
    if isinstance(reply, Redirect):
        cookies = reply.cookies
        if reply.flash is not None:
            value = context.signing.write(
                FLASH, [reply.flash.kind, reply.flash.text, reply.flash.undo]
            )
            cookies = (*cookies, cookie(request, FLASH, value, seconds=_FLASH_SECONDS))
        return ConsoleResponse(status=303, headers={"Location": reply.url}, cookies=cookies)
    cookies = ()
    nonce = _nonce(context)
    if not nonce:
        nonce = new_nonce()
        value = context.signing.write(DOOR, nonce)
        cookies = (cookie(request, DOOR, value, seconds=int(DOOR_LASTS.total_seconds())),)
    flash = None
    if FLASH in request.cookies and not request.refresh:
        cookies = (*cookies, cookie(request, FLASH, "", seconds=0))
        match context.signing.read(FLASH, request.cookies[FLASH]):
            case [str(kind), str(text), str(undo)]:
                flash = Flash(kind, text, undo)
    html = render(reply, _frame(context, call, nonce=nonce, flash=flash))
    if request.method != "GET" or reply.http_status != HTTPStatus.OK:
        return ConsoleResponse(html, reply.http_status, cookies=cookies)
    tag = etag(html)
    same = tag in request.headers.get("if-none-match", "")
    return ConsoleResponse(
        "" if same else html,
        HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK,
        headers={"ETag": tag},
        cookies=cookies,
    )


def _go_on(reply: SignedIn, context: RequestContext, call: _ConsoleCall) -> ConsoleResponse:
    """Answer a sign-in with a link back to the form that was interrupted."""
    context = replace(context, session=reply.session)
    path = _path_of(reply.kept.target, context.request.urls)
    page = go_on(reply.kept, context, has_page=path is not None and _page_of(path) is not None)
    frame = _frame(context, call, nonce=_nonce(context), flash=None)
    return ConsoleResponse(render(page, frame), page.http_status, cookies=reply.cookies)


def _frame(
    context: RequestContext, call: _ConsoleCall, *, nonce: str, flash: Flash | None
) -> Frame:
    by = context.principal
    who = None
    if by is not None:
        queues = "all queues" if by.covers_all_queues else ", ".join(by.patterns)
        who = Who(
            by.name, by.role.value, queues, context.url(urls.SIGN_OUT), navigation.menu(context)
        )
    return replace(
        _bare_frame(context.request.urls, call),
        now=context.now,
        token=context.signing.form_token(nonce) if nonce else "",
        who=who,
        nav=navigation.links(context) if by is not None else (),
        foot=navigation.foot(context) if by is not None else (),
        search=context.url(urls.SEARCH),
        searched=context.request.param("q")
        if context.request.target.startswith(context.url(urls.SEARCH))
        else "",
        flash=flash,
        undo=context.url(urls.UNDO),
        here=context.here if context.request.method == "GET" else "",
        back=context.back,
        units=PageCost(
            call.meter.write, call.meter.read, (time.perf_counter() - call.started) * 1000
        ),
    )


def _bare_frame(at: urls.Urls, call: _ConsoleCall) -> Frame:
    """Return the frame of a page for an unknown visitor."""
    return Frame(
        now=utc_now(),
        environment=call.environment,
        home=at.root,
        files={name: at.to(urls.STATIC, name=one.name) for name, one in assets().items()},
        request_id=call.request_id,
    )


def _refusal(
    error: HeadraceError, context: RequestContext | None, call: _ConsoleCall
) -> ConsoleResponse:
    """Answer with the error page."""
    at = urls.Urls.of(call.event)
    signing = Link("Sign in", at.to(urls.SIGN_IN))
    page = error_page(
        error,
        request_id=call.request_id,
        acted=call.event["requestContext"]["httpMethod"] == "POST",
        way_on=signing if isinstance(error, Unauthenticated) else Link("All queues", at.root),
    )
    if isinstance(error, Unavailable):
        _log.warning("%s, request %s", error.detail, call.request_id)
    headers = {}
    if isinstance(error, Unavailable | RateLimited):
        headers["Retry-After"] = str(getattr(error, "retry_after_seconds", 30))
    if isinstance(error, Forbidden):  # its cost would tell of what may not be seen
        call = replace(call, meter=Meter())
    if context is None:
        # Nothing is known of the visitor: the same page, with the bar left out.
        frame = _bare_frame(at, call)
    else:
        frame = _frame(context, call, nonce=_nonce(context), flash=None)
    return ConsoleResponse(render(page, frame), page.http_status, headers=headers)
