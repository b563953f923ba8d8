"""The operator console: the way in with the key, a page, and the way out, as a browser goes it."""

from html.parser import HTMLParser
from http.cookies import CookieError, Morsel, SimpleCookie
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit

from headrace.cli.checks.run import Smoke, expect
from headrace.cli.checks.wire import Exchange, Wrong

SIGN_IN: Final = "/console/sign-in"
SIGN_OUT: Final = "/console/sign-out"
_HOME: Final = "/console"
_FORM: Final = "application/x-www-form-urlencoded"


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


def page(smoke: Smoke) -> str:
    """Get the page that asks for a key, and its style sheet."""
    seen = _ask(smoke, "GET", SIGN_IN, {})
    expect(seen.status, 200, "the status")
    expect(seen.content_type, "text/html", "the type")
    if "default-src 'none'" not in seen.headers.get("Content-Security-Policy", ""):
        message = "there is no strict Content-Security-Policy"
        raise Wrong(message)
    style = _PageParser(seen.body.decode(errors="replace")).style
    if style is None:
        message = "the page names no style sheet"
        raise Wrong(message)
    sheet = _ask(smoke, "GET", _local(smoke, SIGN_IN, style), {})
    expect((sheet.status, sheet.content_type), (200, "text/css"), "its style sheet")
    return "a form, with a strict security policy, and its style sheet"


def sign_in(smoke: Smoke) -> str:
    """Sign in with the key, and see the first page."""
    shown = _ask(smoke, "GET", SIGN_IN, {})
    cookies = _cookies(smoke, shown)
    fields = _form(smoke, shown, SIGN_IN) | {"key": smoke.wire.settings.key}
    entered = _ask(smoke, "POST", SIGN_IN, cookies, fields)
    expect(entered.status, 303, "the status")
    expect(_local(smoke, SIGN_IN, entered.headers.get("Location", "")), _HOME, "the way on")
    session = {name: value for name, value in _cookies(smoke, entered).items() if value}
    if not session:
        message = "no cookie is set"
        raise Wrong(message)
    smoke.kept |= {f"cookie {name}": value for name, value in session.items()}
    smoke.kept["signed in"] = smoke.name
    home = _ask(smoke, "GET", _HOME, session)
    expect(home.status, 200, "the status of the first page")
    smoke.kept["token"] = _form(smoke, home, SIGN_OUT).get("token", "")
    return "signed in; the cookies are HttpOnly, SameSite=Strict and for the console alone"


def sign_out(smoke: Smoke) -> str:
    """Sign out, after which the cookie is good for nothing."""
    smoke.need("signed in", "console: sign in")
    session = {
        name.removeprefix("cookie "): value
        for name, value in smoke.kept.items()
        if name.startswith("cookie ")
    }
    left = _ask(smoke, "POST", SIGN_OUT, session, {"token": smoke.need("token", "sign in")})
    expect(left.status, 303, "the status")
    home = _ask(smoke, "GET", _HOME, session)
    expect(home.status, 303, "the status of the first page afterwards")
    return "signed out; the cookie of before leads to the sign-in"


def _ask(
    smoke: Smoke,
    method: str,
    path: str,
    cookies: dict[str, str],
    fields: dict[str, str] | None = None,
) -> Exchange:
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
        if _local(smoke, seen.path, action) == target:
            return fields
    message = f"the page has no form that goes to {target}"
    raise Wrong(message)


def _local(smoke: Smoke, page: str, link: str) -> str:
    """Return where *link* on a page leads, without the service's address.

    Raises Wrong where that is elsewhere: keys and cookies go nowhere else.
    """
    base = smoke.wire.settings.url
    to = urljoin(base + page, link)
    if not to.startswith(f"{base}/"):
        message = f"a link leads to {to}, and the service is at {base}"
        raise Wrong(message)
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
                message = f"cookie {name} has no {', '.join(missing)}"
                raise Wrong(message)
            found[name] = morsel.value
    return found


def _read(line: str) -> dict[str, Morsel[str]]:
    try:
        return dict(SimpleCookie(line))
    except CookieError as error:
        message = f"a cookie cannot be read: {error}"
        raise Wrong(message) from None
