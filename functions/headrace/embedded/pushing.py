"""Dispatchers of the queues that have a target, in the process that runs the timers."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.runtime.pushing import dispatcher_of
from headrace.runtime.service import Service
from headrace.safe_logging import safe_logger

_LOOK_SECONDS: Final = 1.0
_ALL_EVERY: Final = 10.0  # seconds between looks at all queues for targets
_WAIT_SECONDS: Final = 0.5  # for the next task, where waiting costs nothing
_END_WITHIN: Final = 5.0

_log: Final = safe_logger("headrace.push")


class Dispatchers:
    """Starts a dispatcher in a thread for each queue whose tasks are due and that has none."""

    def __init__(self, use: Service, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._use, self._monotonic = use, monotonic
        self._running: dict[tuple[str, int], threading.Thread] = {}
        self._stopping = threading.Event()
        self._known: list[str] = []
        self._looked_at = float("-inf")

    def arrived(self, names: Iterable[str]) -> None:
        """Start what is to send tasks that came to wait in these queues."""
        for queue, number in self._use.push_waking.for_arrivals(names):
            self._start(queue, number)

    def step(self) -> float:
        """Start what is to send tasks that fall due; return the seconds to rest."""
        push, now = self._use.push, self._monotonic()
        if now - self._looked_at >= _ALL_EVERY:
            self._known = [name for name, _ in self._use.push_waking.targets()]
            self._looked_at = now
        for name in self._known:
            target, due = push.target_of(name), push.seconds_to_work(name)
            if target is not None and due is not None and due <= _LOOK_SECONDS:
                for number in range(target.seats):
                    self._start(name, number)
        return _LOOK_SECONDS

    def stop(self) -> None:
        """Let all end: what is under way is reported, what is not goes back."""
        self._stopping.set()
        until = self._monotonic() + _END_WITHIN
        for thread in list(self._running.values()):
            thread.join(max(0.0, until - self._monotonic()))

    def _start(self, queue: str, number: int) -> None:
        running = self._running.get((queue, number))
        if self._stopping.is_set() or (running is not None and running.is_alive()):
            return
        thread = threading.Thread(
            target=self._run, args=(queue, number), name=f"headrace-push-{queue}", daemon=True
        )
        self._running[queue, number] = thread
        thread.start()

    def _run(self, queue: str, number: int) -> None:
        try:
            loop = dispatcher_of(
                self._use, queue, number, stopping=self._stopping, wait_seconds=_WAIT_SECONDS
            )
            if loop is not None:
                loop.run()
        except Unavailable as error:
            _log.warning("Nothing is sent of queue %s for now: %s", queue, error)
        except Exception:  # noqa: BLE001 (the edge of a thread: what is wrong is logged, and it is started again)
            _log.exception("The dispatcher of queue %s failed; it starts again in time", queue)
