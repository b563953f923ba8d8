"""Heartbeats: more time when a third of a lease is over, and word that the worker is there."""

import random
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

from headrace.client.calls.work import WorkerSign
from headrace.client.sending import Report
from headrace.client.threads import UNTIL_WOKEN
from headrace.client.worker.groups import GroupLease
from headrace.client.worker.inflight import NOTHING, InflightTask
from headrace.client.worker.reporting import was_cancelled
from headrace.client.worker.service import (
    CallBackoff,
    ServiceClock,
    WorkerService,
    send_each,
    without_progress,
)
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import (
    Forbidden,
    HeadraceError,
    LeaseLost,
    NotFound,
    RateLimited,
    Unavailable,
)
from headrace.domain.limits import BATCH, WORKER_TASKS
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Reported

_LONGEST_REST: Final = 0.25
_SHORTEST_REST: Final = 0.02
_SHARED: Final = 0.25
"""Part of its interval that a heartbeat may come early, to share a call."""

_LONGEST_WAIT: Final = 1.0
_SHORTEST_TIMEOUT: Final = 1.0

_WORKER_SECONDS: Final = 30.0
_FORGOTTEN_SECONDS: Final = 300.0
"""After so long the service forgets a worker that is silent."""

_SIGN_OFF_SECONDS: Final = 2.0
"""How long a worker that stops waits for the answer to its last heartbeat."""

_log = safe_logger("headrace.worker")


class LostLease(NamedTuple):
    """A lease that the service no longer knows, and why; ``cancelled``: its task was cancelled."""

    held: InflightTask
    why: str
    cancelled: bool = False


class Heartbeats:
    """Prolongs leases, up to 25 of one queue in a call; one thread does.

    What is under a group has that extended, by one call for all of it; its progress goes in calls
    as ever.  So do heartbeats of those that the extension lists as cancelled: it goes on listing
    one that was restarted and delivered under the same group again.
    One without an answer is given up after half of what is left of the leases, so that there is
    time for another.
    """

    def __init__(
        self,
        service: WorkerService,
        clock: ServiceClock,
        *,
        keepalive: float | None,
        chance: random.Random,
    ) -> None:
        self._service, self._clock = service, clock
        self._keepalive, self._chance = keepalive, chance
        self._backoffs: dict[str, CallBackoff] = {}  # by queue, as next_at
        self._next_at: dict[str, float] = {}
        self.rest = 0.0
        """Seconds until the next may be due, once those of a `beat` are sent."""

    def beat(self, inflight: Sequence[InflightTask]) -> Iterator[LostLease]:
        """Send the heartbeats that are due, and give each lost lease as soon as it is known."""
        now = self._clock.monotonic()
        by_queue: dict[str, list[InflightTask]] = defaultdict(list)
        by_group: dict[GroupLease, list[InflightTask]] = defaultdict(list)
        next_at = now + _LONGEST_REST
        for held in inflight:
            if held.lease_lost or held.over:
                continue
            if held.group is not None:
                by_group[held.group].append(held)
                continue
            queue_at = self._next_at.get(held.task.queue, now)
            early = (held.beat_at - held.beaten_at) * _SHARED
            if max(held.beat_at - early, queue_at) <= now:
                by_queue[held.task.queue].append(held)
            next_at = min(next_at, max(held.beat_at, queue_at))
        for group, members in by_group.items():
            if not group.lost and max(group.beat_at, group.next_at) <= now:
                yield from self._extend(group, members)
            if group.lost:
                for held in members:
                    yield LostLease(held, "the lease of all tasks is lost")
            else:
                next_at = min(next_at, max(group.beat_at, group.next_at))
        if any(held.beat_at <= now for due in by_queue.values() for held in due):
            yield from self._beat_all(by_queue)
            next_at = now
        self.rest = max(_SHORTEST_REST, next_at - now)

    def _beat_all(self, by_queue: Mapping[str, list[InflightTask]]) -> Iterator[LostLease]:
        for queue, due in by_queue.items():
            for start in range(0, len(due), BATCH):
                if not (yield from self._beat(queue, due[start : start + BATCH])):
                    break  # the other queues may fare better

    def _extend(self, group: GroupLease, members: list[InflightTask]) -> Iterator[LostLease]:
        """Ask for more time for *group*, and send the progress of its *members*."""
        backoff = self._backoffs.setdefault(group.id, CallBackoff(_LONGEST_WAIT, self._chance))
        sent_at = self._clock.monotonic()
        within = max(_SHORTEST_TIMEOUT, group.lease_ends - sent_at) / 2
        try:
            lease = self._service.extend_lease(group.id, within=within)
        except (LeaseLost, NotFound):
            group.lost = True
        except Exception as error:  # noqa: BLE001 (the leases of all depend on this thread)
            if not backoff.failures:
                _log.warning("The lease of all tasks is not extended: %s", error)
            group.next_at = self._clock.monotonic() + backoff.failed()
        else:
            if backoff.worked():
                _log.info("The lease of all tasks is extended again")
            group.extended(sent_at)
            for held in members:
                held.prolong(lease.expires_at, now=sent_at, lease_ends=group.lease_ends)
            yield from self._beat_some(members, frozenset(lease.cancelled))

    def _beat_some(
        self, members: list[InflightTask], listed: AbstractSet[str]
    ) -> Iterator[LostLease]:
        """Send heartbeats of those that have progress, or are *listed* as cancelled."""
        by_queue: dict[str, list[InflightTask]] = defaultdict(list)
        for held in members:
            if held.has_progress or held.task.id in listed:
                by_queue[held.task.queue].append(held)
        yield from self._beat_all(by_queue)

    def _beat(self, queue: str, batch: list[InflightTask]) -> Generator[LostLease, None, bool]:
        """Send the heartbeats of *batch*; False: that did not work, and *queue* has to wait."""
        backoff = self._backoffs.setdefault(queue, CallBackoff(_LONGEST_WAIT, self._chance))
        sent = [(held, held.take_progress()) for held in batch]
        reports = [self._report(held, progress) for held, progress in sent]
        sent_at = self._clock.monotonic()
        try:
            results = send_each(
                self._service,
                queue,
                reports,
                without_progress,
                within=max(_SHORTEST_TIMEOUT, min(h.lease_ends for h in batch) - sent_at) / 2,
            )
        except NotFound:
            for held in batch:
                yield LostLease(held, "its queue is gone")
            return True
        except Exception as error:  # noqa: BLE001 (the leases of all depend on this thread)
            if not backoff.failures:
                _log.warning("Heartbeats of queue %s are not taken: %s", queue, error)
            for held, progress in sent:
                if progress is not NOTHING and isinstance(error, HeadraceError):
                    held.return_progress(progress)  # of another error it may be the cause
            self._next_at[queue] = self._clock.monotonic() + backoff.failed()
            return False
        if backoff.worked():
            _log.info("Heartbeats of queue %s are taken again", queue)
        for held, result in zip(batch, results, strict=True):
            if result is not None and (lost := self._answered(held, result, sent_at)):
                yield lost
        return True

    def _report(self, held: InflightTask, progress: object) -> Report:
        return Report.on(
            held.task,
            "INFLIGHT",
            progress=None if progress is NOTHING else progress,
            keepalive_timeout_in_seconds=self._keepalive if held.group is None else None,
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

    def __init__(
        self,
        service: WorkerService,
        settings: WorkerSettings,
        *,
        version: str,
        started_at: datetime,
    ) -> None:
        self._service, self._settings = service, settings
        self._version, self._started_at = version, started_at
        self._last_received: str | None = None
        self._listed = False
        self.rest = 0.0
        """Seconds until the next worker heartbeat."""

    def beat(self, inflight: Sequence[InflightTask]) -> str | None:
        """Send a worker heartbeat; return an operator's ``"quiet"`` or ``"stop"``, each once."""
        running = [held.task.id for held in inflight if held.running]
        self.rest = _WORKER_SECONDS
        try:
            received = self._service.sign(self._settings.name, **self._sign(running))
        except (Unavailable, RateLimited) as error:
            _log.debug("No worker heartbeat could be sent: %s", error)
        except Forbidden as error:  # until then, a worker of other queues may have had the name
            _log.warning("This worker is not listed, and asks again in 5 minutes: %s", error)
            self.rest = _FORGOTTEN_SECONDS
        except HeadraceError as error:
            _log.warning("This worker will not be listed: %s", error)
            self.rest = UNTIL_WOKEN
        else:
            self._listed = True
            before, self._last_received = self._last_received, received
            # Once: a worker that is stopped a second time does not wait.
            return None if received == before else received
        return None

    def sign_off(self) -> None:
        """Send the last heartbeat, so that the service lists the worker no longer."""
        if not self._listed:
            return
        sign = self._sign([])
        sign["stopped"] = True
        try:
            self._service.sign(self._settings.name, within=_SIGN_OFF_SECONDS, **sign)
        except HeadraceError as error:
            _log.debug("The last worker heartbeat could not be sent: %s", error)

    def _sign(self, running: Sequence[str]) -> WorkerSign:
        return {
            "queues": list(self._settings.queues),
            "concurrency": self._settings.concurrency,
            "running": running[:WORKER_TASKS],
            "version": self._version,
            "started_at": self._started_at,
        }
