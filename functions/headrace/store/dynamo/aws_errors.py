"""Where boto3's errors and figures become ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from headrace.domain.errors import Unavailable
from headrace.store.base import charge

_BROKEN: Final = frozenset(
    {"ValidationException", "ResourceNotFoundException", "AccessDeniedException"}
)


_IN_DOUBT: Final = frozenset({"InternalServerError"})
_NEVER_ARRIVED: Final = (ConnectTimeoutError, EndpointConnectionError)


class AnswerLost(Unavailable):
    """The table did not answer a request, which may have been done all the same."""


@contextmanager
def aws_errors() -> Iterator[None]:
    """Turn what boto3 raises when the table is throttled or away into Unavailable.

    AnswerLost where it may have done what it was asked.  What only a wrong deployment or a defect
    of ours can cause passes through and is a 500.
    """
    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in _BROKEN:
            raise
        code = error.response["Error"]["Code"]
        message = f"the table does not answer: {code}"
        raise (AnswerLost if code in _IN_DOUBT else Unavailable)(message) from error
    except _NEVER_ARRIVED as error:
        message = f"the table cannot be reached: {type(error).__name__}"
        raise Unavailable(message) from error
    except BotoCoreError as error:
        message = f"the table does not answer: {type(error).__name__}"
        raise AnswerLost(message) from error


def consumed(answer: dict[str, Any]) -> float:
    """Return the units that an answer says it cost."""
    capacity = answer.get("ConsumedCapacity") or []
    parts: list[dict[str, float]] = capacity if isinstance(capacity, list) else [capacity]
    return sum(part.get("CapacityUnits", 0.0) for part in parts)


def charge_all(answer: dict[str, Any], *, write: bool) -> None:
    """Put what an answer says it cost on the meter."""
    units = consumed(answer)
    if write:
        charge(write=units)
    else:
        charge(read=units)
