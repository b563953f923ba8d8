"""The calls of a worker to the service, and what all parts of a worker share.

Each call is tried once, because each thread of the worker has its own backoff.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias, Unpack

from msgspec import structs

from headrace.client.app.app import App
from headrace.client.app.execution import TaskRoute
from headrace.client.app.sync import (
    AppSync,
    StepOutcome,
    StepResult,
    SyncAction,
    SyncPlan,
    SyncStep,
    failure_of,
)
from headrace.client.calls import ApiCall, queues, work
from headrace.client.client import Client
from headrace.client.codec import Codec
from headrace.client.sending import Report
from headrace.client.threads import Died
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    NotFound,
    Unauthenticated,
    VersionMismatch,
)
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Dequeued, LeasedTask, Reported

Monotonic: TypeAlias = Callable[[], float]

_LOCAL_POLL_SECONDS: Final = 0.1
"""A service that recommends a shorter pause between polls runs on one machine."""

_LONGEST_WAIT: Final = 2.0
"""The longest pause between two calls to a service that is away."""

ANSWER_SECONDS: Final = 10.0
"""How long a call waits for its answer, if no lease ends before."""

_ROUNDS: Final = 3  # of a sync while others change the same

_log = safe_logger("headrace.worker")


def seconds_awake() -> float:
    """Return the seconds of a monotonic clock, on Linux of one that includes suspended time."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WorkerService:
    """The service as a worker uses it; every method raises headrace.domain.errors."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.is_local = False
        """Whether the service runs on one machine, so that calls and long polls cost nothing."""

    @property
    def codec(self) -> Codec:
        """How payloads, results and progress are written: as the client does."""
        return self._client.codec

    def prepare(self, app: App, settings: WorkerSettings) -> None:
        """Make what *app* misses, and warn of what differs; or sync it."""
        prepare(self._client, app, settings)

    def check_queue(self, queue: str) -> None:
        """Raise NotFound, Forbidden or Unauthenticated if *queue* cannot be seen."""
        self._client.send(queues.get_queue(queue), again=False)

    def check_key(self, queue: str) -> None:
        """Raise Unauthenticated for an unknown key; the first dequeue shows other errors."""
        try:
            self.check_queue(queue)
        except Unauthenticated:
            raise
        except HeadraceError:
            return

    def dequeue(
        self,
        queues: Sequence[str],
        *,
        batch_size: int,
        wait_seconds: float = 0.0,
        worker: str,
        lease_seconds: float | None,
        key: str,
        attempt: int,
    ) -> Dequeued:
        """Lease up to *batch_size* tasks; a later queue gives only what those before do not have.

        A repeat under the same *key*, with the next *attempt*, gives the tasks that were leased
        before.  A refusal of one queue names ``queues[i]``.
        """
        call = work.dequeue(
            queue=queues[0] if len(queues) == 1 else None,
            queues=None if len(queues) == 1 else queues,
            batch_size=batch_size,
            wait_seconds=wait_seconds,
            worker=worker,
            keepalive_timeout_in_seconds=lease_seconds,
        )
        return self._client.send(structs.replace(call, key=key, attempt=attempt), again=False)

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        """Report on up to 25 tasks; one result for each, in their order.

        The caller keeps the reports and tries again.
        Raises Unavailable when there is no answer for *within* seconds.
        """
        call: ApiCall[list[Reported]] = work.report_batch(queue, reports)
        return self._client.send(call, again=False, timeout=within)

    def beat(self, name: str, *, within: float, **sign: Unpack[work.WorkerSign]) -> str | None:
        """Send a worker heartbeat and return the command of an operator, if there is one.

        Raises Unavailable when there is no answer for *within* seconds.
        """
        answer = self._client.send(work.beat_worker(name, **sign), again=False, timeout=within)
        self.is_local = answer.poll_after_seconds <= _LOCAL_POLL_SECONDS
        return answer.command


class ServiceClock:
    """The service's clock, as far as its answers tell.  Threads may share it.

    Each answer carries the service's time, which lies between the question and the answer; what
    is known from all of them is kept as the least and the most that the two clocks may differ.
    """

    def __init__(self, monotonic: Monotonic = seconds_awake) -> None:
        self.monotonic = monotonic
        self._known: tuple[float, float, float] | None = None  # at, least, most

    def heard(self, now: datetime, *, sent_at: float) -> None:
        """Take in an answer with the service's time *now* to the request of *sent_at*."""
        answered_at = self.monotonic()
        service_time = now.timestamp()
        least, most = service_time - answered_at, service_time - sent_at
        if self._known is not None:
            at, low, high = self._known
            drift = (answered_at - at) / 1000  # so much two clocks may come apart
            low, high = low - drift, high + drift
            if low <= most and least <= high:  # otherwise one of the clocks was set
                least, most = max(least, low), min(most, high)
        self._known = (answered_at, least, most)

    def monotonic_at(self, instant: datetime) -> float:
        """Return when it is *instant* there, on this machine's monotonic clock: at the earliest.

        Raises RuntimeError before any answer was heard.
        """
        if self._known is None:
            raise RuntimeError("the service's time is not known yet")
        return instant.timestamp() - self._known[2]


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


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What all parts of a worker share.

    ``fail`` is called with an error that ends the worker, ``died`` in a thread that an error has
    ended.
    """

    app: App
    settings: WorkerSettings
    service: WorkerService
    clock: ServiceClock
    observers: Sequence[Observer]
    chance: random.Random
    fail: Callable[[Exception], None]
    died: Died

    def notify(self, event: str, *what: object) -> None:
        """Call the method *event* of each observer; log the errors that they raise."""
        for observer in self.observers:
            try:
                getattr(observer, event)(*what)
            except Exception:  # noqa: BLE001 (an observer must not harm the work)
                _log.exception("%s failed", type(observer).__name__)


class CallBackoff:
    """Waits that double, at random between half and all, up to *most* seconds."""

    def __init__(self, chance: random.Random, most: float = _LONGEST_WAIT) -> None:
        self._most, self._chance = most, chance
        self.failures = 0

    def failed(self) -> float:
        """Note a failure and return the seconds to wait."""
        longest = min(self._most, 0.1 * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return longest * self._chance.uniform(0.5, 1.0)

    def worked(self) -> int:
        """Note a success and return how many failures went before it."""
        failures, self.failures = self.failures, 0
        return failures


def prepare(client: Client, app: App, settings: WorkerSettings) -> None:
    """Sync *app*, or create missing queues and schedules and log a warning for each difference.

    Without ``sync`` nothing that exists is changed, because a worker of an older version may start
    at any time.

    Raises TypeError for an app that declares what cannot be, and headrace.domain.errors: when the
    service is away, when it refuses what it is to sync, and for a schedule that makes no sense.
    """
    declares = app.declares(settings.app_path)
    sync = AppSync(client, declares, everywhere=app.name is not None)
    if settings.sync:
        _sync(sync, prune=settings.prune)
        return
    try:
        app.ensure_queues(client)
        plan = sync.plan()
    except (Forbidden, NotFound) as error:
        _log.warning("Queues and schedules are left as they are: %s", error)
        return
    missing = [step for step in plan.steps if step.action is SyncAction.CREATE]
    results = list(sync.apply(missing))
    failure = failure_of(one for one in results if not isinstance(one.error, Forbidden))
    if failure is not None:
        raise failure
    done = [one.step for one in results if one.outcome is StepOutcome.DONE]
    _warn(plan, [step for step in plan.steps if step not in done], settings.app_path)


def _sync(sync: AppSync, *, prune: bool) -> None:
    results: list[StepResult] = []
    for _ in range(_ROUNDS):
        results = list(sync.apply(sync.plan(prune=prune).steps))
        for one in results:
            if one.outcome is StepOutcome.DONE:
                _log.info("Synced: %s %s", one.step.action, described(one.step))
        if not any(isinstance(one.error, VersionMismatch) for one in results):
            break
    error = failure_of(results)
    if error is not None:
        raise error


def _warn(plan: SyncPlan, steps: Iterable[SyncStep], path: str | None) -> None:
    lines = [
        f"{step.subject} is missing" if step.action is SyncAction.CREATE else described(step)
        for step in steps
    ]
    for queue, name in plan.undeclared:
        lines.append(f"schedule {name} of {queue} is no longer declared")
    for line in lines:
        _log.warning("Drift: %s", line)
    if lines:
        prune = " --prune" if plan.undeclared else ""
        _log.warning("To mend that: headrace sync %s%s", path or "MODULE:APP", prune)


def described(step: SyncStep) -> str:
    """*step* in a line, without payloads: logs go where these may not."""
    if step.action is SyncAction.CONFLICT:
        return f"{step.subject} is of the app {step.fields[0].old}"
    if step.action is not SyncAction.CHANGE:
        return step.subject
    parts = [
        f"{one.field} differs"
        if one.field == "payload"
        else f"{one.field} is {_value(one.old)}, declared is {_value(one.new)}"
        for one in step.fields
    ]
    return f"{step.subject}: {'; '.join(parts)}"


def _value(value: object) -> str:
    return "nothing" if value is None else str(value)
