"""What stands beside the API: the adapters for NGSI, and the console, as a browser goes through it.

The adapters know one queue, which in a deployment at work is somebody's: it is left alone there
unless that was asked for, and then only notifications with a FIWARE service of our own are looked
at.
"""

from functools import partial
from html.parser import HTMLParser
from http.cookies import CookieError, Morsel, SimpleCookie
from typing import Any, Final
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from headrace.cli.checks.made import NOTIFICATIONS, SERVICE, Notifications, SharedQueue, Thing
from headrace.cli.checks.run import LeftOut, Smoke, expect
from headrace.cli.checks.wire import Exchange, Wrong
from headrace.client.calls import queues
from headrace.domain.errors import Forbidden, NotFound, QueueExists

QUEUE: Final = "ngsi.notify"
_IN_USE: Final = f"{QUEUE} is in use here; --ngsi checks it all the same"
_DATA: Final = '[{"id":"Room1","type":"Room","temperature":{"type":"Number","value":23.50}}]'
SIGN_IN: Final = "/console/sign-in"
SIGN_OUT: Final = "/console/sign-out"
_HOME: Final = "/console"
_FORM: Final = "application/x-www-form-urlencoded"


def notify(smoke: Smoke) -> str:
    """Send a notification, into a queue made for it."""
    ours = _make_queue(smoke)
    smoke.made.begin(Notifications(smoke.name))
    body = f'{{"subscriptionId":"{smoke.name}","data":{_DATA}}}'.encode()
    _ask_ngsi(smoke, "POST", "/v2/notify", body)
    smoke.kept["notified"] = "ours" if ours else "theirs"
    return f"taken into {QUEUE}{'' if ours else ', which is in use'}"


def _make_queue(smoke: Smoke) -> bool:
    """Make the queue if it is not there; tell whether we did.  Raises LeftOut if it is."""
    try:
        smoke.send(queues.get_queue(QUEUE))
    except NotFound:
        mark = f"of {smoke.name}, a smoke test; may be deleted"
        thing = smoke.made.begin(SharedQueue(QUEUE, description=mark))
        try:
            smoke.send(queues.create_queue(QUEUE, description=mark))
        except QueueExists:
            smoke.made.gone(thing)
        else:
            thing.sure = True
            return True
    except Forbidden:
        raise LeftOut(f"the key is not for {QUEUE}") from None
    if not smoke.ngsi:
        raise LeftOut(_IN_USE)
    return False


def list_notified(smoke: Smoke) -> str:
    """List it with its data."""
    return _found(smoke, NOTIFICATIONS, _with_data)


def _with_data(smoke: Smoke, one: dict[str, Any]) -> None:
    given = one.get("input", {})
    expect(given.get("fiware_service"), smoke.name, "its service")
    if _DATA.encode() not in smoke.wire.last.body:
        raise Wrong("its data is not as it was sent")


def summarize_notified(smoke: Smoke) -> str:
    """List how it is with it."""
    return _found(smoke, f"{NOTIFICATIONS}/summary", _with_status)


def _with_status(_smoke: Smoke, one: dict[str, Any]) -> None:
    if one.get("status") not in ("pending", "succeeded", "failed"):
        raise Wrong(f"its status is {one.get('status')!r}")


def _found(smoke: Smoke, path: str, check: Any) -> str:
    theirs = smoke.need("notified", "NGSI: notify") == "theirs"

    def look() -> list[dict[str, Any]] | None:
        body = _ask_ngsi(smoke, "GET", path)
        found = msgspec.json.decode(body, type=list[dict[str, Any]])
        return found if found or theirs else None

    found = smoke.indexed(look, "notification of ours")
    if theirs and not found:
        return "none any more: a worker has moved it on"
    expect(len(found), 1, "the number of notifications of ours")
    check(smoke, found[0])
    return "the one of ours"


def count_notified(smoke: Smoke) -> str:
    """Count it."""
    theirs = smoke.need("notified", "NGSI: notify") == "theirs"

    def look() -> int | None:
        number = msgspec.json.decode(_ask_ngsi(smoke, "GET", f"{NOTIFICATIONS}/count"), type=int)
        return number if number == 1 or (theirs and number == 0) else None

    return f"{smoke.indexed(look, 'count of 1')}"


def delete_notified(smoke: Smoke) -> str:
    """Delete it, and then the queue, if that is ours and nobody else has put something in."""
    smoke.need("notified", "NGSI: notify")
    things = [one for one in smoke.made.things if isinstance(one, Notifications | SharedQueue)]
    for thing in things:
        smoke.indexed(partial(_gone, smoke, thing), f"end of {thing.text}")
        smoke.made.gone(thing)
    return f"gone{', and the queue' if len(things) > 1 else ''}"


def _gone(smoke: Smoke, thing: Thing) -> bool | None:
    return thing.remove(smoke.wire) or None


def _ask_ngsi(smoke: Smoke, method: str, path: str, body: bytes | None = None) -> bytes:
    seen = smoke.wire.ask(method, path, body=body, headers={SERVICE: smoke.name})
    smoke.wire.accepted(seen)
    return seen.body


class _PageParser(HTMLParser):
    """What a page has: its forms, by where they go, with their fields; and its style sheet."""

    def __init__(self, text: str) -> None:
        """Read *text*."""
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self.style: str | None = None
        self._form: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is needed of an element."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = self.forms.setdefault(given.get("action", ""), {})
        elif tag == "input" and "name" in given:
            self._form[given["name"]] = given.get("value", "")
        elif tag == "link" and given.get("rel") == "stylesheet":
            self.style = given.get("href")


def console_page(smoke: Smoke) -> str:
    """Get the page that asks for a key, and its style sheet."""
    seen = browse(smoke, "GET", SIGN_IN, {})
    expect(seen.status, 200, "the status")
    expect(seen.content_type, "text/html", "the type")
    if "default-src 'none'" not in seen.headers.get("Content-Security-Policy", ""):
        raise Wrong("there is no strict Content-Security-Policy")
    style = _PageParser(seen.body.decode(errors="replace")).style
    if style is None:
        raise Wrong("the page names no style sheet")
    sheet = browse(smoke, "GET", local(smoke, SIGN_IN, style), {})
    expect((sheet.status, sheet.content_type), (200, "text/css"), "its style sheet")
    return "a form, with a strict security policy, and its style sheet"


def sign_in(smoke: Smoke) -> str:
    """Sign in with the key, and see the first page."""
    shown = browse(smoke, "GET", SIGN_IN, {})
    cookies = _cookies(smoke, shown)
    fields = _form(smoke, shown, SIGN_IN) | {"key": smoke.wire.settings.key}
    entered = browse(smoke, "POST", SIGN_IN, cookies, fields)
    expect(entered.status, 303, "the status")
    expect(local(smoke, SIGN_IN, entered.headers.get("Location", "")), _HOME, "the way on")
    session = {name: value for name, value in _cookies(smoke, entered).items() if value}
    if not session:
        raise Wrong("no cookie is set")
    smoke.kept |= {f"cookie {name}": value for name, value in session.items()}
    smoke.kept["signed in"] = smoke.name
    home = browse(smoke, "GET", _HOME, session)
    expect(home.status, 200, "the status of the first page")
    smoke.kept["token"] = _form(smoke, home, SIGN_OUT).get("token", "")
    return "signed in; the cookies are HttpOnly, SameSite=Strict and for the console alone"


def sign_out(smoke: Smoke) -> str:
    """Sign out, after which the cookie is good for nothing."""
    smoke.need("signed in", "console: sign in")
    session = session_cookies(smoke)
    left = browse(smoke, "POST", SIGN_OUT, session, {"token": smoke.need("token", "sign in")})
    expect(left.status, 303, "the status")
    home = browse(smoke, "GET", _HOME, session)
    expect(home.status, 303, "the status of the first page afterwards")
    return "signed out; the cookie of before leads to the sign-in"


def session_cookies(smoke: Smoke) -> dict[str, str]:
    """Return the cookies that the sign-in has set."""
    return {
        name.removeprefix("cookie "): value
        for name, value in smoke.kept.items()
        if name.startswith("cookie ")
    }


def browse(
    smoke: Smoke,
    method: str,
    path: str,
    cookies: dict[str, str],
    fields: dict[str, str] | None = None,
) -> Exchange:
    """Send a request as a browser does: with cookies, without a key; *fields* are a form."""
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    if fields is not None:
        headers["Content-Type"] = _FORM
    body = None if fields is None else urlencode(fields).encode()
    return smoke.wire.ask(
        method,
        path,
        body=body,
        headers={name: value for name, value in headers.items() if value},
        anonymous=True,
    )


def _form(smoke: Smoke, seen: Exchange, target: str) -> dict[str, str]:
    """Return the fields of the form of a page that goes to *target*."""
    for action, fields in _PageParser(seen.body.decode(errors="replace")).forms.items():
        if local(smoke, seen.path, action) == target:
            return fields
    raise Wrong(f"the page has no form that goes to {target}")


def local(smoke: Smoke, page: str, link: str) -> str:
    """Return where *link* on a page leads, without the service's address.

    Raises Wrong where that is elsewhere: keys and cookies go nowhere else.
    """
    base = smoke.wire.settings.url
    to = urljoin(base + page, link)
    if not to.startswith(f"{base}/"):
        raise Wrong(f"a link leads to {to}, and the service is at {base}")
    return to.removeprefix(base)


def _cookies(smoke: Smoke, seen: Exchange) -> dict[str, str]:
    """Return the cookies that an answer sets.  Raises Wrong for flags that are not right."""
    found: dict[str, str] = {}
    base = urlsplit(smoke.wire.settings.url)
    for line in seen.headers.get_list("Set-Cookie"):
        for name, morsel in _read(line).items():
            flags = {"HttpOnly": bool(morsel["httponly"])}
            flags["SameSite=Strict"] = morsel["samesite"].lower() == "strict"
            flags["Secure"] = bool(morsel["secure"]) or base.scheme == "http"
            flags[f"Path={base.path}{_HOME}"] = morsel["path"] == f"{base.path}{_HOME}"
            missing = [flag for flag, there in flags.items() if not there]
            if missing:
                raise Wrong(f"cookie {name} has no {', '.join(missing)}")
            found[name] = morsel.value
    return found


def _read(line: str) -> dict[str, Morsel[str]]:
    try:
        return dict(SimpleCookie(line))
    except CookieError as error:
        raise Wrong(f"a cookie cannot be read: {error}") from None
