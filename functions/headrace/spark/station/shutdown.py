"""The time that a batch has to end once its station was asked to stop."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_LOOK_EVERY: Final = 0.1  # seconds


class ShutdownDeadline:
    """Calls a batch off, for the length of a with block, when stopping it takes too long."""

    def __init__(
        self, stopping: threading.Event, seconds: float, call_off: Callable[[], None]
    ) -> None:
        """Prepare; *call_off* is called from another thread."""
        self._stopping = stopping
        self._seconds = seconds
        self._call_off = call_off
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shutdown-deadline", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._over.wait(_LOOK_EVERY):
                return
        if not self._over.wait(self._seconds):
            self._call_off()
