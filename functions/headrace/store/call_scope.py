"""What holds for the calls of a block: what they cost, whom they are for, when they must end."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


class during(Generic[T]):  # noqa: N801  a block, as those of contextlib
    """A block in which *variable* is *value*, for what every call goes through.

    A generator of `contextlib` takes five times as long.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T] | ContextVar[T | None], value: T) -> None:
        self._variable: ContextVar[Any] = variable
        self._value = value
        self._token: Token[Any] | None = None

    def __enter__(self) -> T:
        """Return the value."""
        self._token = self._variable.set(self._value)
        return self._value

    def __exit__(self, *_: object) -> None:
        """Let the variable be what it was."""
        if self._token is not None:
            self._variable.reset(self._token)


@dataclass(slots=True)
class Meter:
    """What calls cost, in DynamoDB's write and read units."""

    write: float = 0.0
    read: float = 0.0


_METER: Final[ContextVar[Meter | None]] = ContextVar("headrace_meter", default=None)


def metered() -> during[Meter]:
    """Collect what the calls of this block, on this thread, cost."""
    return during(_METER, Meter())


def charge(*, write: float = 0.0, read: float = 0.0) -> None:
    """Add to the meter of the block that is being measured, if there is one."""
    meter = _METER.get()
    if meter is not None:
        meter.write += write
        meter.read += read


_SEES: Final[ContextVar[Callable[[str], bool] | None]] = ContextVar("headrace_sees", default=None)


def restricted_to(
    covers: Callable[[str], bool] | None,
) -> during[Callable[[str], bool] | None]:
    """Do a block for somebody who may know only of the queues that *covers* holds for.

    What they are shown of its cost then hangs on those queues alone; None is all queues.
    """
    return during(_SEES, covers)


def restricted() -> bool:
    """Tell whether the block at hand is for somebody who may not know of all queues."""
    return _SEES.get() is not None


def visible(queue: str) -> bool:
    """Tell whether whoever the block at hand is for may know of *queue*."""
    covers = _SEES.get()
    return covers is None or covers(queue)


@contextmanager
def flat_rate(*, write: float = 0.0, read: float = 1.0) -> Iterator[Meter]:
    """Do a block whose cost hangs on queues of others too.

    Whoever may not know of them is charged what the meter says in the end, whatever it cost.
    """
    rate = Meter(write, read)
    if _SEES.get() is None:
        yield rate
        return
    with metered():
        yield rate
    charge(write=rate.write, read=rate.read)


CALL_SECONDS: Final = 5.0
"""What one request to the table takes at most, from connecting to its answer."""

_SECONDS_LEFT: Final[ContextVar[Callable[[], float] | None]] = ContextVar(
    "headrace_seconds_left", default=None
)


def ends_within(
    seconds: float, clock: Callable[[], float] = time.monotonic
) -> during[Callable[[], float] | None]:
    """Let a store begin no request in this block that could take longer than *seconds* from now.

    It raises Unavailable instead.  *clock* counts seconds.
    """
    end = clock() + seconds
    return during(_SECONDS_LEFT, lambda: end - clock())


def seconds_left() -> float:
    """Return how long the requests of a store may still take; without end outside of a block."""
    left = _SECONDS_LEFT.get()
    return math.inf if left is None else left()
