"""Those who wait for tasks in one process: together they look no oftener than it can stand.

In Lambda a process has one caller.  The local service may have hundreds, each of whom would look
ten times a second.
"""

import threading
from dataclasses import dataclass, field
from typing import Final

LOOKS_PER_SECOND: Final = 500
"""Of all who wait; a look takes about half a millisecond of CPU."""


@dataclass(slots=True)
class Crowd:
    """Counts those who sleep; ``with crowd:`` is one of them."""

    _asleep: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pause(self, usual: float) -> float:
        """Return how many seconds to sleep before one looks again, at least *usual*."""
        return max(usual, (self._asleep + 1) / LOOKS_PER_SECOND)

    def __enter__(self) -> None:
        with self._lock:
            self._asleep += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._asleep -= 1
