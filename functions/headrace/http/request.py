"""Who may come in, and with what body: decided before any route is looked for."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from headrace.domain import limits
from headrace.domain.errors import FieldError, InvalidRequest, PayloadTooLarge, Unauthenticated

OPEN_PATHS: Final = frozenset({"/v1/health", "/v1/openapi.json", "/v1/docs"})
"""What needs no key."""

_JSON: Final = "application/json"
_TAKEN_AS_JSON: Final = frozenset({"", _JSON, "application/x-www-form-urlencoded"})
"""No form is ever sent here: the last is what curl says of any body it is given by -d."""


def request_id_of(event: Mapping[str, Any], context: object) -> str:
    """Return the name by which logs know the request."""
    given = (event.get("requestContext") or {}).get("requestId")
    return str(given or getattr(context, "aws_request_id", "unknown"))


def stage_path(event: Mapping[str, Any]) -> str:
    """Return API Gateway's prefix of our paths: the stage, a base path, or nothing."""
    whole = (event.get("requestContext") or {}).get("path")
    return str(whole or "").removesuffix(event["path"])


def without_base_path(event: dict[str, Any]) -> dict[str, Any]:
    """Return *event* with the path that our routes know.

    API Gateway leaves the base path of a custom domain's mapping in ``path``. What follows it is
    the ``resource``, with the path parameters in their places.
    """
    given, path = event.get("pathParameters") or {}, str(event.get("path") or "")
    ours = re.sub(
        r"\{(\w+)\+?\}", lambda name: str(given.get(name[1], "")), event.get("resource") or ""
    ).rstrip("/")
    seen = unquote(path).rstrip("/")
    for end in (ours, unquote(ours)):
        base = seen.removesuffix(end)
        if end and base and base != seen and path.startswith(base):
            return {**event, "path": path.removeprefix(base)}
    return event


def presented_key(event: Mapping[str, Any]) -> str | None:
    """Return the key that the request carries, None if it needs none.  Raises Unauthenticated."""
    if event["path"].rstrip("/") in OPEN_PATHS:
        return None
    return bearer(header(event, "authorization"))


def bearer(authorization: str | None) -> str:
    """Return the key in an ``Authorization`` header.  Raises Unauthenticated."""
    scheme, _, key = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("send the key as Authorization: Bearer <key>")
    return key.strip()


def with_body_text(event: dict[str, Any]) -> dict[str, Any]:
    """Return *event* with its body as text.

    Raises PayloadTooLarge, and InvalidRequest for what is neither JSON by its type nor UTF-8.
    """
    body = event.get("body")
    if not body:
        return event
    given = header(event, "content-type") or ""
    if given != _JSON:
        _check_media_type(given)
        event = {**event, "headers": _as_json(event.get("headers") or {})}
    try:
        if event.get("isBase64Encoded"):
            blob = base64.b64decode(body, validate=True)
            _check_size(len(blob))
            return {**event, "body": blob.decode(), "isBase64Encoded": False}
        _check_size(len(body) if body.isascii() else len(body.encode()))
    except (binascii.Error, UnicodeError):
        message = "the body is not UTF-8"
        raise InvalidRequest(message, errors=[FieldError("body", message)]) from None
    return event


def _check_media_type(given: str) -> None:
    media_type = given.partition(";")[0].strip().lower()
    if media_type not in _TAKEN_AS_JSON and not media_type.endswith("+json"):
        raise InvalidRequest.of("Content-Type", f"must be application/json, not {media_type[:100]}")


def _as_json(headers: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in headers.items() if name.lower() != "content-type"}
    return {**kept, "Content-Type": _JSON}


def _check_size(size: int) -> None:
    if size > limits.BODY_BYTES:
        message = f"the body must be at most {limits.BODY_BYTES} bytes; it is {size}"
        raise PayloadTooLarge(message, errors=[FieldError("body", message)])


def header(event: Mapping[str, Any], name: str) -> str | None:
    """Return a header of the request by its *name* in lower case."""
    for key, value in (event.get("headers") or {}).items():
        if len(key) == len(name) and key.lower() == name:
            return str(value)
    return None
