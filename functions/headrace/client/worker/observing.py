"""What a worker tells those who count and measure."""

from collections.abc import Iterable
from typing import Any

from headrace.client.app.execution import TaskRoute
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

_log = safe_logger("headrace.worker")


class Observer:
    """Is notified of what the worker does, in its threads; override the methods that you need.

    An error that a method raises is logged and changes nothing.
    """

    def taken(self, queue: str, count: int) -> None:
        """*count* tasks of *queue* were leased by one call."""

    def started(self, task: LeasedTask, route: TaskRoute) -> None:
        """A handler is about to run."""

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        """A handler has run; *outcome* is the status of its report, ``LOST`` or ``CANCELLED``."""

    def settled(self, task: LeasedTask, route: TaskRoute, outcome: str) -> None:
        """The service has taken the report of an attempt.

        *outcome* is the status of the report; instead of ``FAILED`` it is ``RETRY`` or ``DEAD``.
        """

    def lost(self, task: LeasedTask, why: str) -> None:
        """A lease, or the report of a task, was lost."""

    def cancelled(self, task: LeasedTask) -> None:
        """The worker has heard that *task* was cancelled; its result is ignored."""


class Observers(Observer):
    """Notifies several observers."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._all = tuple(observers)

    def _notify(self, name: str, *what: Any) -> None:  # noqa: ANN401 (of each event)
        for observer in self._all:
            try:
                getattr(observer, name)(*what)
            except Exception:  # noqa: BLE001 (an observer must not harm the work)
                _log.exception("%s failed", type(observer).__name__)

    def taken(self, queue: str, count: int) -> None:
        self._notify("taken", queue, count)

    def started(self, task: LeasedTask, route: TaskRoute) -> None:
        self._notify("started", task, route)

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        self._notify("ended", task, route, outcome, seconds)

    def settled(self, task: LeasedTask, route: TaskRoute, outcome: str) -> None:
        self._notify("settled", task, route, outcome)

    def lost(self, task: LeasedTask, why: str) -> None:
        self._notify("lost", task, why)

    def cancelled(self, task: LeasedTask) -> None:
        self._notify("cancelled", task)
