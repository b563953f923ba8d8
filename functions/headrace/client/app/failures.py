"""What a report says of an exception, within what the service keeps."""

import json
import traceback
from types import TracebackType
from typing import Final

from headrace.client.app.outcomes import HardTimeLimit
from headrace.client.sending import Failure
from headrace.domain import limits

_ROOM: Final = limits.ERROR_BYTES - 512  # attempt, time, worker and kind stand there too
_TYPE_ROOM: Final = 256
_MESSAGE_ROOM: Final = 1024
_MARK: Final = "… [cut] "
_OURS: Final = "headrace.client."
_MACHINERY: Final = "headrace.client.app."
_WITHHELD: Final = "withheld: what tasks carry is private, so see the worker's log"


def failure_of(error: BaseException, *, private: bool) -> Failure:
    """Return type, message and traceback of *error*, the traceback's end where it is too long.

    There is no traceback of what failed before the handler was reached.

    With *private* True only the type is told: messages and tracebacks quote what was worked on.
    """
    kind = _fitted(type_of(error), _TYPE_ROOM)
    if private:
        return Failure(kind, _WITHHELD)
    formatted = traceback.TracebackException(type(error), error, from_the_handler(error))
    message = _fitted(str(formatted), _MESSAGE_ROOM)
    if not formatted.stack:  # it never came to the handler, so there is no more to tell
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
    low, high = 0, min(len(text), room)  # a character takes at least a byte
    room -= len(_MARK.encode())
    while low < high:
        middle = (low + high + 1) // 2
        if _size(text[-middle:] if end else text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    if not end:
        return text[:low] + _MARK.rstrip()
    return _MARK + text[len(text) - low :]


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2
