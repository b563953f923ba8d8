"""Fetching tasks: how many, from which queues by weight or strictly, and when to ask again.

While nothing comes all queues are asked together, once the first of their pauses is over: one call
costs more than to look at a few more queues.  While tasks come, those that were found empty are
left out until their pause is over.

Long, because when and what a worker asks for is read in one place.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.client.app.app import App
from headrace.client.worker.groups import GroupLease, GroupsInUse, OpenGroups
from headrace.client.worker.service import CallBackoff, ServiceClock, WorkerService
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import (
    HeadraceError,
    LeaseLost,
    NotFound,
    RateLimited,
    Unavailable,
)
from headrace.domain.ids import new_idempotency_key
from headrace.domain.limits import BATCH, DEQUEUE_QUEUES
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import Dequeued, LeasedTask

_GROWTH: Final = 5
"""How many times its pause an empty queue is left alone, in the end."""

_STEADY_SECONDS: Final = 5.0
"""A pause of this length does not grow: so long the service only says of paused queues."""

_LEAST_SECONDS: Final = 0.005
_LONGEST_REFUSED: Final = 60.0
_TOGETHER: Final = DEQUEUE_QUEUES[1]

_LONGEST_WAIT: Final = 5.0
_LOST_SECONDS: Final = 0.1
_NAMED: Final = re.compile(r"queues\[(\d+)\]")

_CHEAP_SECONDS: Final = 0.1
"""A service that may be asked again this soon is no Lambda that is paid for while it waits."""

_LET_WAIT_SECONDS: Final = 0.5
"""How long such a service may wait for a task before it answers; a worker that stops waits too."""

_AHEAD_SECONDS: Final = 0.5
_MOST_AHEAD: Final = 50
_WEIGHT: Final = 0.1  # of the latest task in the mean

_log = safe_logger("headrace.worker")


class Source:
    """A queue that tasks are taken from, and when it may be polled again (monotonic seconds)."""

    def __init__(self, queue: str, weight: float, chance: random.Random) -> None:
        self.queue, self.weight = queue, weight
        self.next_at = self.refused_until = 0.0
        self.empty_since: float | None = None  # when it was polled, found empty since
        self.refusals = CallBackoff(_LONGEST_REFUSED, chance)
        self._chance = chance
        self.poll_after: float | None = None  # from the service, and how often in a row
        self.times = 0

    def gave(self) -> None:
        """Note that tasks came: it is polled again at once."""
        self.next_at, self.empty_since = 0.0, None
        self.poll_after, self.times = None, 0

    def had_nothing(self, poll_after_seconds: float, now: float, *, sent_at: float) -> None:
        """Note an empty answer, to the request of *sent_at*, with the time to poll again.

        While the service keeps saying the same the pause doubles, up to five times what it says.
        One cut short, because a task is due before, never says the same twice and is obeyed.
        """
        self.empty_since = sent_at
        self.times = self.times + 1 if poll_after_seconds == self.poll_after else 0
        self.poll_after = poll_after_seconds
        pause = poll_after_seconds
        if self.times and pause < _STEADY_SECONDS:
            grown = pause * min(2**self.times, _GROWTH)
            pause = self._chance.uniform(pause, grown)
        self.next_at = now + max(_LEAST_SECONDS, pause * self._chance.uniform(1.0, 1.05))

    def rests_with(self, other: "Source") -> None:
        """Be polled again when *other* is, which was found empty by the same call."""
        self.empty_since, self.next_at = other.empty_since, other.next_at
        self.poll_after, self.times = other.poll_after, other.times

    def refused(self, now: float) -> None:
        """Note that the service would not answer; it is left alone for longer each time."""
        self.refused_until = now + self.refusals.failed()
        self.empty_since = None

    @property
    def open_at(self) -> float:
        """When it may be polled."""
        return max(self.next_at, self.refused_until)


class Sources:
    """The queues of a worker."""

    def __init__(
        self, weights: Mapping[str, float], *, strict: bool, chance: random.Random
    ) -> None:
        self.all = [Source(queue, weight, chance) for queue, weight in weights.items()]
        self._strict, self._chance = strict, chance
        self._idle = True  # whether the latest answer was empty

    def next(self, now: float) -> list[Source]:
        """The queues to poll in one call, in order; none of them: none yet."""
        able = [source for source in self.all if source.refused_until <= now]
        open_now = [source for source in able if source.next_at <= now]
        if not open_now:
            return []
        candidates = able if self._idle and len(able) <= _TOGETHER else open_now
        return (candidates if self._strict else self._drawn(candidates))[:_TOGETHER]

    def _drawn(self, sources: Sequence[Source]) -> list[Source]:
        """Draw an order: which is the first is decided by the weights, so is the next, and so on.

        Each draws a time of arrival, the sooner the more weight it has.
        """
        return sorted(sources, key=lambda source: self._chance.expovariate(source.weight))

    def answered(
        self,
        candidates: Sequence[Source],
        found: Dequeued,
        wanted: int,
        now: float,
        *,
        sent_at: float,
    ) -> None:
        """Note what the queues *candidates* gave, of *wanted* tasks at the most."""
        gave = {task.queue for task in found.tasks}
        self._idle = not gave
        looked_at = list(candidates)
        if len(found.tasks) >= wanted:  # those behind the last one that gave were not looked at
            while looked_at and looked_at[-1].queue not in gave:
                looked_at.pop()
        empty = [source for source in looked_at if source.queue not in gave]
        for source in looked_at:
            source.refusals.worked()
            if source.queue in gave:
                source.gave()
        for source in empty if gave else ():
            source.had_nothing(found.poll_after_seconds, now, sent_at=sent_at)
        if not gave and empty:
            first = min(empty, key=lambda source: source.times)
            first.had_nothing(found.poll_after_seconds, now, sent_at=sent_at)
            for source in empty:
                source.rests_with(first)

    def rest(self, now: float) -> float:
        """Return the seconds until the first pause is over."""
        return max(0.0, min(source.open_at for source in self.all) - now)

    def drained(self, since: float) -> bool:
        """Whether each of them was found empty when it was polled after *since*."""
        return all(
            source.empty_since is not None and source.empty_since >= since for source in self.all
        )


class Prefetch:
    """Prefetches what will start within half a second at the present pace, at most 50 tasks.

    Quick tasks so come in full batches, while long ones are left to other workers.
    """

    def __init__(self, concurrency: int, fixed: int | None = None) -> None:
        """*fixed* is a prefetch that does not adapt."""
        self._concurrency, self._fixed = concurrency, fixed
        self._mean: float | None = None

    def ran(self, seconds: float) -> None:
        """Take in how long a task ran."""
        before = self._mean
        self._mean = seconds if before is None else before + (seconds - before) * _WEIGHT

    @property
    def size(self) -> int:
        """How many tasks to hold beyond those that run."""
        if self._fixed is not None:
            return self._fixed
        if self._mean is None:
            return 0
        starts = self._concurrency * _AHEAD_SECONDS
        return _MOST_AHEAD if self._mean * _MOST_AHEAD <= starts else int(starts / self._mean)


@dataclass(slots=True)
class _DequeueRequest:
    """One call for tasks; sent again under its key, unchanged, until it is answered."""

    sources: Sequence[Source]
    count: int
    group: GroupLease | None
    key: str
    wait_seconds: float = 0.0
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a try to fetch tasks has brought, and when to try again if nothing else happens.

    ``answered``: the service has said what there is.  ``fatal`` is the reason why no task can be
    taken at all, ``away`` that there is no answer at present, since ``away_seconds``.
    """

    tasks: Sequence[LeasedTask] = ()
    group: GroupLease | None = None
    rest: float = 0.0
    prepared: bool = False
    answered: bool = False
    fatal: Exception | None = None
    away: HeadraceError | None = None
    away_seconds: float = 0.0


class Fetcher:
    """Polls the queues for tasks; one thread does.

    A request whose answer was lost is sent again unchanged: the service knows it by its key, and
    gives the tasks that it leased then.

    As long as no queue has answered yet, a refusal (a wrong key, a missing queue) is fatal;
    later it is logged, and tried again with growing pauses.
    """

    def __init__(
        self,
        service: WorkerService,
        clock: ServiceClock,
        settings: WorkerSettings,
        app: App,
        *,
        chance: random.Random,
        groups: OpenGroups | None = None,
    ) -> None:
        """With *groups*, tasks are put under a lease of many."""
        self._service, self._clock, self._settings, self._app = service, clock, settings, app
        self._sources = Sources(settings.queues, strict=settings.strict, chance=chance)
        self._backoff = CallBackoff(_LONGEST_WAIT, chance)
        self._groups = groups
        self._away_since = 0.0
        self._prepared = self._answered = False
        self._request: _DequeueRequest | None = None
        self._waits = False

    def fetch(
        self, room: int, in_use: GroupsInUse | None = None, *, may_wait: bool = False
    ) -> Fetched | None:
        """Ask once for up to *room* tasks, if it is time to; None: there is no room.

        With *may_wait* a service that waits at no cost is let wait for the first one a little.
        The first time, queues and schedules are prepared instead.
        """
        if not self._prepared:
            return self._prepare()
        now = self._clock.monotonic()
        request = self._request
        if request is None:
            if room <= 0:
                return None
            sources = self._sources.next(now)
            if not sources:
                return Fetched(rest=self._sources.rest(now))
            try:
                group = None
                if self._groups is not None:
                    group = self._groups.current(in_use or GroupsInUse())
            except (Unavailable, RateLimited) as error:
                return self._away(error)
            except HeadraceError as error:
                return self._refused(sources, error)
            key = new_idempotency_key()
            wait = _LET_WAIT_SECONDS if may_wait and self._waits else 0.0
            request = self._request = _DequeueRequest(sources, min(room, BATCH), group, key, wait)
        return self._ask(request, now)

    def found_nothing(self, since: float) -> bool:
        """Whether all queues were found empty when they were asked after *since*."""
        return self._sources.drained(since)

    def _prepare(self) -> Fetched:
        try:
            self._reach()
            self._service.prepare(self._app, self._settings)
            check_queues(self._service, [source.queue for source in self._sources.all])
        except (Unavailable, RateLimited) as error:
            return self._away(error)
        except Exception as error:  # noqa: BLE001 (an app that makes no sense, say: it stays so)
            return Fetched(fatal=error)
        self._prepared = True
        self._back()
        return Fetched(prepared=True)

    def _reach(self) -> None:
        """Ask once for something: what prepares tries again and again before it says a word.

        Raises Unavailable, RateLimited; a refusal is left to what comes next.
        """
        try:
            self._service.check_queue(self._sources.all[0].queue)
        except HeadraceError as error:
            if isinstance(error, Unavailable | RateLimited):
                raise

    def _ask(self, request: _DequeueRequest, now: float) -> Fetched:
        group = request.group
        request.attempt += 1
        try:
            found = self._service.dequeue(
                [source.queue for source in request.sources],
                batch_size=request.count,
                wait_seconds=request.wait_seconds,
                worker=self._settings.name,
                keepalive=self._settings.keepalive if group is None else None,
                lease_id=None if group is None else group.id,
                key=request.key,
                attempt=request.attempt,
            )
        except (Unavailable, RateLimited) as error:
            if group is not None and isinstance(error, Unavailable):
                group.doubtful = True  # what was leased may never be heard of
            return self._away(error)
        except LeaseLost as error:
            self._request = None
            return self._lost(request, error)
        except HeadraceError as error:
            self._request = None
            return self._refused(request.sources, error)
        self._request = None
        self._answered = True
        self._back()
        self._clock.heard(found.now, sent_at=now)
        answered_at = self._clock.monotonic()
        cheap = found.poll_after_seconds <= _CHEAP_SECONDS
        if not found.tasks:
            self._waits = cheap
        if cheap and request.wait_seconds:  # the service has waited, so there is no need to here
            found = msgspec.structs.replace(found, poll_after_seconds=0.0)
        self._sources.answered(request.sources, found, request.count, answered_at, sent_at=now)
        return Fetched(tasks=found.tasks, group=group, answered=True)

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

    def _lost(self, request: _DequeueRequest, error: LeaseLost) -> Fetched:
        """Go on under another lease; the heartbeats see to what is held under this one."""
        if request.group is None:
            return self._refused(request.sources, error)
        request.group.lost = True
        _log.warning("The lease of all tasks is lost, and another is opened: %s", error)
        return Fetched(rest=_LOST_SECONDS)

    def _refused(self, sources: Sequence[Source], error: HeadraceError) -> Fetched:
        """Leave alone what was refused: the queues that *error* names, or else all of them."""
        if not self._answered:
            return Fetched(fatal=error)
        named = {int(place) for each in error.errors for place in _NAMED.findall(each.field)}
        for place, source in enumerate(sources):
            if named and place not in named:
                continue
            source.refused(self._clock.monotonic())
            _log.error(
                "Queue %s gives no tasks, and is asked again later: %s",
                source.queue,
                missing(source.queue) if isinstance(error, NotFound) else error,
            )
        return Fetched()


def missing(queue: str) -> str:
    """Say that *queue* is missing, and how to mend that."""
    return f"there is no queue {queue}; create it with: headrace queue create {queue}"


def check_queues(service: WorkerService, queues: Sequence[str]) -> None:
    """Raise NotFound, Forbidden or Unauthenticated for the first of *queues* that cannot be seen.

    NotFound says how to create it.
    """
    for queue in queues:
        try:
            service.check_queue(queue)
        except NotFound:
            raise NotFound(missing(queue)) from None
