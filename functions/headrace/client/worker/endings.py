"""The report of an attempt that ended otherwise than by its handler's own word."""

import asyncio
import logging
from typing import Final

from headrace.client.app.outcomes import HardTimeLimit, SoftTimeLimit, Stopped
from headrace.client.models import LeasedTask
from headrace.client.sending import Failure, Report
from headrace.client.worker.holding import Interruption
from headrace.domain.errors import LeaseLost

_log = logging.getLogger("headrace.worker")


class LeaseOver(LeaseLost):
    """Thrown into a handler whose lease is lost; a thread can only be thrown a class."""

    def __init__(self, detail: str = "the lease of this task is over") -> None:
        super().__init__(detail)


THROWN: Final[dict[Interruption, type[BaseException]]] = {
    Interruption.SOFT_LIMIT: SoftTimeLimit,
    Interruption.HARD_LIMIT: HardTimeLimit,
    Interruption.STOPPED: Stopped,
    Interruption.LEASE_LOST: LeaseOver,
}


def released(task: LeasedTask) -> Report:
    """Give a task back; it costs it no attempt."""
    return Report(task_id=task.id, lease_id=task.lease.id, status="RELEASED")


def failed(task: LeasedTask, kind: str, message: str, *, retryable: bool = True) -> Report:
    """Say that an attempt failed, and why."""
    return Report(
        task_id=task.id,
        lease_id=task.lease.id,
        status="FAILED",
        error=Failure(kind, message),
        retryable=retryable,
    )


def report_of(error: BaseException, task: LeasedTask) -> Report | None:
    """Return the report of an attempt that *error* came out of; None when the lease is lost."""
    if isinstance(error, asyncio.CancelledError) and error.args:
        reason = error.args[0]
        error = reason if isinstance(reason, BaseException) else Stopped()
    if isinstance(error, LeaseLost):
        return None
    if isinstance(error, Stopped | asyncio.CancelledError):
        return released(task)
    if isinstance(error, HardTimeLimit | SoftTimeLimit):
        return failed(task, "TimeLimit", "the time limit was over")
    _log.error("Task %s: a fault of the app itself", task.id, exc_info=error)
    return failed(task, type(error).__name__, str(error))
