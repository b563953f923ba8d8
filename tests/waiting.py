"""Wait for a condition with a deadline.  Tests use this instead of sleeping for a fixed time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_POLL_SECONDS: Final = 0.01


def until(
    condition: Callable[[], T | None],
    seconds: float = 10.0,
    *,
    what: str = "",
    every: float = _POLL_SECONDS,
) -> T:
    """Call *condition* every so many seconds until it returns something true, and return that.

    Raises:
        AssertionError: *seconds* have passed; the message says *what* was waited for.

    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, (
            f"not within {seconds:g} s: {what or getattr(condition, '__name__', condition)}"
        )
        time.sleep(every)
    return found
