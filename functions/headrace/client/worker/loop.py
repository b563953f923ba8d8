"""A thread that takes one step after the other."""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

Step: TypeAlias = Callable[[], float]

UNTIL_WOKEN: Final = 3600.0
_AFTER_A_FAULT: Final = 1.0

_log = logging.getLogger("headrace.worker")


class Loop:
    """Takes steps in a thread of its own; each returns how many seconds to rest before the next.

    What runs is in the step, which a test takes by hand.
    """

    def __init__(self, name: str, step: Step) -> None:
        self._step = step
        self._stopping = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Take the next step now."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """Take no further step."""
        self._stopping = True
        self._woken.set()

    def join(self, timeout: float) -> bool:
        """Wait up to *timeout* seconds for the last step; return whether it is over."""
        if self._thread.ident is None:
            return True
        self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._woken.clear()
            try:
                rest = self._step()
            except Exception:  # noqa: BLE001 (the worker goes on, and says what is wrong with it)
                _log.exception("A fault of the worker itself, in thread %s", self._thread.name)
                rest = _AFTER_A_FAULT
            if rest > 0 and not self._stopping:
                self._woken.wait(rest)
