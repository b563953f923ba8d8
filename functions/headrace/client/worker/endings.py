"""The report of an attempt that ended otherwise than by its handler's own word."""

import asyncio
import logging
from typing import Final

from headrace.client.app.outcomes import HardTimeLimit, SoftTimeLimit, Stopped
from headrace.client.models import LeasedTask, Reported
from headrace.client.sending import Failure, Report
from headrace.client.worker.inflight import Interruption
from headrace.domain.errors import LeaseLost
from headrace.domain.task import State

_TENTHS_BELOW: Final = 10

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


def released(task: LeasedTask, *, delay: float | None = None) -> Report:
    """Give a task back, for *delay* seconds from now; it costs it no attempt."""
    return Report(
        task_id=task.id, lease_id=task.lease.id, status="RELEASED", delay_in_seconds=delay
    )


def failed(task: LeasedTask, kind: str, message: str, *, retryable: bool = True) -> Report:
    """The report of an attempt that failed, and why."""
    return Report(
        task_id=task.id,
        lease_id=task.lease.id,
        status="FAILED",
        error=Failure(kind, message),
        retryable=retryable,
    )


def came_of(report: Report, result: Reported, task: LeasedTask) -> str:
    """Say what the service made of a failed attempt, to stand behind that; "" for any other."""
    if report.status != "FAILED":
        return ""
    if result.state is State.ENQUEUED and result.scheduled_at is not None and result.now:
        wait = max(0.0, (result.scheduled_at - result.now).total_seconds())
        return f"; again in {wait:.{0 if wait >= _TENTHS_BELOW else 1}f} s"
    if not report.retryable:
        return " and is dead: rejected"
    if task.attempts > task.max_retries:
        return " and is dead: no retries left"
    return " and is dead: it expires before its next attempt" if result.state is State.DEAD else ""


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
