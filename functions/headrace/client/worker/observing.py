"""Events of a worker, for metrics."""

from collections.abc import Iterable

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


def notify(observers: Iterable[Observer], event: str, *what: object) -> None:
    """Call the method *event* of each of *observers*; log the errors that they raise."""
    for observer in observers:
        try:
            getattr(observer, event)(*what)
        except Exception:  # noqa: BLE001 (an observer must not harm the work)
            _log.exception("%s failed", type(observer).__name__)
