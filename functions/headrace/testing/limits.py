"""Time limits of handlers in the test kit: in real time, thrown in as a worker does."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.client.app.execution import TaskRoute
from headrace.client.worker.inflight import Interruption, RunningHandler

_AGAIN_SECONDS: Final = 1.0


@contextmanager
def time_limits(route: TaskRoute, attempt: Callable[[], RunningHandler]) -> Iterator[None]:
    """Interrupt what runs in the block when the limits of *route* are over.

    *attempt* is called in the thread that runs it.  Without limits no thread is started.
    """
    due = [
        (seconds, why)
        for seconds, why in (
            (route.soft_timeout, Interruption.SOFT_LIMIT),
            (route.hard_timeout, Interruption.HARD_LIMIT),
        )
        if seconds is not None
    ]
    if not due:
        yield
        return
    running, over, lock = attempt(), threading.Event(), threading.Lock()

    def watch() -> None:
        began = time.monotonic()
        for seconds, why in due:
            wait = seconds
            while not over.wait(max(0.0, began + wait - time.monotonic())):
                with lock:
                    if not over.is_set():
                        running.interrupt(why)
                if why is Interruption.SOFT_LIMIT:
                    break
                wait += _AGAIN_SECONDS  # for a handler that swallows it

    watcher = threading.Thread(target=watch, name="headrace-test-limits", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:  # from here on nothing is thrown
            over.set()
            running.ended()
