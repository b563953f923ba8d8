"""Reports of tasks: how attempts end in one, and how they are gathered, sent, and sent again."""

import asyncio
import random
import threading
from collections import deque
from collections.abc import Generator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.client.app.outcomes import Cancelled, HardTimeLimit, SoftTimeLimit, Stopped
from headrace.client.sending import Failure, Report
from headrace.client.threads import UNTIL_WOKEN
from headrace.client.worker import logs
from headrace.client.worker.groups import GroupLease
from headrace.client.worker.inflight import InflightTask, Interruption
from headrace.client.worker.service import (
    CallBackoff,
    ServiceClock,
    WorkerService,
    failure_instead,
    send_each,
)
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
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

_LINGER_SECONDS: Final = 0.005
_LONGEST_WAIT: Final = 2.0
_LATE_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 10.0
_TENTHS_BELOW: Final = 10

_log = safe_logger("headrace.worker")


class LeaseOver(LeaseLost):
    """Thrown into a handler whose lease is lost; a thread can only be thrown a class."""

    def __init__(self, detail: str = "the lease of this task is over") -> None:
        super().__init__(detail)


THROWN: Final[dict[Interruption, type[BaseException]]] = {
    Interruption.SOFT_LIMIT: SoftTimeLimit,
    Interruption.HARD_LIMIT: HardTimeLimit,
    Interruption.STOPPED: Stopped,
    Interruption.CANCELLED: Cancelled,
    Interruption.LEASE_LOST: LeaseOver,
}


def released(task: LeasedTask, *, delay: float | None = None) -> Report:
    """Give a task back, for *delay* seconds from now; it costs it no attempt."""
    return Report.on(task, "RELEASED", delay_in_seconds=delay)


def failed(task: LeasedTask, kind: str, message: str, *, retryable: bool = True) -> Report:
    """The report of an attempt that failed, and why."""
    return Report.on(task, "FAILED", error=Failure(kind, message), retryable=retryable)


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
    """The report to send after one that the stored state speaks against; None: there is none.

    A queue to move to is missing, say.
    """
    if result.outcome != "INVALID" or report.status not in {"SUCCEEDED", "MOVED"}:
        return None
    return failed(task, "InvalidReport", result.detail or "")


def was_cancelled(result: Reported, *, lease_lasted: bool) -> bool:
    """Whether a report was answered that its task was cancelled.

    Where no dead ones are kept a cancelled task is gone.  If its lease lasted when the report was
    sent nobody can have ended it but an operator, who does not want it done.
    """
    if result.outcome == "NOT_FOUND":
        return lease_lasted
    return result.dead_reason == "cancelled"


class ReportAnswer(NamedTuple):
    """The answer to a report, or why it came to nothing; ``cancelled``: its task was cancelled."""

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


class _Line:
    """The reports of one queue that are not answered yet, those under way included.

    One that is *apart* sends one at a time: those of a batch that this process could not send.
    """

    def __init__(self, backoff: CallBackoff, *, apart: bool) -> None:
        self.kept: deque[_Kept] = deque()
        self.backoff, self.apart = backoff, apart
        self.next_at = 0.0

    @property
    def size(self) -> int:
        """How many go out together."""
        return 1 if self.apart else BATCH

    def batch(self) -> list[_Kept]:
        """Return those to send next; they stay, so that they are never overlooked."""
        return [self.kept[place] for place in range(min(self.size, len(self.kept)))]


class Reporter:
    """Keeps the reports until the service has answered them; one thread sends.

    A report goes out at once when nothing else is at work or 25 are there, else after a few
    milliseconds.  While the service is away it is kept and sent again; after the end of its lease
    for another minute, in which a late report may still count: then the reaper has come by.
    What keeps the reports of one queue keeps those of no other.
    """

    def __init__(
        self,
        service: WorkerService,
        clock: ServiceClock,
        *,
        chance: random.Random,
    ) -> None:
        self._service, self._clock, self._chance = service, clock, chance
        self._lines: dict[tuple[str, bool], _Line] = {}  # by queue, and whether apart
        self._adding = threading.Lock()
        self.last_report_at = 0.0
        """When the service last answered reports (monotonic seconds)."""

    def __len__(self) -> int:
        return sum(len(line.kept) for line in list(self._lines.values()))

    @property
    def unreported(self) -> bool:
        """Whether there are reports that the service has not answered."""
        return len(self) > 0

    def groups(self) -> AbstractSet[GroupLease]:
        """The group leases of the tasks with such reports."""
        return {
            kept.held.group
            for line in list(self._lines.values())
            for kept in list(line.kept)
            if kept.held.group is not None
        }

    @property
    def is_retrying(self) -> bool:
        """Whether there are reports that the service does not take at present."""
        return any(
            line.kept and line.backoff.failures and not line.apart
            for line in list(self._lines.values())
        )

    def add(self, held: InflightTask, report: Report) -> bool:
        """Keep *report* to be sent soon; return whether that may bring the next batch forward."""
        line = self._line(held.task.queue)
        kept = _Kept(held, report, self._clock.monotonic())
        with self._adding:  # of two that come at once, one finds that it is the first
            line.kept.append(kept)
            return len(line.kept) in {1, BATCH}

    def send(self, *, idle: bool) -> Generator[ReportAnswer]:
        """Send one batch, if it is time for it, and give its answers: then it is forgotten.

        *idle*: nothing is at work that another report could come from.
        """
        now = self._clock.monotonic()
        due = [line for line in self._waiting() if self._due_at(line, idle=idle) <= now]
        if due:
            yield from self._send_of(min(due, key=lambda line: line.kept[0].since))

    def rest(self, *, idle: bool) -> float:
        """The seconds until there is a batch to send."""
        now = self._clock.monotonic()
        due = [self._due_at(line, idle=idle) for line in self._waiting()]
        return max(0.0, min(due, default=now + UNTIL_WOKEN) - now)

    def has_late(self, now: float) -> bool:
        """Whether there are reports on leases that have ended at *now*."""
        return any(
            kept.held.lease_ends <= now
            for line in list(self._lines.values())
            for kept in list(line.kept)
        )

    def hurry(self) -> None:
        """Try now what waits for the service to come back."""
        for line in self._waiting():
            line.next_at = 0.0

    def _line(self, queue: str, *, apart: bool = False) -> _Line:
        known = self._lines.get((queue, apart))
        if known is not None:
            return known
        line = _Line(CallBackoff(_LONGEST_WAIT, self._chance), apart=apart)
        return self._lines.setdefault((queue, apart), line)

    def _waiting(self) -> list[_Line]:
        return [line for line in list(self._lines.values()) if line.kept]

    def _due_at(self, line: _Line, *, idle: bool) -> float:
        if idle or len(line.kept) >= line.size:
            return line.next_at
        return max(line.next_at, line.kept[0].since + _LINGER_SECONDS)

    def _send_of(self, line: _Line) -> Generator[ReportAnswer]:
        """Send a batch of *line*, and see to those that stay."""
        batch = line.batch()
        again: list[_Kept] = []
        try:
            answers = self._send(batch)
        except NotFound:
            answers = _drop(line, batch, "its queue is gone")
        except Forbidden as error:
            answers = _drop(line, batch, f"the key may not report it: {error}")
        except (Unavailable, RateLimited, Unauthenticated) as error:
            again, answers = self._keep(line, batch, error)
        except Exception as error:  # noqa: BLE001 (a codec of somebody else's, say: later, and alone)
            answers = self._set_apart(line, batch, error)
        else:
            self.last_report_at = self._clock.monotonic()
            if line.backoff.worked() and not line.apart:
                _log.info("Reports are taken again")
        try:
            with logs.together():
                yield from answers
        finally:  # whatever becomes of the answers: none of these reports is to be sent twice
            for kept in batch:
                if kept not in again:
                    line.kept.remove(kept)
            if not line.kept:
                line.backoff.worked()  # nothing is left that would find the service back
                line.next_at = 0.0

    def _send(self, batch: list[_Kept]) -> list[ReportAnswer]:
        queue = batch[0].held.task.queue
        sent_at = self._clock.monotonic()
        results = send_each(
            self._service,
            queue,
            [kept.report for kept in batch],
            failure_instead,
            within=_ANSWER_SECONDS,
        )
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

    def _keep(
        self, line: _Line, batch: list[_Kept], error: HeadraceError
    ) -> tuple[list[_Kept], list[ReportAnswer]]:
        """Let *line* wait; return what still counts, to be sent again, and what no longer does."""
        if not line.backoff.failures:
            _log.warning("Reports are not taken, and kept: %s", error)
        line.next_at = self._clock.monotonic() + line.backoff.failed()
        return self._still_counting(batch, error)

    def _set_apart(self, line: _Line, batch: list[_Kept], error: Exception) -> list[ReportAnswer]:
        """Send those of *batch* one by one from now on: what is wrong may be with one only."""
        if not line.apart or not line.backoff.failures:
            _log.error("Reports could not be sent, and are kept", exc_info=error)
        if line.apart:
            line.next_at = self._clock.monotonic() + line.backoff.failed()
        counting, late = self._still_counting(batch, error)
        apart = self._line(batch[0].held.task.queue, apart=True)
        apart.kept.extend(counting)
        return late

    def _still_counting(
        self, batch: list[_Kept], error: Exception
    ) -> tuple[list[_Kept], list[ReportAnswer]]:
        now = self._clock.monotonic()
        counting, late = [], []
        for kept in batch:
            if now < kept.held.lease_ends + _LATE_SECONDS:
                kept.tried = True
                counting.append(kept)
            else:
                why = f"its lease was over before its report was taken: {error}"
                late.append(_dropped(kept, why))
        return counting, late


def _drop(line: _Line, batch: list[_Kept], why: str) -> list[ReportAnswer]:
    line.backoff.worked()  # it was an answer
    return [_dropped(kept, why) for kept in batch]


def _dropped(kept: _Kept, why: str) -> ReportAnswer:
    return ReportAnswer(kept.held, kept.report, dropped=why)
