"""Fetching tasks: how many, from which queues, and when to ask again.

One call asks all queues (32 at a time).  While tasks come the next call follows at once; an empty
answer says how long to wait before the next one.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.client.worker.service import CallBackoff, WorkerParts, WorkerService
from headrace.domain.errors import HeadraceError, NotFound, RateLimited, Unavailable
from headrace.domain.ids import new_idempotency_key
from headrace.domain.limits import BATCH, DEQUEUE_QUEUES
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

_LONGEST_GROWTH: Final = 5
"""How many times the recommended pause an idle worker waits, in the end: it halves the calls."""

_STEADY_SECONDS: Final = 5.0
"""A pause of this length does not grow: the service recommends it for paused queues only."""

_REFUSED_SECONDS: Final = 60.0
"""The longest time for which a worker leaves out a queue that was refused."""

_LONG_POLL_SECONDS: Final = 0.5
"""How long a service on one machine may wait for a task; a worker that stops waits for it too."""

_AHEAD_SECONDS: Final = 0.5
"""Tasks are fetched so long before they start."""

_NAMED: Final = re.compile(r"queues\[(\d+)\]")

_log = safe_logger("headrace.worker")


class Prefetch:
    """Prefetches what will start within half a second at the present pace, at most 50 tasks.

    So quick tasks come in full batches, and long ones are left to other workers.
    """

    def __init__(self, concurrency: int, fixed: int | None = None) -> None:
        """*fixed* is a prefetch that does not adapt."""
        self._concurrency, self._fixed = concurrency, fixed
        self._mean: float | None = None

    def ran(self, seconds: float) -> None:
        """Take in how long a task ran."""
        before = self._mean
        self._mean = seconds if before is None else before + (seconds - before) / 10

    @property
    def size(self) -> int:
        """How many tasks to hold in addition to the running ones."""
        if self._fixed is not None:
            return self._fixed
        if self._mean is None:
            return 0
        starts, most = self._concurrency * _AHEAD_SECONDS, 2 * BATCH
        return most if self._mean * most <= starts else int(starts / self._mean)


class QueueOrder:
    """The queues of a worker, in the order in which the next call asks them."""

    def __init__(
        self, weights: Mapping[str, float], *, strict: bool, chance: random.Random
    ) -> None:
        self._weights, self._strict, self._chance = weights, strict, chance
        self._refused: dict[str, float] = {}  # until when (monotonic)
        self._backoff = CallBackoff(chance, _REFUSED_SECONDS)
        self._left: list[str] = []  # queues to ask before this round is over
        self._round_at = 0.0
        self.empty_since: float | None = None
        """When the last round began, if it found all queues empty (monotonic)."""

    def next(self, now: float) -> list[str]:
        """Return the queues of the next call, none if all are refused for now."""
        if not self._left:
            self._refused = {queue: until for queue, until in self._refused.items() if until > now}
            self._left = self._drawn(
                [queue for queue in self._weights if queue not in self._refused]
            )
            self._round_at = now
        return self._left[: DEQUEUE_QUEUES[1]]

    def found(self, asked: Sequence[str], *, empty: bool) -> bool:
        """Note the answer about the queues *asked*; return whether a round has found no task."""
        if not self._refused:
            self._backoff.worked()
        self._left = self._left[len(asked) :] if empty else []
        over = empty and not self._left
        self.empty_since = self._round_at if over else None
        return over

    def refused(self, queues: Sequence[str], now: float) -> None:
        """Leave out *queues* for a while, longer each time."""
        until = now + self._backoff.failed()
        self._refused |= dict.fromkeys(queues, until)
        self._left, self.empty_since = [], None

    @property
    def open_at(self) -> float:
        """When the first refused queue is asked again (monotonic)."""
        return min(self._refused.values(), default=0.0)

    @property
    def fit_one_call(self) -> bool:
        """Whether one call asks all queues."""
        return len(self._weights) <= DEQUEUE_QUEUES[1]

    def _drawn(self, queues: list[str]) -> list[str]:
        """Return *queues* in a random order, in which heavier ones tend to come first.

        Each draws a time of arrival, the sooner the more weight it has.
        """
        if self._strict:
            return queues
        return sorted(queues, key=lambda queue: self._chance.expovariate(self._weights[queue]))


class IdlePause:
    """The pause after an empty answer.

    While the service recommends the same pause, it doubles up to five times the recommendation.  A
    pause that the service shortens, because a task falls due, is never the same twice.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._recommended: float | None = None
        self._times = 0

    def reset(self) -> None:
        """Begin again with the recommended pause, because tasks came."""
        self._recommended, self._times = None, 0

    def after(self, recommended: float) -> float:
        """Return the seconds to wait after an empty answer with a *recommended* pause."""
        self._times = self._times + 1 if recommended == self._recommended else 0
        self._recommended = pause = recommended
        if self._times and pause < _STEADY_SECONDS:
            pause = self._chance.uniform(pause, pause * min(2**self._times, _LONGEST_GROWTH))
        return max(0.005, pause * self._chance.uniform(1.0, 1.05))


@dataclass(slots=True)
class _DequeueRequest:
    """One call for tasks; sent again under its key, unchanged, until it is answered."""

    queues: Sequence[str]
    count: int
    key: str
    wait_seconds: float
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a try to fetch tasks, and the seconds until the next one.

    ``answered``: the service has said what there is.  ``fatal`` is the reason why no task can be
    taken at all, ``away`` that there is no answer at present, since ``away_seconds``.
    """

    tasks: Sequence[LeasedTask] = ()
    rest: float = 0.0
    prepared: bool = False
    answered: bool = False
    fatal: Exception | None = None
    away: HeadraceError | None = None
    away_seconds: float = 0.0


class Fetcher:
    """Asks the queues for tasks; one thread uses it.

    A request whose answer was lost is sent again unchanged: the service knows its key, and gives
    the tasks that it leased then.

    Until the first answer a refusal (a wrong key, a missing queue) is fatal; later it is logged,
    and the queue is asked again after a while.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._service, self._clock, self._app = parts.service, parts.clock, parts.app
        self._settings, chance = parts.settings, parts.chance
        self._order = QueueOrder(self._settings.queues, strict=self._settings.strict, chance=chance)
        self._pause = IdlePause(chance)
        self._backoff = CallBackoff(chance)
        self._away_since = self._next_at = 0.0
        self._prepared = self._answered = False
        self._request: _DequeueRequest | None = None

    def fetch(self, room: int, *, may_wait: bool = False) -> Fetched | None:
        """Ask once for up to *room* tasks, if it is time to; None: there is no room.

        With *may_wait* a service on one machine may wait a little for the first task.
        The first time, queues and schedules are prepared instead.
        """
        if not self._prepared:
            return self._prepare()
        now = self._clock.monotonic()
        if self._request is None:
            if room <= 0:
                return None
            queues = self._order.next(now)
            open_at = self._next_at if queues else self._order.open_at
            if open_at > now:
                return Fetched(rest=open_at - now)
            long_poll = may_wait and self._service.is_local and self._order.fit_one_call
            self._request = _DequeueRequest(
                queues,
                min(room, BATCH),
                new_idempotency_key(),
                _LONG_POLL_SECONDS if long_poll else 0.0,
            )
        return self._ask(self._request, now)

    def found_nothing(self, since: float) -> bool:
        """Whether all queues were found empty by calls after *since* (monotonic)."""
        return self._order.empty_since is not None and self._order.empty_since >= since

    def _prepare(self) -> Fetched:
        try:
            self._reach()
            self._service.prepare(self._app, self._settings)
            check_queues(self._service, list(self._settings.queues))
        except (Unavailable, RateLimited) as error:
            return self._away(error)
        except Exception as error:  # noqa: BLE001 (of the app's own code, for example)
            return Fetched(fatal=error)
        self._prepared = True
        self._back()
        return Fetched(prepared=True)

    def _reach(self) -> None:
        """Call the service once, because what prepares the queues retries without a word.

        Raises Unavailable, RateLimited; a refusal is left to the calls that follow.
        """
        try:
            self._service.check_queue(next(iter(self._settings.queues)))
        except (Unavailable, RateLimited):
            raise
        except HeadraceError as error:
            _log.debug("The first call was refused: %s", error)

    def _ask(self, request: _DequeueRequest, now: float) -> Fetched:
        request.attempt += 1
        try:
            found = self._service.dequeue(
                request.queues,
                batch_size=request.count,
                wait_seconds=request.wait_seconds,
                worker=self._settings.name,
                lease_seconds=self._settings.lease_seconds,
                key=request.key,
                attempt=request.attempt,
            )
        except (Unavailable, RateLimited) as error:
            return self._away(error)
        except HeadraceError as error:
            self._request = None
            return self._refused(request.queues, error)
        self._request, self._answered = None, True
        self._back()
        self._clock.heard(found.now, sent_at=now)
        if self._order.found(request.queues, empty=not found.tasks):
            recommended = found.poll_after_seconds
            waited = recommended < request.wait_seconds
            pause = self._pause.after(0.0 if waited else recommended)
            self._next_at = self._clock.monotonic() + pause
        elif found.tasks:
            self._pause.reset()
            self._next_at = 0.0
        return Fetched(tasks=found.tasks, answered=True)

    def _back(self) -> None:
        if self._backoff.worked():
            _log.info("The service answers again")

    def _away(self, error: HeadraceError) -> Fetched:
        """Wait for the service to come back."""
        now = self._clock.monotonic()
        if not self._backoff.failures:
            self._away_since = now
            _log.warning("The service is away; asking again until it is back: %s", error)
        rest = self._backoff.failed()
        return Fetched(away=error, away_seconds=now - self._away_since, rest=rest)

    def _refused(self, queues: Sequence[str], error: HeadraceError) -> Fetched:
        """Leave out the queues that *error* names, or else all of them."""
        if not self._answered:
            return Fetched(fatal=error)
        named = {int(place) for each in error.errors for place in _NAMED.findall(each.field)}
        left_out = [queue for place, queue in enumerate(queues) if not named or place in named]
        self._order.refused(left_out, self._clock.monotonic())
        for queue in left_out:
            why = missing(queue) if isinstance(error, NotFound) else error
            _log.error("Queue %s gives no tasks, and is asked again later: %s", queue, why)
        return Fetched()


def missing(queue: str) -> str:
    """Say that *queue* is missing, and how to create it."""
    return f"there is no queue {queue}: create it with `headrace queue create {queue}`"


def check_queues(service: WorkerService, queues: Sequence[str]) -> None:
    """Raise NotFound, Forbidden or Unauthenticated for the first of *queues* that cannot be seen.

    NotFound says how to create it.
    """
    for queue in queues:
        try:
            service.check_queue(queue)
        except NotFound:
            raise NotFound(missing(queue)) from None
