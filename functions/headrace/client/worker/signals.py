"""SIGTERM and SIGINT as a call."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def signals_to(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* for SIGTERM and SIGINT during the block, if this is the main thread.

    The third signal does what it did before, for workers that do not end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    received = 0

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def received_one(_number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            restore()
        stop()

    for number in _NUMBERS:
        signal.signal(number, received_one)
    try:
        yield
    finally:
        restore()
