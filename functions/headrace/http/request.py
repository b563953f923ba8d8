"""A request to the API, whatever brings it: an event of API Gateway, a socket, or this process."""

import base64
import binascii
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote

from headrace.domain import limits
from headrace.domain.access import Principal
from headrace.domain.errors import FieldError, InvalidRequest, PayloadTooLarge, Unauthenticated
from headrace.store.call_scope import current_actor, during
from headrace.wire.base import Answer, to_json

JSON: Final = "application/json"
OPEN_PATHS: Final = frozenset({"/v1/health", "/v1/openapi.json", "/v1/docs"})
"""Paths that need no key."""

_TAKEN_ASJSON: Final = frozenset({"", JSON, "application/x-www-form-urlencoded"})
"""curl sends the last of them with any body that is given by -d; the API has no forms."""

TAG_PREFIX: Final = "tag."
TAG_PARAMETER: Final = "tag.<key>"
"""The name under which all query parameters that begin with the prefix are one mapping."""

_NOT_UTF8: Final = b"\xff"
_CLOCK_MARGIN: Final = timedelta(seconds=1)


class CallContext(Protocol):
    """The context object of one Lambda call, as far as the API uses it."""

    @property
    def aws_request_id(self) -> str:
        """The id of the call."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the call may still take."""


@dataclass(slots=True)
class Request:
    """One request.

    The names of ``headers`` are lower case; ``repeated`` are those that came more than once.
    ``path`` is percent-encoded and begins with ``/v1``
    or another path of the API; ``base`` is what precedes it in the client's URL, as a stage does.
    """

    method: str
    path: str
    id: str
    context: CallContext
    headers: dict[str, str]
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes | str = b""
    base: str = ""
    repeated: frozenset[str] = frozenset()

    @property
    def time_left(self) -> timedelta:
        """How long other processes must assume that this request still runs."""
        millis = self.context.get_remaining_time_in_millis()
        return timedelta(milliseconds=millis) + _CLOCK_MARGIN

    def key(self) -> str | None:
        """Return the key that the request carries, None if it needs none.

        Raises Unauthenticated.
        """
        if self.path.rstrip("/") in OPEN_PATHS:
            return None
        return bearer(self.headers.get("authorization"))

    def header(self, name: str) -> str | None:
        """Return the value of a header, None without one.

        Raises InvalidRequest that names the header if it came more than once.
        """
        if self.repeated and name.lower() in self.repeated:
            raise InvalidRequest.of(name, "must be sent once")
        return self.headers.get(name.lower())

    def values(self) -> dict[str, Any]:
        """Return the query's values by name, a list for a repeated name, tags as one mapping."""
        values: dict[str, Any] = {}
        tags: dict[str, Any] = {}
        for name, given in self.query.items():
            value = given[0] if len(given) == 1 else given
            if name.startswith(TAG_PREFIX):
                tags[name.removeprefix(TAG_PREFIX)] = value
            else:
                values[name] = value
        return {**values, TAG_PARAMETER: tags} if tags else values

    def text(self) -> str:
        """Return the body.

        Raises PayloadTooLarge, and InvalidRequest for a media type other than JSON or a body that
        is not UTF-8.
        """
        body = self.body
        if not body:
            return ""
        given = self.headers.get("content-type", "")
        if given != JSON:
            _check_media_type(given)
        try:
            if isinstance(body, bytes):
                _check_size(len(body))
                body = self.body = body.decode()
                return body
            _check_size(len(body) if body.isascii() else len(body.encode()))
        except UnicodeError:
            message = "the body is not UTF-8"
            raise InvalidRequest(message, errors=[FieldError("body", message)]) from None
        return body


@dataclass(slots=True)
class Reply:
    """The answer to a request."""

    content: Answer | str | None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str | None = JSON

    def text(self) -> str:
        """Return the body."""
        if isinstance(self.content, Answer):
            self.content = to_json(self.content)
        return self.content or ""


POLL_AFTER: Final = "X-Poll-After"
"""The header with the pause in seconds that the service recommends between two requests."""

_CURRENT: Final[ContextVar[Request]] = ContextVar("headrace_request")


def serving(request: Request) -> during[Request]:
    """Return a block in which this_request() is *request*."""
    return during(_CURRENT, request)


def this_request() -> Request:
    """Return the request that is being answered."""
    return _CURRENT.get()


def principal() -> Principal:
    """Return the key that the current request carries.  Raises Unauthenticated for none."""
    actor = current_actor()
    if actor is None:
        raise Unauthenticated("this takes a key")
    return actor


def request_of(event: Mapping[str, Any], context: CallContext) -> Request:
    """Return the request of an *event* of API Gateway (REST API, payload format 1.0)."""
    given = event.get("requestContext") or {}
    sent = str(event.get("path") or "")
    path = _without_base_path(event, sent)
    return Request(
        event["httpMethod"].upper(),
        path,
        id=str(given.get("requestId") or getattr(context, "aws_request_id", "unknown")),
        context=context,
        headers=lower_case(event.get("headers") or {}),
        query=event.get("multiValueQueryStringParameters")
        or {name: [value] for name, value in (event.get("queryStringParameters") or {}).items()},
        body=_body_of(event),
        base=str(given.get("path") or "").removesuffix(path),
        repeated=frozenset(
            name.lower()
            for name, values in (event.get("multiValueHeaders") or {}).items()
            if len(values) > 1
        ),
    )


def lower_case(headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* with names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def query_of(text: str) -> dict[str, list[str]]:
    """Return the parameters of a percent-encoded query."""
    return parse_qs(text, keep_blank_values=True) if text else {}


def _body_of(event: Mapping[str, Any]) -> bytes | str:
    body: str = event.get("body") or ""
    if not body or not event.get("isBase64Encoded"):
        return body
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return _NOT_UTF8  # refused like any other body that is no text


def _without_base_path(event: Mapping[str, Any], path: str) -> str:
    """Return *path* without the base path of a custom domain's mapping.

    API Gateway leaves the base path in ``path``.  ``resource`` is what follows it, with names in
    braces for the path parameters.
    """
    given = event.get("pathParameters") or {}
    ours = re.sub(
        r"\{(\w+)\+?\}", lambda name: str(given.get(name[1], "")), event.get("resource") or ""
    ).rstrip("/")
    seen = unquote(path).rstrip("/")
    for end in (ours, unquote(ours)):
        base = seen.removesuffix(end)
        if end and base and base != seen and path.startswith(base):
            return path.removeprefix(base)
    return path


def bearer(authorization: str | None) -> str:
    """Return the key in an ``Authorization`` header.  Raises Unauthenticated."""
    scheme, _, key = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("send the key as Authorization: Bearer <key>")
    return key.strip()


def _check_media_type(given: str) -> None:
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in _TAKEN_ASJSON and not media_type.endswith("+json"):
        raise InvalidRequest.of("Content-Type", f"must be application/json, not {media_type[:100]}")


def _check_size(size: int) -> None:
    if size > limits.BODY_BYTES:
        message = f"the body must be at most {limits.BODY_BYTES} bytes; it is {size}"
        raise PayloadTooLarge(message, errors=[FieldError("body", message)])
