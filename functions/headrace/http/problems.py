"""The one form of all errors: ``application/problem+json`` (RFC 9457)."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from headrace.domain.errors import (
    FieldError,
    HeadraceError,
    InvalidRequest,
    PayloadTooLarge,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.limits import pattern_in_words
from headrace.http.fields import TOO_LARGE
from headrace.http.request import TAG_PARAMETER, TAG_PREFIX, Reply
from headrace.wire.base import LEFT_OUT
from headrace.wire.service import FieldProblem, Problem

CONTENT_TYPE: Final = "application/problem+json"

_NAMED: Final = 100  # fields that one answer names
_PATH_LENGTH: Final = 200

_OBJECT: Final = "must be an object"
_NUMBER: Final = "must be a number"
_WHOLE: Final = "must be a whole number"
_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "list_type": "must be an array",
    "string_type": "must be a string",
    "string_unicode": "must be text; it has half of a surrogate pair",
    "bool_type": "must be true or false",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "unsupported_content_type": "must be sent as application/json",
    "string_too_long": "must be at most {max_length} characters long",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
}
"""Messages for pydantic's errors; the braces are filled with the values of the error."""


def problem(error: Exception, *, request_id: str) -> Reply:
    """Return the answer to *error*."""
    cause = error if isinstance(error, HeadraceError) else _unexpected()
    body = Problem(
        type="about:blank",
        title=cause.title,
        status=cause.status,
        code=cause.code,
        detail=cause.detail,
        errors=[FieldProblem.of(wrong) for wrong in cause.errors[:_NAMED]],
        request_id=request_id if cause.status >= HTTPStatus.INTERNAL_SERVER_ERROR else LEFT_OUT,
    )
    headers: dict[str, str] = {}
    if isinstance(cause, Unavailable):
        headers["Retry-After"] = str(cause.retry_after_seconds)
    if isinstance(cause, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    # Names that a client made up may have half of a surrogate pair, which msgspec does not write.
    text = json.dumps(msgspec.to_builtins(body))
    return Reply(text, cause.status, headers, CONTENT_TYPE)


def is_expected(error: Exception) -> bool:
    """Tell whether *error* is an outcome of the API, which is not logged with its traceback."""
    return isinstance(error, HeadraceError) and type(error) is not HeadraceError


def _unexpected() -> HeadraceError:
    return HeadraceError("something went wrong here; the request id leads to the log")


def invalid(errors: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    """Return pydantic's *errors* as one error, which names up to 100 fields."""
    found = [FieldError(_path(error["loc"]), _message(error)) for error in errors[:_NAMED]]
    large = any(error["type"] == TOO_LARGE for error in errors)
    first = f"{found[0].field} {found[0].message}"
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return (PayloadTooLarge if large else InvalidRequest)(first + more, errors=found)


def _path(location: Sequence[str | int]) -> str:
    """Return a location like ``("body", "tasks", 3, "id")`` as ``tasks[3].id``."""
    path = ""
    if TAG_PARAMETER in location[:-1]:  # ("query", "tag.<key>", "service")
        location = (location[0], f"{TAG_PREFIX}{location[-1]}")
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    if len(path) > _PATH_LENGTH:
        path = path[:_PATH_LENGTH] + "…"
    return path or str(location[0])


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "string_pattern_mismatch":
        pattern: str = error["ctx"]["pattern"]
        return pattern_in_words(pattern.removeprefix("^").removesuffix("$"))
    template = _MESSAGES.get(error["type"])
    if template is None:
        return str(error["msg"])
    return template.format(**{name: _shown(value) for name, value in error.get("ctx", {}).items()})


def _shown(value: object) -> object:
    """Return a limit as people write it: 5 instead of 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
