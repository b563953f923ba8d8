"""What came of the tasks: gathered, sent in batches, kept and sent again while it counts."""

import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.client.models import Reported
from headrace.client.sending import Report
from headrace.client.worker.backoff import Backoff
from headrace.client.worker.clocks import ServiceClock
from headrace.client.worker.endings import failed
from headrace.client.worker.holding import Held
from headrace.client.worker.loop import UNTIL_WOKEN, Loop
from headrace.client.worker.sending import failure_instead, send_each
from headrace.client.worker.service import Service
from headrace.domain.errors import HeadraceError, NotFound
from headrace.domain.limits import BATCH

_LINGER_SECONDS: Final = 0.005
_LONGEST_WAIT: Final = 2.0
_LATE_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 10.0

_log = logging.getLogger("headrace.worker")


@dataclass(slots=True)
class _Kept:
    """A report that the service has not answered yet."""

    held: Held
    report: Report
    since: float
    tried: bool = False


class Reporter:
    """Sends reports from a thread of its own.

    A report goes out at once when nothing else is at work or 25 are there, else after a few
    milliseconds.  While the service is away it is kept and sent again; after the end of its lease
    for another minute, in which a late report may still count: then the reaper has come by.
    """

    def __init__(
        self,
        service: Service,
        clock: ServiceClock,
        *,
        idle: Callable[[], bool],
        settled: Callable[[Held, Report], None],
        dropped: Callable[[Held, str], None],
        chance: random.Random,
    ) -> None:
        """Send what is added.

        *idle* says whether no report is to come soon, *settled* hears of those that count, and
        *dropped* of those that came to nothing, and why.
        """
        self._service, self._clock, self._idle = service, clock, idle
        self._settled, self._dropped = settled, dropped
        self._kept: deque[_Kept] = deque()
        self._backoff = Backoff(_LONGEST_WAIT, chance)
        self._next_at = 0.0
        self._sending = False
        self.said_at = 0.0
        """When the service last answered reports (monotonic seconds)."""
        self.loop = Loop("reports", self.step)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def unsaid(self) -> bool:
        """Whether there are reports that the service has not answered."""
        return bool(self._kept) or self._sending

    @property
    def in_trouble(self) -> bool:
        """Whether reports are not taken at present."""
        return self._backoff.failures > 0

    def add(self, held: Held, report: Report) -> None:
        """Send *report* soon."""
        self._kept.append(_Kept(held, report, self._clock.monotonic()))
        if len(self._kept) in {1, BATCH} or self._idle():
            self.loop.wake()

    def step(self) -> float:
        """Send one batch, if it is time for it; return the seconds until the next."""
        now = self._clock.monotonic()
        if not self._kept:
            return UNTIL_WOKEN
        if now < self._next_at:
            return self._next_at - now
        ripe = self._kept[0].since + _LINGER_SECONDS
        if len(self._kept) < BATCH and now < ripe and not self._idle():
            return ripe - now
        self._sending = True  # before they leave the queue, so that they are never overlooked
        batch = self._next_batch()
        try:
            self._send(batch)
        except NotFound:
            for kept in batch:
                self._dropped(kept.held, "its queue is gone")
        except HeadraceError as error:
            self._keep(batch, error)
        else:
            self.said_at = self._clock.monotonic()
            if self._backoff.worked():
                _log.info("Reports are taken again")
        finally:
            self._sending = False
        return max(0.0, self._next_at - now) if self._kept else UNTIL_WOKEN

    def hurry(self) -> None:
        """Try now what waits for the service to come back."""
        self._next_at = 0.0
        self._sending = False
        self.loop.wake()

    def _next_batch(self) -> list[_Kept]:
        """Take up to 25 reports of the queue whose report is the oldest."""
        queue = self._kept[0].held.task.queue
        batch: list[_Kept] = []
        others: list[_Kept] = []
        while self._kept and len(batch) < BATCH:
            kept = self._kept.popleft()
            (batch if kept.held.task.queue == queue else others).append(kept)
        self._kept.extendleft(reversed(others))
        return batch

    def _send(self, batch: list[_Kept]) -> None:
        queue = batch[0].held.task.queue
        asked_at = self._clock.monotonic()
        results = send_each(
            self._service,
            queue,
            [kept.report for kept in batch],
            failure_instead,
            within=_ANSWER_SECONDS,
        )
        for kept, result in zip(batch, results, strict=True):
            if result is None:
                self._dropped(kept.held, "the service refused its report")
            else:
                self._answered(kept, result, asked_at)

    def _answered(self, kept: _Kept, result: Reported, asked_at: float) -> None:
        if result.now is not None:
            self._clock.heard(result.now, asked_at=asked_at)
        if result.outcome == "OK":
            self._settled(kept.held, kept.report)
        elif result.outcome == "INVALID" and kept.report.status in {"SUCCEEDED", "MOVED"}:
            # The stored state speaks against it: a queue to move to is missing, say.
            self.add(kept.held, failed(kept.held.task, "InvalidReport", result.detail or ""))
        elif result.outcome == "NOT_FOUND" and kept.tried:
            _log.info("Task %s is gone: an earlier try of its report has counted", result.task_id)
        else:
            self._dropped(kept.held, f"the service says {result.outcome}")

    def _keep(self, batch: list[_Kept], error: HeadraceError) -> None:
        """Keep what still counts, to be sent again."""
        now = self._clock.monotonic()
        if not self._backoff.failures:
            _log.warning("Reports are not taken, and kept: %s", error)
        self._next_at = now + self._backoff.failed()
        for kept in reversed(batch):
            if now < kept.held.lease_ends + _LATE_SECONDS:
                kept.tried = True
                self._kept.appendleft(kept)
            else:
                self._dropped(kept.held, f"its lease was over before its report was taken: {error}")
