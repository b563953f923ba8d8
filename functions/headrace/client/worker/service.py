"""The service as a worker sees it: its calls, its clock, and how long to wait for it.

Each call is tried once, because each step of the worker has a backoff of its own.
"""

import random
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias, Unpack

from headrace.client.app.app import App
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
from headrace.client.sending import Failure, Report
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound, VersionMismatch
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Dequeued, Lease, Reported

Monotonic: TypeAlias = Callable[[], float]
Refused: TypeAlias = InvalidRequest | Forbidden
Instead: TypeAlias = Callable[[Report, Refused], Report | None]

_DRIFT: Final = 0.001
"""Seconds that two clocks may come apart in one second."""

_FIRST_WAIT: Final = 0.1
_NAMED: Final = re.compile(r"reports\[(\d+)\]")


def seconds_awake() -> float:
    """Return seconds of a clock that nobody sets, and that goes on while the machine sleeps.

    Where there is none (it is Linux's), the monotonic clock, which stands still meanwhile.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class WorkerService:
    """The service as a worker uses it; every method raises headrace.domain.errors."""

    def __init__(self, client: Client) -> None:
        self._client = client

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

    def dequeue(
        self,
        queues: Sequence[str],
        *,
        batch_size: int,
        wait_seconds: float = 0.0,
        worker: str,
        keepalive: float | None,
        lease_id: str | None = None,
        key: str,
        attempt: int,
    ) -> Dequeued:
        """Lease up to *batch_size* tasks, under the group *lease_id* if that is named.

        A later queue gives only what those before do not have.  Asked again under the same *key*,
        which *attempt* counts, it gives the tasks that were leased before: the caller asks again,
        as often as it takes.
        Raises LeaseLost when the group has ended; a refusal of one queue names ``queues[i]``.
        """
        call = work.dequeue(
            queue=queues[0] if len(queues) == 1 else None,
            queues=None if len(queues) == 1 else queues,
            batch_size=batch_size,
            wait_seconds=wait_seconds,
            worker=worker,
            keepalive_timeout_in_seconds=keepalive,
            lease_id=lease_id,
        )
        return self._client.send(replace(call, key=key, attempt=attempt), again=False)

    def open_lease(self, *, keepalive: float) -> Lease:
        """Open a lease for many tasks that lasts *keepalive* seconds.

        One whose answer is lost holds nothing, and lapses.
        """
        call = work.open_lease(keepalive_timeout_in_seconds=keepalive)
        return self._client.send(call, again=False)

    def extend_lease(self, id: str, *, within: float) -> work.ExtendedLease:
        """Let it last as long again; the heartbeats have a pace of their own.

        Raises LeaseLost when it has ended, and Unavailable when nothing is heard for *within*
        seconds.
        """
        return self._client.send(work.extend_lease(id), again=False, timeout=within)

    def close_lease(self, id: str) -> None:
        """End it and release what is unsettled under it.  Raises LeaseLost, NotFound."""
        self._client.send(work.close_lease(id), again=False)

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        """Report on up to 25 tasks; one result for each, in their order.

        The caller keeps the reports and tries again.
        Raises Unavailable when nothing is heard for *within* seconds.
        """
        call: ApiCall[list[Reported]] = work.report_batch(queue, reports)
        return self._client.send(call, again=False, timeout=within)

    def sign(
        self, name: str, *, within: float | None = None, **sign: Unpack[work.WorkerSign]
    ) -> str | None:
        """Send a worker heartbeat and return the command of an operator; the next follows soon.

        Raises Unavailable when nothing is heard for *within* seconds.
        """
        return self._client.send(work.put_worker(name, **sign), again=False, timeout=within)


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
            drift = (answered_at - at) * _DRIFT
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


class CallBackoff:
    """Waits that double, at random between half and all, up to *most* seconds."""

    def __init__(self, most: float, chance: random.Random) -> None:
        self._most, self._chance = most, chance
        self.failures = 0

    def failed(self) -> float:
        """Note a failure and return the seconds to wait."""
        longest = min(self._most, _FIRST_WAIT * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return longest * self._chance.uniform(0.5, 1.0)

    def worked(self) -> int:
        """Note a success and return how many failures went before it."""
        failures, self.failures = self.failures, 0
        return failures


def send_each(
    service: WorkerService,
    queue: str,
    reports: Sequence[Report],
    instead: Instead,
    *,
    within: float,
    replaced: Collection[tuple[str, str]] = (),
) -> list[Reported | None]:
    """Send up to 25 *reports* and return one result each; None where there was nothing to send.

    The ones that the service (or the codec) refuses are replaced by what *instead* says, each
    once (*replaced* are the tasks and leases of those that were), and the others sent without them.

    Raises what else goes wrong; Forbidden if the key may not report on tasks of this queue.
    """
    refused: Refused
    try:
        return list(service.report(queue, reports, within=within))
    except InvalidRequest as error:
        refused, named = error, _named(error, len(reports))
    except Forbidden as error:
        refused, named = error, {place for place, each in enumerate(reports) if _reaches_out(each)}
        if not named:
            raise
    places = range(len(reports))
    mended = dict(enumerate(reports))
    if len(reports) > 1 and isinstance(refused, Forbidden):  # which one it is it does not say
        parts = [[place for place in places if place not in named], *([place] for place in named)]
    elif not named:  # too large together, or a refusal that names none of them
        parts = [[place] for place in places]
    else:
        for place in named:
            report = mended.pop(place)
            instead_of_it = None if _which(report) in replaced else instead(report, refused)
            if instead_of_it is not None:
                mended[place] = instead_of_it
        replaced = {*replaced, *(_which(reports[place]) for place in named)}
        parts = [sorted(mended)]
    results: list[Reported | None] = [None] * len(reports)
    for part in filter(None, parts):
        again = [mended[place] for place in part]
        sent = send_each(service, queue, again, instead, within=within, replaced=replaced)
        for place, result in zip(part, sent, strict=True):
            results[place] = result
    return results


def _which(report: Report) -> tuple[str, str]:
    return report.task_id, report.lease_id


def _named(refused: InvalidRequest, count: int) -> set[int]:
    """Return the places, of *count*, that *refused* is about."""
    if count == 1:
        return {0}
    named = {int(place) for field in refused.errors for place in _NAMED.findall(field.field)}
    return named & set(range(count))


def _reaches_out(report: Report) -> bool:
    """Whether it asks for something in another queue, which a key may not reach."""
    return report.status == "MOVED" or bool(report.spawn)


def failure_instead(report: Report, refused: Refused) -> Report | None:
    """The report that a task failed, in place of one that cannot be taken: it would fail again."""
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


_ROUNDS: Final = 3  # of a sync while others change the same

_log = safe_logger("headrace.worker")


def prepare(client: Client, app: App, settings: WorkerSettings) -> None:
    """Sync *app*, or make what it misses and log a warning for each difference.

    What is there is changed only where it is to sync, because a worker of an older version may
    start at any time.  A worker needs none of that to take tasks.

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
        lines.append(f"schedule {name} of {queue} is declared no more")
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
