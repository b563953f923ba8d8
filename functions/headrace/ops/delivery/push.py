"""The dispatcher: leases tasks of a queue with a target, and reports the target's answers.

It is a worker in the service itself.  Each dispatcher has a seat of the queue, and its leases are
under one group lease: one write each twenty seconds renews both.  When a dispatcher dies, its
leases lapse and another one takes the seat.

This module has its calls of the store; ``runtime.pushing`` has its loop and the threads that send.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import HeadraceError, LeaseLost, NotFound, Unavailable
from headrace.domain.lease import LeaseGroup
from headrace.domain.lifecycle import Action
from headrace.domain.push import Target
from headrace.domain.push_messages import PushLimit, TargetAnswer, report_of
from headrace.domain.queue import Queue
from headrace.domain.retry import DEFAULT_RETRY
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportStatus,
    TaskReport,
    WorkerError,
)
from headrace.ops.shared.lanes import ShardReader
from headrace.ops.shared.push_status import SEATS, PushCounts, seat_name
from headrace.ops.shared.seats import LASTS, RENEWED_EVERY, Seat, has_ended
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_TOGETHER: Final = 25  # tasks of one dequeue
_NOTED_EVERY: Final = 1.0  # seconds, when something changes that people should see
_STATUS: Final = {
    Action.SUCCEED: ReportStatus.SUCCEEDED,
    Action.RELEASE: ReportStatus.RELEASED,
    Action.FAIL: ReportStatus.FAILED,
}

_log: Final = safe_logger(__name__)


class PushDispatch(ServicePart):
    """Begins runs of dispatchers; *deliveries* lease for dispatchers."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.deliveries = copy(service.deliveries)
        self.deliveries.pushing = True

    def begin(self, queue: str, number: int = 0) -> "PushRun | None":
        """Take seat *number* of *queue*; None where there is no such seat, or it is taken.

        Raises Unavailable.
        """
        target = self.target_of(queue)
        if target is None or number >= target.seats:
            return None
        seat = Seat(
            self.store,
            self.now,
            self.service.monotonic,
            kind=SEATS,
            name=seat_name(queue, number),
            # Execution environments of Lambda share process ids and host names.
            is_gone=has_ended if self.service.settings.function is None else None,
        )
        if not seat.take({}):
            return None
        group = self.service.leases.open(None, keepalive=LASTS.total_seconds())
        return PushRun(self, queue, number, seat, group, PushLimit(target.threads(number)))

    def target_of(self, queue: str) -> Target | None:
        """Return the target of *queue*; None without a target or a queue."""
        try:
            return self.service.queues.cached(queue).settings.target
        except NotFound:
            return None

    def seconds_to_work(self, queue: str) -> float | None:
        """Return in how many seconds a task of *queue* falls due; None for none that is seen."""
        try:
            settings = self.service.queues.cached(queue)
        except NotFound:
            return None
        now, first = self.now(), None
        if settings.settings.target is None or settings.is_paused(now):
            return None
        for shard in range(settings.shards_of(State.ENQUEUED)):
            reader = ShardReader(self.store, settings, shard, self.now)
            if reader.page(1):
                return 0.0
            due = reader.next_due
            first = due if first is None or (due is not None and due < first) else first
        return None if first is None else max(0.0, (first - now).total_seconds())


@dataclass(slots=True)
class PushRun:
    """What one dispatcher does while it has its seat."""

    dispatch: PushDispatch
    queue: str
    number: int
    seat: Seat
    group: LeaseGroup
    limit: PushLimit
    counts: PushCounts = field(default_factory=PushCounts)
    inflight: dict[str, tuple[Task, float]] = field(default_factory=dict)  # and when it was taken
    poll_after: float = 0.0
    _unsaid: deque[TaskReport] = field(default_factory=deque)
    _renewed_at: float = field(init=False)
    _lost: bool = False
    _unsure: bool = False  # whether tasks may have been leased that it does not know of
    _shown: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self._renewed_at = self.dispatch.service.monotonic()

    @property
    def worker(self) -> str:
        """The name by which its deliveries are known."""
        return f"push:{self.queue}:{self.number}"

    @property
    def group_id(self) -> str:
        """The group lease that its tasks are under."""
        return self.group.id

    @property
    def holds(self) -> bool:
        """Whether it may take tasks."""
        return not self._lost and self.seat.held

    @property
    def room(self) -> int:
        """How many more requests may be under way now."""
        allowed = self.limit.allowed(self.dispatch.service.monotonic())
        return max(0, allowed - len(self.inflight) - len(self._unsaid))

    @property
    def target(self) -> Target | None:
        """Where tasks are sent now; None once the queue or its target is gone."""
        return self.dispatch.target_of(self.queue)

    def secrets(self) -> Sequence[str]:
        """Return the secrets that sign requests now, also right after a rotation; one read.

        Raises NotFound, Unavailable.
        """
        return self.dispatch.service.signing.of(self.dispatch.service.queues.get(self.queue)).all

    def fetch(self, *, wait_seconds: float = 0) -> Sequence[Task]:
        """Take tasks to send, as many as may be under way.

        Waits for the first where that costs nothing.  Raises Unavailable.
        """
        target = self.target
        if target is None or self.number >= target.seats or not self.holds or self._unsure:
            return ()
        now = self.dispatch.service.monotonic()
        self.limit.change(target.threads(self.number), now)
        count = min(_TOGETHER, self.room)
        if count == 0:
            return ()
        try:
            result = self.dispatch.deliveries.dequeue(
                self.queue,
                batch_size=count,
                wait_seconds=wait_seconds,
                worker=self.worker,
                lease_id=self.group_id,
            )
        except (LeaseLost, NotFound) as error:
            self._lose(error)
            return ()
        except Unavailable:
            self._unsure = True
            raise
        self.poll_after = result.poll_after_seconds
        taken_at = self.dispatch.service.monotonic()
        self.inflight |= {task.id: (task, taken_at) for task in result.tasks}
        return result.tasks

    def settle(self, answers: Iterable[tuple[Task, TargetAnswer, float]]) -> None:
        """Report on tasks by what came back, each after so many seconds.

        What cannot be said now is said by the next call, or by renew().
        """
        now = self.dispatch.service.monotonic()
        for task, answer, seconds in answers:
            _, sent_at = self.inflight.pop(task.id, (task, now - seconds))
            self.counts.add(answer, seconds)
            if answer.busy:
                self.limit.halve(now, sent_at=sent_at)
            self._unsaid.append(self._report(task, answer))
        self._say()

    def renew(self) -> None:
        """Renew seat and leases if that is due, and note the status on the seat.

        Raises Unavailable.
        """
        if self._unsaid:
            self._say()
        now = self.dispatch.service.monotonic()
        since = now - self._renewed_at
        if self._unsure or since >= RENEWED_EVERY:
            self._give_back_unknown()
        shown = self.counts.state(self.limit, now)
        changed = shown != self._shown and since >= _NOTED_EVERY
        if self._lost or (since < RENEWED_EVERY and not changed):
            return
        if not self.seat.take(self.counts.notes(self.limit, now)):
            self._lose(None)
        if since >= RENEWED_EVERY or not self.holds:
            try:
                self.dispatch.service.leases.extend(self.group_id)
            except LeaseLost as error:
                self._lose(error)
            self._renewed_at = now
        self._shown = shown

    def close(self) -> None:
        """Release unsettled tasks without using an attempt, and free the seat."""
        self._say()
        with suppress(HeadraceError):  # then they lapse
            self.dispatch.service.leases.close(self.group_id)
        with suppress(Unavailable):  # the seat ends by itself
            self.seat.give_up(self.counts.notes(self.limit, self.dispatch.service.monotonic()))
        self._lost = True

    def _give_back_unknown(self) -> None:
        """Release the tasks that the index shows under the group and that this run does not know.

        The answer to a dequeue may be lost, and no other process would release them while the group
        lasts.  Raises Unavailable.
        """
        queue, leases = self._settings(), self.dispatch.service.leases
        known = {*self.inflight, *(report.task_id for report in self._unsaid)}
        for place in [] if queue is None else queue.places(State.INFLIGHT):
            unknown = leases.held(
                self.group_id, self.queue, place.shard, payload=False, without=known
            )
            back = [
                TaskReport(task.id, task.lease_id or "", ReportStatus.RELEASED) for task in unknown
            ]
            if back:
                self.dispatch.service.reports.report(self.queue, back)
        self._unsure = False

    def _report(self, task: Task, answer: TargetAnswer) -> TaskReport:
        queue = self._settings()
        strategy = task.retry
        if strategy is None and queue is not None:
            strategy = queue.settings.retry_strategy
        made = report_of(
            answer,
            strategy or DEFAULT_RETRY,
            now=self.dispatch.now(),
            spread=self.dispatch.service.random.random(),
        )
        return TaskReport(
            task.id,
            task.lease_id or "",  # of this attempt alone, not the group's
            _STATUS[made.action],
            result=made.result,
            error=WorkerError(made.error, made.message, made.detail),
            retryable=made.retryable,
            delay_in_seconds=made.delay,
        )

    def _settings(self) -> Queue | None:
        with suppress(NotFound, Unavailable):
            return self.dispatch.service.queues.cached(self.queue)
        return self.dispatch.service.queues.remembered(self.queue)

    def _say(self) -> None:
        """Send the reports that wait; where the table is away they wait on."""
        if not self._unsaid:
            return
        waiting = list(self._unsaid)
        try:
            results = self.dispatch.service.reports.report(self.queue, waiting)
        except NotFound:  # deleted, its tasks with it
            self._unsaid.clear()
            return
        except Unavailable as error:
            _log.warning("Reports on queue %s wait: %s", self.queue, error)
            return
        self._unsaid.clear()
        for result in results:
            if result.outcome is ReportOutcome.INVALID:
                _log.error("A report on %s was refused: %s", result.task_id, result.detail)

    def _lose(self, why: HeadraceError | None) -> None:
        if not self._lost:
            _log.warning("The dispatcher of queue %s ends: %s", self.queue, why or "seat lost")
        self._lost = True
