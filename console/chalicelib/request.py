"""Requests, read from the event of API Gateway (REST API, payload v1)."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest, PayloadTooLarge

from .urls import Urls

_FIELDS: Final = 1_000
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")

Values = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """A request.  Header names are in lower case; ``source`` is the client's address."""

    method: str
    urls: Urls
    target: str  #: path and query as sent: what to come back to
    names: Mapping[str, str]  #: the parameters in the path
    query: Values
    form: Values
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    source: str
    request_id: str
    refresh: bool = False  #: whether the page refreshes itself, without a person's doing
    insecure_cookies: bool = False  #: whether the service allows cookies over plain http

    @property
    def secure(self) -> bool:
        """Whether cookies are for https only: everywhere except on the local machine."""
        plain = self.headers.get("x-forwarded-proto") == "http"
        return not (plain and (self.insecure_cookies or self._is_local))

    @property
    def loses_cookies(self) -> bool:
        """Whether the browser will not keep our cookies, because it uses plain http from elsewhere.

        A proxy with TLS that is not trusted looks the same, but over TLS browsers send
        Sec-Fetch-Site.
        """
        plain = self.headers.get("x-forwarded-proto") == "http"
        return plain and self.secure and "sec-fetch-site" not in self.headers

    @property
    def _is_local(self) -> bool:
        host = self.headers.get("host", "")
        return host.rsplit(":", 1)[0] in _LOCAL or host in _LOCAL

    def param(self, name: str, default: str = "") -> str:
        """Return a query parameter, without the space around it."""
        return self.query.get(name, (default,))[-1].strip()

    def given(self, name: str, default: str = "") -> str:
        """Return a field of the form, exactly as it came."""
        return self.form.get(name, (default,))[-1]


def read_request(
    event: Mapping[str, Any], request_id: str, *, insecure_cookies: bool = False
) -> ConsoleRequest:
    """Read the event.  Raises InvalidRequest for a form that cannot be read."""
    headers = {name.lower(): str(value) for name, value in (event.get("headers") or {}).items()}
    query = event.get("multiValueQueryStringParameters") or {}
    context = event["requestContext"]
    values = {name: tuple(map(str, given)) for name, given in query.items()}
    urls = Urls.of(event)
    return ConsoleRequest(
        method=context["httpMethod"],
        urls=urls,
        target=_target(str(context.get("path") or event["path"]), values),
        names=dict(event.get("pathParameters") or {}),
        query=values,
        form=_form(event) if context["httpMethod"] == "POST" else {},
        headers=headers,
        cookies=_cookies(headers.get("cookie", "")),
        source=str((context.get("identity") or {}).get("sourceIp") or ""),
        request_id=request_id,
        refresh="x-refresh" in headers,
        insecure_cookies=insecure_cookies,
    )


def _target(path: str, query: Values) -> str:
    return Urls().to(path.replace("{", "%7B").replace("}", "%7D"), query)


def _form(event: Mapping[str, Any]) -> Values:
    body = event.get("body") or ""
    try:
        blob = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else None
        text = body if blob is None else blob.decode()
        if limits.utf8_bytes(text) > limits.BODY_BYTES:
            message = f"the form must be at most {limits.BODY_BYTES} bytes"
            raise PayloadTooLarge(message, errors=[FieldError("body", message)])
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except (binascii.Error, UnicodeError):
        raise InvalidRequest("the form is not UTF-8") from None
    except ValueError:
        raise InvalidRequest(f"the form must have at most {_FIELDS} fields") from None
    found: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        found[name] = (*found.get(name, ()), value.replace("\r\n", "\n"))
    return found


def _cookies(header: str) -> Mapping[str, str]:
    """Return cookies by name; of several with one name the first, whose path is the longest.

    Ours are never quoted, so nothing is unquoted: http.cookies takes 11 s for 30 KB of backslashes,
    and refuses them all for one that it does not like.
    """
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.partition("=")
        if equals:
            found.setdefault(name.strip(), value.strip())
    return found
