"""Answers that are refusals, as the errors of ``headrace.domain.errors``."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from headrace.domain import errors
from headrace.domain.errors import (
    FieldError,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthenticated,
    Unavailable,
)

_SERVER_ERROR: Final = 500
_BY_STATUS: Final[dict[int, type[HeadraceError]]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    413: PayloadTooLarge,
    429: RateLimited,
}
"""What API Gateway answers by itself has no code of ours."""


def refusal(status: int, body: bytes, *, where: str) -> HeadraceError:
    """Return the error that an answer to the request *where* stands for."""
    problem = _problem(body)
    code = problem.get("code")
    detail = problem.get("detail") or problem.get("message") or problem.get("Message")
    detail = str(detail or f"{where} was answered with {status}")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(status, HeadraceError)
    if kind is Unavailable or status >= _SERVER_ERROR:
        error: HeadraceError = Unavailable(detail)
    else:
        error = kind(detail, errors=list(_fields(problem.get("errors"))))
    request_id = problem.get("request_id")
    if isinstance(request_id, str):
        error.request_id = request_id
    return error


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fields(named: object) -> Iterator[FieldError]:
    for entry in named if isinstance(named, list) else ():
        if isinstance(entry, dict):
            yield FieldError(str(entry.get("field", "")), str(entry.get("message", "")))


_BY_CODE: Final = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeadraceError)
}
