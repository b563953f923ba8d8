"""Heartbeats: of the tasks that a worker holds, and of the worker itself."""

import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from headrace.client.calls.work import WorkerSign
from headrace.client.sending import Report
from headrace.client.worker.inflight import NOTHING, InflightTask
from headrace.client.worker.reports import send_each, was_cancelled, without_progress
from headrace.client.worker.service import ANSWER_SECONDS, CallBackoff, WorkerParts
from headrace.domain.errors import HeadraceError, NotFound, RateLimited, Unavailable
from headrace.domain.limits import BATCH, WORKER_TASKS
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Reported

_CHECK_SECONDS: Final = 0.25
"""How often the worker looks for due heartbeats; the shortest lease is a second."""

_LOCAL_SECONDS: Final = 1.5
"""The longest time between two heartbeats of a service on one machine: a cancel arrives with them.

They cost no money there.  With the check and the call a cancel takes less than two seconds.
"""

_LOCAL_RATE: Final = 500
"""The most of these heartbeats in a second, because each takes a fifth of a millisecond of CPU."""

_WORKER_SECONDS: Final = 30.0
_FORGOTTEN_SECONDS: Final = 300.0
"""After so long the service forgets a worker that is silent."""

_log = safe_logger("headrace.worker")


class LostLease(NamedTuple):
    """A lease that the service no longer knows, and why; ``cancelled``: its task was cancelled."""

    held: InflightTask
    why: str
    cancelled: bool = False


def answer_within(inflight: Sequence[InflightTask], now: float) -> float:
    """Return how many seconds to wait for an answer: half of the time until a lease ends.

    The other half is for another heartbeat.
    """
    left = min((held.lease_ends - now for held in inflight), default=ANSWER_SECONDS)
    return max(1.0, left) / 2


class Heartbeats:
    """Renews leases, up to 25 of one queue in a call; one thread uses it.

    A heartbeat is due when a third of the lease is over, over a service on one machine after 1.5
    seconds at the latest, and for progress one second after the last progress.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._service, self._clock = parts.service, parts.clock
        self._lease_seconds = parts.settings.lease_seconds
        self._backoffs = defaultdict[str, CallBackoff](lambda: CallBackoff(parts.chance))
        self._next_at: dict[str, float] = {}  # by queue, after a failure
        self._most_seconds = math.inf  # between two heartbeats

    def beat(self, inflight: Sequence[InflightTask]) -> Iterator[LostLease]:
        """Send the heartbeats that are due, and give each lost lease as soon as it is known."""
        now = self._clock.monotonic()
        by_queue: dict[str, list[InflightTask]] = defaultdict(list)
        for held in inflight:
            if not (held.lease_lost or held.over):
                by_queue[held.task.queue].append(held)
        if self._service.is_local:
            self._most_seconds = max(_LOCAL_SECONDS, len(inflight) / _LOCAL_RATE)
        for queue, held_here in by_queue.items():
            if self._next_at.get(queue, now) > now:
                continue
            if any(self._due_at(held) <= now for held in held_here):
                # The others come along a quarter earlier than they have to, to share the call.
                due = [held for held in held_here if self._due_at(held, part=0.75) <= now]
                for start in range(0, len(due), BATCH):
                    yield from self._beat(queue, due[start : start + BATCH])

    def rest(self, inflight: Sequence[InflightTask]) -> float:
        """Return the seconds until the next check for due heartbeats."""
        due = [held.progress_due_at for held in inflight if not (held.lease_lost or held.over)]
        return max(0.02, min(_CHECK_SECONDS, min(due, default=math.inf) - self._clock.monotonic()))

    def _due_at(self, held: InflightTask, *, part: float = 1.0) -> float:
        every = min((held.lease_ends - held.beaten_at) / 3, self._most_seconds)
        return min(held.beaten_at + every * part, held.progress_due_at)

    def _beat(self, queue: str, batch: list[InflightTask]) -> Generator[LostLease]:
        backoff = self._backoffs[queue]
        sent = [(held, held.take_progress()) for held in batch]
        reports = [self._report(held, progress) for held, progress in sent]
        sent_at = self._clock.monotonic()
        within = answer_within(batch, sent_at)
        try:
            results = send_each(self._service, queue, reports, without_progress, within=within)
        except NotFound:
            for held in batch:
                yield LostLease(held, "its queue is gone")
            return
        except Exception as error:  # noqa: BLE001 (the leases of all depend on this thread)
            if not backoff.failures:
                _log.warning("Heartbeats of queue %s are not taken: %s", queue, error)
            for held, progress in sent:
                if progress is not NOTHING and isinstance(error, HeadraceError):
                    held.return_progress(progress)  # of another error it may be the cause
            self._next_at[queue] = self._clock.monotonic() + backoff.failed()
            return
        if backoff.worked():
            _log.info("Heartbeats of queue %s are taken again", queue)
        for held, result in zip(batch, results, strict=True):
            if result is not None and (lost := self._answered(held, result, sent_at)):
                yield lost

    def _report(self, held: InflightTask, progress: object) -> Report:
        return Report.on(
            held.task,
            "INFLIGHT",
            progress=None if progress is NOTHING else progress,
            keepalive_timeout_in_seconds=self._lease_seconds,
        )

    def _answered(self, held: InflightTask, result: Reported, sent_at: float) -> LostLease | None:
        if result.now is not None:
            self._clock.heard(result.now, sent_at=sent_at)
        if result.lease is not None:
            expires_at = result.lease.expires_at
            held.prolong(expires_at, now=sent_at, lease_ends=self._clock.monotonic_at(expires_at))
        elif result.outcome != "OK" and not held.over:
            cancelled = was_cancelled(result, lease_lasted=sent_at < held.lease_ends)
            return LostLease(held, f"the service says {result.outcome}", cancelled)
        return None


class Registry:
    """Reports every 30 seconds what the worker does, and gives the commands of operators."""

    def __init__(self, parts: WorkerParts, *, started_at: datetime) -> None:
        self._service, self._clock, self._settings = parts.service, parts.clock, parts.settings
        self._started_at = started_at
        self._last_received: str | None = None
        self._listed = False
        self._next_at = 0.0

    def beat(self, inflight: Sequence[InflightTask]) -> str | None:
        """Send a worker heartbeat if it is due; return an operator's new command, or None."""
        now = self._clock.monotonic()
        if now < self._next_at:
            return None
        rest = _WORKER_SECONDS
        try:
            received = self._service.beat(
                self._settings.name, within=answer_within(inflight, now), **self._sign(inflight)
            )
        except (Unavailable, RateLimited) as error:
            _log.debug("No worker heartbeat could be sent: %s", error)
        except HeadraceError as error:  # a worker of other queues may have the name until then
            _log.warning("This worker is not listed, and asks again in 5 minutes: %s", error)
            rest = _FORGOTTEN_SECONDS
        else:
            self._listed = True
            before, self._last_received = self._last_received, received
            # Once, because a second stop would end the worker without waiting.
            return None if received == before else received
        finally:
            self._next_at = now + rest
        return None

    def sign_off(self) -> None:
        """Send the last heartbeat, so that the service lists the worker no longer."""
        if not self._listed:
            return
        sign = self._sign([])
        sign["stopped"] = True
        try:
            self._service.beat(self._settings.name, within=2.0, **sign)
        except HeadraceError as error:
            _log.debug("The last worker heartbeat could not be sent: %s", error)

    def _sign(self, inflight: Sequence[InflightTask]) -> WorkerSign:
        return {
            "queues": list(self._settings.queues),
            "concurrency": self._settings.concurrency,
            "running": [held.task.id for held in inflight if held.running][:WORKER_TASKS],
            "version": self._settings.version,
            "started_at": self._started_at,
        }
