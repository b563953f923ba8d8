"""What a worker tells those who count and measure."""

from collections.abc import Callable, Iterable
from typing import Concatenate, ParamSpec

from headrace.client.app.execution import TaskRoute
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

P = ParamSpec("P")

_log = safe_logger("headrace.worker")


class Observer:
    """Hears what the worker does, from the threads that do it; overwrite what is wanted.

    What it raises is logged and changes nothing.
    """

    def taken(self, queue: str, count: int) -> None:
        """*count* tasks of *queue* were leased by one call."""

    def started(self, task: LeasedTask, route: TaskRoute) -> None:
        """A handler is about to run."""

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        """A handler has run; *outcome* is the status of its report, ``LOST`` or ``CANCELLED``."""

    def lost(self, task: LeasedTask, why: str) -> None:
        """A lease, or the report of a task, was lost."""

    def cancelled(self, task: LeasedTask) -> None:
        """The worker has heard that *task* was cancelled; what came of it counts for nothing."""


def _to_all(
    note: Callable[Concatenate[Observer, P], None],
) -> Callable[Concatenate["Observers", P], None]:
    """Make a method of *note*: it notifies all of them."""
    name = note.__name__

    def notify(self: "Observers", /, *what: P.args, **more: P.kwargs) -> None:
        for observer in self.all:
            try:
                getattr(observer, name)(*what, **more)
            except Exception:  # noqa: BLE001 (who only looks on must not harm the work)
                _log.exception("%s failed", type(observer).__name__)

    return notify


class Observers(Observer):
    """Several of them."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.all = tuple(observers)

    taken = _to_all(Observer.taken)
    started = _to_all(Observer.started)
    ended = _to_all(Observer.ended)
    lost = _to_all(Observer.lost)
    cancelled = _to_all(Observer.cancelled)
