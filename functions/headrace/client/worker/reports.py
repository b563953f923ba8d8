"""Reports of tasks: which report an attempt ends in, and sending them until they are answered."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from headrace.client.app.outcomes import HardTimeLimit, SoftTimeLimit, Stopped
from headrace.client.sending import Failure, Report
from headrace.client.threads import UNTIL_WOKEN
from headrace.client.worker.inflight import InflightTask
from headrace.client.worker.service import (
    ANSWER_SECONDS,
    CallBackoff,
    WorkerParts,
    WorkerService,
)
from headrace.domain.errors import (
    Forbidden,
    InvalidRequest,
    LeaseLost,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.limits import BATCH
from headrace.domain.task import State
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask, Reported

Refused: TypeAlias = InvalidRequest | Forbidden
Instead: TypeAlias = Callable[[Report, Refused], Report | None]

_LINGER_SECONDS: Final = 0.005
"""How long a report waits for others to share its call, while handlers run."""

_LATE_SECONDS: Final = 60.0
"""How long after the end of its lease a report may count: then the reaper has come by."""


_log = safe_logger("headrace.worker")


# ------------------------------------------------------------------------------ which report it is


def released(task: LeasedTask, *, delay: float | None = None) -> Report:
    """Give a task back, for *delay* seconds from now; it costs it no attempt."""
    return Report.on(task, "RELEASED", delay_in_seconds=delay)


def failed(task: LeasedTask, kind: str, message: str, *, retryable: bool = True) -> Report:
    """The report of an attempt that failed, and why."""
    return Report.on(task, "FAILED", error=Failure(kind, message), retryable=retryable)


def settled_as(report: Report, result: Reported) -> str:
    """Return the status of *report*; instead of ``FAILED`` it is ``RETRY`` or ``DEAD``."""
    if report.status != "FAILED":
        return report.status
    return "DEAD" if result.state is State.DEAD else "RETRY"


def next_step(report: Report, result: Reported, task: LeasedTask) -> str:
    """Say what happens after a failed attempt, for the log; "" after any other."""
    if report.status != "FAILED":
        return ""
    if result.state is State.ENQUEUED and result.scheduled_at is not None and result.now:
        wait = max(0.0, (result.scheduled_at - result.now).total_seconds())
        return f"; again in {wait:.{0 if wait >= 10 else 1}f} s"  # noqa: PLR2004 (no tenths then)
    if not report.retryable:
        return " and is dead: rejected"
    if task.attempts > task.max_retries:
        return " and is dead: no retries left"
    return " and is dead: it expires before its next attempt" if result.state is State.DEAD else ""


def report_of(error: BaseException, task: LeasedTask, *, stopping: bool) -> Report | None:
    """Return the report of an attempt that raised *error* outside its handler, or None.

    None means that the lease is lost.  *stopping* says that the worker has asked the attempt to
    end; without it a task is never released, because it could be released for ever.
    """
    if isinstance(error, LeaseLost):
        return None
    if stopping and isinstance(error, Stopped | asyncio.CancelledError):
        return released(task)
    if isinstance(error, HardTimeLimit | SoftTimeLimit):
        return failed(task, "TimeLimit", "the time limit was over")
    _log.error("Task %s: a fault of the app itself", task.id, exc_info=error)
    return failed(task, type(error).__name__, str(error))


def instead_of_invalid(report: Report, result: Reported, task: LeasedTask) -> Report | None:
    """Return the report to send after an INVALID one, or None.

    For example, the queue to move to is missing.
    """
    if result.outcome != "INVALID" or report.status not in {"SUCCEEDED", "MOVED"}:
        return None
    return failed(task, "InvalidReport", result.detail or "")


def was_cancelled(result: Reported, *, lease_lasted: bool) -> bool:
    """Whether the answer to a report means that its task was cancelled.

    Where no dead tasks are kept a cancelled task is not found.  If its lease lasted when the
    report was sent, only an operator can have ended it.
    """
    if result.outcome == "NOT_FOUND":
        return lease_lasted
    return result.dead_reason == "cancelled"


# --------------------------------------------------------------------------------------- one call


def send_each(
    service: WorkerService,
    queue: str,
    reports: Sequence[Report],
    instead: Instead,
    *,
    within: float,
) -> list[Reported | None]:
    """Send up to 25 *reports* and return one result each; None where there was nothing to send.

    If the service or the codec refuses them, each half is sent alone.  A single report that is
    refused is replaced once by what *instead* returns.

    Raises other errors, and Forbidden if the key may not report on tasks of this queue.
    """
    try:
        return list(service.report(queue, reports, within=within))
    except (InvalidRequest, Forbidden) as error:
        if len(reports) == 1:
            if isinstance(error, Forbidden) and not _reaches_out(reports[0]):
                raise
            return [_send_instead(service, queue, instead(reports[0], error), within=within)]
    half = len(reports) // 2
    parts = (reports[:half], reports[half:])
    return [
        one for part in parts for one in send_each(service, queue, part, instead, within=within)
    ]


def _send_instead(
    service: WorkerService, queue: str, report: Report | None, *, within: float
) -> Reported | None:
    if report is None:
        return None
    try:
        (result,) = service.report(queue, [report], within=within)
    except (InvalidRequest, Forbidden):
        return None
    return result


def _reaches_out(report: Report) -> bool:
    """Whether it asks for something in another queue, which a key may not reach."""
    return report.status == "MOVED" or bool(report.spawn)


def failure_instead(report: Report, refused: Refused) -> Report | None:
    """Return the report that a task failed, in place of a refused one: it would fail again."""
    if report.status in {"RELEASED", "INFLIGHT"}:
        return None
    problems = "; ".join(f"{field.field} {field.message}" for field in refused.errors)
    error = Failure(type(refused).__name__, f"its report was refused: {problems or refused.detail}")
    return Report(
        task_id=report.task_id,
        lease_id=report.lease_id,
        status="FAILED",
        error=error,
        retryable=False,
    )


def without_progress(report: Report, _refused: Refused) -> Report | None:
    """Keep the lease of a task whose progress cannot be taken."""
    return None if report.progress is None else replace(report, progress=None)


# ------------------------------------------------------------------------------- until it is taken


class ReportAnswer(NamedTuple):
    """The answer to a report, or why it was dropped; ``cancelled``: its task was cancelled."""

    held: InflightTask
    report: Report
    result: Reported | None = None
    dropped: str = ""
    cancelled: bool = False


@dataclass(slots=True, eq=False)
class _Kept:
    """A report that the service has not answered yet."""

    held: InflightTask
    report: Report
    since: float
    tried: bool = False


class _QueueReports:
    """The reports of one queue that are not answered yet, those under way included.

    ``batch_size`` is 1 after an error of this process: one report of the batch may be its cause.
    """

    def __init__(self, backoff: CallBackoff) -> None:
        self.kept: deque[_Kept] = deque()
        self.backoff = backoff
        self.batch_size = BATCH
        self.next_at = 0.0

    def due_at(self, *, idle: bool) -> float:
        """Return when to send the next batch (monotonic)."""
        if idle or len(self.kept) >= self.batch_size:
            return self.next_at
        return max(self.next_at, self.kept[0].since + _LINGER_SECONDS)


class Reporter:
    """Keeps the reports until the service has answered them; one thread sends.

    A report goes out at once when no handler runs or 25 are there, else after a few milliseconds.
    While the service is away it is kept and sent again, until a minute after the end of its lease.
    Each queue waits by itself.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._service, self._clock, self._chance = parts.service, parts.clock, parts.chance
        self._queues: dict[str, _QueueReports] = {}
        self._adding = threading.Lock()
        self.last_report_at = 0.0
        """When the service last answered reports (monotonic seconds)."""

    def __len__(self) -> int:
        """Return how many reports the service has not answered."""
        return sum(len(queue.kept) for queue in list(self._queues.values()))

    def is_behind(self, now: float, *, most: int) -> bool:
        """Whether reports are not taken, late for their lease, or more than *most*."""
        waiting = self._waiting()
        return sum(len(queue.kept) for queue in waiting) >= most or any(
            queue.backoff.failures or any(kept.held.lease_ends <= now for kept in list(queue.kept))
            for queue in waiting
        )

    def add(self, held: InflightTask, report: Report) -> bool:
        """Keep *report* to be sent soon; return whether that may bring the next batch forward."""
        kept = _Kept(held, report, self._clock.monotonic())
        with self._adding:  # of two that come at once, one finds that it is the first
            queue = self._queues.get(held.task.queue)
            if queue is None:
                queue = _QueueReports(CallBackoff(self._chance))
                self._queues[held.task.queue] = queue
            queue.kept.append(kept)
            return len(queue.kept) in {1, BATCH}

    def send(self, *, idle: bool) -> Generator[ReportAnswer]:
        """Send one batch, if it is time for it, and give its answers: then it is forgotten.

        *idle*: no handler runs that another report could come from.
        """
        now = self._clock.monotonic()
        due = [queue for queue in self._waiting() if queue.due_at(idle=idle) <= now]
        if not due:
            return
        queue = min(due, key=lambda queue: queue.kept[0].since)
        batch = [queue.kept[place] for place in range(min(queue.batch_size, len(queue.kept)))]
        answers, again = self._try(queue, batch)
        queue.kept.extend(again)  # before the batch is removed, so that `len` counts them
        for kept in batch:
            queue.kept.remove(kept)  # the first of two
        if not queue.kept:
            queue.batch_size, queue.next_at = BATCH, 0.0
            queue.backoff.worked()
        yield from answers

    def rest(self, *, idle: bool) -> float:
        """The seconds until there is a batch to send."""
        now = self._clock.monotonic()
        due = [queue.due_at(idle=idle) for queue in self._waiting()]
        return max(0.0, min(due, default=now + UNTIL_WOKEN) - now)

    def hurry(self) -> None:
        """Try now what waits for the service to come back."""
        for queue in self._waiting():
            queue.next_at = 0.0

    def _waiting(self) -> list[_QueueReports]:
        return [queue for queue in list(self._queues.values()) if queue.kept]

    def _try(
        self, queue: _QueueReports, batch: list[_Kept]
    ) -> tuple[list[ReportAnswer], list[_Kept]]:
        """Send *batch*; return the answers, and the reports to send again."""
        try:
            answers = self._send(batch)
        except NotFound:
            answers = [_dropped(kept, "its queue is gone") for kept in batch]
        except Forbidden as error:
            answers = [_dropped(kept, f"the key may not report it: {error}") for kept in batch]
        except (Unavailable, RateLimited, Unauthenticated) as error:
            if not queue.backoff.failures:
                _log.warning("Reports are not taken, and kept: %s", error)
            return self._put_off(queue, batch, error)
        except Exception as error:  # noqa: BLE001 (of a codec of the program, for example)
            if not queue.backoff.failures:
                _log.error("Reports could not be sent, and are kept", exc_info=error)
            queue.batch_size = 1
            return self._put_off(queue, batch, error)
        else:
            self.last_report_at = self._clock.monotonic()
        if queue.backoff.worked():
            _log.info("Reports are taken again")
        return answers, []

    def _put_off(
        self, queue: _QueueReports, batch: list[_Kept], error: Exception
    ) -> tuple[list[ReportAnswer], list[_Kept]]:
        """Let *queue* wait; drop the reports that no longer count, and keep the others."""
        now = self._clock.monotonic()
        queue.next_at = now + queue.backoff.failed()
        late, again = [], []
        for kept in batch:
            if now >= kept.held.lease_ends + _LATE_SECONDS:
                why = f"its lease was over before its report was taken: {error}"
                late.append(_dropped(kept, why))
            else:
                kept.tried = True
                again.append(kept)
        return late, again

    def _send(self, batch: list[_Kept]) -> list[ReportAnswer]:
        queue = batch[0].held.task.queue
        sent_at = self._clock.monotonic()
        reports = [kept.report for kept in batch]
        results = send_each(self._service, queue, reports, failure_instead, within=ANSWER_SECONDS)
        for now in {result.now for result in results if result is not None}:  # of few answers
            if now is not None:
                self._clock.heard(now, sent_at=sent_at)
        answers = []
        for kept, result in zip(batch, results, strict=True):
            if result is None:
                answers.append(_dropped(kept, "the service refused its report"))
            elif answer := self._answered(kept, result, sent_at):
                answers.append(answer)
        return answers

    def _answered(self, kept: _Kept, result: Reported, sent_at: float) -> ReportAnswer | None:
        if result.outcome == "OK":
            return ReportAnswer(kept.held, kept.report, result)
        if instead := instead_of_invalid(kept.report, result, kept.held.task):
            self.add(kept.held, instead)
        elif result.outcome == "NOT_FOUND" and kept.tried:
            _log.info("Task %s is gone: an earlier try of its report has counted", result.task_id)
        elif was_cancelled(result, lease_lasted=sent_at < kept.held.lease_ends):
            return ReportAnswer(kept.held, kept.report, cancelled=True)
        else:
            return _dropped(kept, f"the service says {result.outcome}")
        return None


def _dropped(kept: _Kept, why: str) -> ReportAnswer:
    return ReportAnswer(kept.held, kept.report, dropped=why)
