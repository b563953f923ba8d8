"""Timers: what runs again and again beside the requests."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_STOP_TIMEOUT_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class Timer:
    """Calls `action` at once and then every `interval_seconds`, never twice at a time.

    A run that fails is logged and the next one comes all the same; a run that takes longer than
    the interval is followed by the next at once, and what was missed meanwhile is left out.
    """

    def __init__(self, name: str, interval_seconds: float, action: Callable[[], object]) -> None:
        """Prepare; nothing runs before `start`."""
        self._name = name
        self._interval = interval_seconds
        self._action = action
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"timer {name}", daemon=True)

    def start(self) -> None:
        """Begin with the first run."""
        self._thread.start()

    def stop(self) -> None:
        """Start no more runs, and wait up to five seconds for the one under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                self._action()
            except Exception:  # noqa: BLE001 (the process edge: logged, and the timer goes on)
                _log.exception("%s failed; it runs again in time", self._name)
            self._stopping.wait(max(0.0, started + self._interval - time.monotonic()))
