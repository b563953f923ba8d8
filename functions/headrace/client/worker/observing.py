"""What a worker tells those who count and measure."""

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec

from headrace.client.app.execution import TaskRoute
from headrace.wire.tasks import LeasedTask

P = ParamSpec("P")

_log = logging.getLogger("headrace.worker")


class Observer:
    """Hears what the worker does, from the threads that do it; overwrite what is wanted.

    What it raises is logged and changes nothing.
    """

    def taken(self, queue: str, count: int) -> None:
        """*count* tasks of *queue* were leased by one call."""

    def started(self, task: LeasedTask, route: TaskRoute) -> None:
        """A handler is about to run."""

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        """A handler has run; *outcome* is the status of its report, or ``LOST``."""

    def lost(self, task: LeasedTask, why: str) -> None:
        """A lease, or the report of a task, was lost."""


class Observers(Observer):
    """Several of them."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._all = tuple(observers)

    def taken(self, queue: str, count: int) -> None:
        """Notify all."""
        for observer in self._all:
            _notify(observer.taken, queue, count)

    def started(self, task: LeasedTask, route: TaskRoute) -> None:
        """Notify all."""
        for observer in self._all:
            _notify(observer.started, task, route)

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        """Notify all."""
        for observer in self._all:
            _notify(observer.ended, task, route, outcome, seconds)

    def lost(self, task: LeasedTask, why: str) -> None:
        """Notify all."""
        for observer in self._all:
            _notify(observer.lost, task, why)


def _notify(note: Callable[P, None], *what: P.args, **more: P.kwargs) -> None:
    try:
        note(*what, **more)
    except Exception:  # noqa: BLE001 (who only looks on must not harm the work)
        _log.exception("%s failed", type(getattr(note, "__self__", note)).__name__)
