"""Time limits, and leases that end while the service cannot be reached."""

from collections.abc import Callable
from math import inf
from typing import Final

from headrace.client.worker.inflight import InflightTask, InflightTasks, Interruption
from headrace.client.worker.loop import worker_thread
from headrace.client.worker.service import Monotonic

_TICK_SECONDS: Final = 0.1
"""How late a limit may be."""

_AGAIN_SECONDS: Final = 1.0
"""How long a handler may swallow the hard limit before it comes again."""


class Timekeeper:
    """Interrupts handlers whose time is up, from a thread that never waits for the network."""

    def __init__(
        self,
        inflight: InflightTasks,
        monotonic: Monotonic,
        lost: Callable[[InflightTask, str], None],
    ) -> None:
        """*lost* is called for leases that ended."""
        self._inflight, self._monotonic, self._lost = inflight, monotonic, lost
        self.loop = worker_thread("time-limits", self.step)

    def step(self) -> float:
        """Look at everything that is held; return the seconds until the next look."""
        now = self._monotonic()
        for held in self._inflight.all():
            if held.lost:
                continue
            if held.lease_ends <= now:
                self._lost(held, "it ended without word from the service")
            elif held.hard_at <= now:
                held.hard_at = now + _AGAIN_SECONDS
                held.interrupt(Interruption.HARD_LIMIT)
            elif held.soft_at <= now:
                held.soft_at = inf
                held.interrupt(Interruption.SOFT_LIMIT)
        return _TICK_SECONDS
