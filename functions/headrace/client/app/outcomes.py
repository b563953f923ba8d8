"""How an attempt can end, and what its report says.

Handlers raise `Retry`, `Reject` and `Snooze`.  The worker throws the limits, `Stopped` and
`Cancelled` into a running handler: into a thread as they are; an asyncio task is cancelled, and the
reason is the first argument of its ``CancelledError``.

The report keeps the type, message and traceback of an exception, within the limits of the service,
and up to 32 KiB of a result as JSON, or what the task says instead.
"""

import json
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from headrace.client.app import checks
from headrace.client.app.checks import Duration
from headrace.client.codec import PLAIN, Codec
from headrace.client.sending import Failure, carried
from headrace.domain import limits
from headrace.domain.errors import LeaseLost, PayloadTooLarge

_ROOM: Final = limits.ERROR_BYTES - 512  # attempt, time, worker and kind stand there too
_TYPE_ROOM: Final = 256
_MESSAGE_ROOM: Final = 1024
_CUT: Final = "… [cut] "
_OURS: Final = ("headrace.client.", "headrace.wire.")
_MACHINERY: Final = "headrace.client.app."
_WITHHELD: Final = "withheld: what tasks carry is private, so see the worker's log"
OnLargeResult: TypeAlias = Literal["truncate", "drop"]
_CHOICES: Final = ("truncate", "drop")
_MARK: Final = "… [cut]"


class Retry(Exception):
    """Raised by a handler: this attempt failed, try again later.

    It counts as a failed attempt.  ``delay`` (seconds or timedelta) takes the place of the retry
    strategy's wait.  Raises InvalidRequest for a delay over the limit.
    """

    def __init__(self, message: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(message)
        self.delay_in_seconds = checks.optional("delay", delay, limits.DELAY_SECONDS)


class Snooze(Exception):
    """Raised by a handler to postpone the task: it is delivered again after *delay*.

    The attempt does not count, and no error is recorded.  Only ``expires_at`` limits how often a
    task is postponed.  Raises InvalidRequest for a delay over the limit.
    """

    def __init__(self, message: str = "", *, delay: Duration) -> None:
        super().__init__(message)
        self.delay_in_seconds = checks.seconds("delay", delay, limits.DELAY_SECONDS)


class Reject(Exception):
    """Raised by a handler: do not retry this task; it is DEAD, ``rejected``."""


class UnknownTask(Exception):
    """The app has no task with the name in the payload, or no handler for the queue."""


class SoftTimeLimit(Exception):
    """Thrown after the soft time limit: the handler may catch it, clean up and end."""


class HardTimeLimit(BaseException):
    """Thrown after the hard time limit: the attempt has failed.

    It is no subclass of Exception, so that ``except Exception`` in a handler does not catch it.
    """


class Stopped(BaseException):
    """Thrown when the worker stops: the task is released without using an attempt.

    A handler that raises it while the worker does not stop has failed.
    """


class Cancelled(LeaseLost):
    """Thrown when the task was cancelled; the worker reports nothing.

    The handler may catch it and undo its work.
    """

    def __init__(self, detail: str = "the task was cancelled") -> None:
        super().__init__(detail)


def failure_of(error: BaseException, *, private: bool) -> Failure:
    """Return type, message and traceback of *error*; a long traceback keeps its end.

    An error before the call of the handler has no traceback.

    With *private* True only the type is returned: messages and tracebacks may quote the payload.
    """
    kind = _fitted(type_of(error), _TYPE_ROOM)
    if private:
        return Failure(kind, _WITHHELD)
    formatted = traceback.TracebackException(type(error), error, from_the_handler(error))
    message = _fitted(str(formatted), _MESSAGE_ROOM)
    if not formatted.stack:  # the handler was not called
        return Failure(kind, message)
    room = _ROOM - _size(kind) - _size(message)
    return Failure(kind, message, _fitted("".join(formatted.format()), room, end=True))


def type_of(error: BaseException) -> str:
    """Return the name under which an error is filed: qualified, unless everybody knows it."""
    if isinstance(error, HardTimeLimit):
        return "TimeLimit"
    kind = type(error)
    known = kind.__module__ == "builtins" or kind.__module__.startswith(_OURS)
    return kind.__qualname__ if known else f"{kind.__module__}.{kind.__qualname__}"


def from_the_handler(error: BaseException) -> TracebackType | None:
    """Skip the frames that lead up to the handler: they are the same in every traceback."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_globals.get("__name__", "").startswith(_MACHINERY):
        place = place.tb_next
    return place


def _fitted(text: str, room: int, *, end: bool = False) -> str:
    """Return as much of *text* as takes *room* bytes of JSON: its beginning, or its *end*."""
    text = text.encode(errors="backslashreplace").decode()  # half a surrogate pair cannot be sent
    if _size(text) <= room:
        return text
    most, room = min(len(text), room), room - len(_CUT.encode())  # a character takes a byte or more
    if end:
        length = _longest(most, lambda length: _size(text[len(text) - length :]) <= room)
        return _CUT + text[len(text) - length :]
    length = _longest(most, lambda length: _size(text[:length]) <= room)
    return text[:length] + _CUT.rstrip()


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """The greatest length up to *most* that *fits*, as all shorter ones do; 0 without a look."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


def checked_choice(value: OnLargeResult | None) -> OnLargeResult | None:
    """Return *value* if it is a choice; None fails the attempt.  Raises InvalidRequest."""
    if value is None or value in _CHOICES:
        return value
    raise checks.wrong("on_large_result", f"must be one of {', '.join(_CHOICES)}, not {value!r}")


def kept_result(result: object, codec: Codec, choice: OnLargeResult | None) -> tuple[Any, str]:
    """The part of *result* that is kept, and why it is not all of it, if it is not.

    Raises PayloadTooLarge for one over the limit unless there is a *choice*, InvalidRequest for one
    that is no JSON, and whatever a codec of somebody else's does.
    """
    if result is None:
        return None, ""
    try:
        # As it is now, whatever becomes of it.
        return codec.decode(bytes(_carried(result, codec))), ""
    except PayloadTooLarge as error:
        if choice is None:
            raise
        why = error.errors[0].message
    return (None if choice == "drop" else _truncated(result, codec, why)), why


def _truncated(result: object, codec: Codec, why: str) -> object:
    """Return as much of the beginning of *result* as fits: of a text that, of else its JSON."""
    text = result if isinstance(result, str) else PLAIN.encode(result).decode()
    most = min(len(text), limits.RESULT_BYTES)
    length = _longest(most, lambda length: _fits(_beginning(result, text, length, why), codec))
    return _beginning(result, text, length, why)


def _beginning(result: object, text: str, length: int, why: str) -> object:
    beginning = text[:length] + _MARK
    if isinstance(result, str):
        return beginning
    return {"headrace": f"result truncated: {why}", "beginning": beginning}


def _fits(value: object, codec: Codec) -> bool:
    try:
        _carried(value, codec)
    except PayloadTooLarge:
        return False
    return True


def _carried(value: object, codec: Codec) -> msgspec.Raw:
    return carried(value, codec, field="result", most=limits.RESULT_BYTES)
