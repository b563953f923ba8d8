"""The state of a queue: numbers of tasks, ages, rates, and a series of points for charts.

Numbers and series are the recorder's, a second or so behind.  A few hundred entries of the index
show what waits and what is in flight now: in a small queue they are the numbers, in a large queue
they divide the recorder's.

The figures are as of the latest change that the recorder has counted.  The stream brings nothing
while nothing changes, so if that change is older than some seconds, the index is searched for a
newer change of this queue.  Without one, the figures are as of now.

The recorder's minutes are kept for a week; earlier days are read from the lake.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.domain.queue import Queue
from headrace.domain.queue_settings import Threshold
from headrace.domain.task import State, Status
from headrace.domain.times import MINUTE, instant_of, micros_of
from headrace.domain.transitions import Event
from headrace.history.index_counts import FINISHED, GLANCE, QueueIndex, Sample, exact_counts
from headrace.history.series import STEP_SECONDS, Archive, MetricSeries, Steps
from headrace.history.tally import Activity, by_state, cancelled_of
from headrace.history.totals import Failing, Totals
from headrace.ops.shared.group_limits import Blocking
from headrace.ops.shared.lanes import oldest_ready
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Record
from headrace.store.call_scope import flat_rate

if TYPE_CHECKING:
    from headrace.domain.alerts import Alert
    from headrace.runtime.service import Service

_LOOK: Final = 250  # entries of one state and side, all shards together
_FEW: Final = 100
_FIRST: Final = 8  # enough for the oldest
_FRESH: Final = timedelta(seconds=5)  # figures of this age are as of their last change

Each: TypeAlias = Callable[[Callable[[Queue], "Glance"], Iterable[Queue]], Iterable["Glance"]]
"""A function like map() for one iterable: it returns the results in order."""


@dataclass(frozen=True, slots=True)
class EventRates:
    """Events per second, from the beginning of the last full minute on."""

    enqueued: float
    dequeued: float
    succeeded: float
    failed: float
    moved: float = 0.0  # to another queue, by a worker

    @property
    def out(self) -> float:
        """Tasks that leave without an error: succeeded, or moved on."""
        return self.succeeded + self.moved


@dataclass(frozen=True, slots=True)
class GroupGlance:
    """A group among the next turns: the number of its turns, and the age of the first (seconds).

    ``dequeued`` is its part of the queue's deliveries per second, by the next turns.
    ``blocked`` is the limit that keeps it from having another task in flight, or None.
    """

    group_key: str | None
    turns: int
    age: float
    dequeued: float
    blocked: Blocking | None = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The state of one queue; ages are seconds, None if there is no such task.

    ``cancelled`` is a part of the dead tasks; unless exact, the number may be too small.
    ``alerts`` are the alerts that are on; None without alert settings.
    """

    counts: Mapping[Status, int]
    cancelled: int
    age_of_oldest_ready: float | None
    age_of_oldest_inflight: float | None
    rates: EventRates
    as_of: datetime
    staleness: float
    groups: Sequence[GroupGlance] | None = None
    alerts: Mapping[Threshold, "Alert"] | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """The state of one queue of many.

    ``started`` are the starts of the last hour by five minutes, ``grown`` is the change of the
    number of waiting tasks in five minutes, ``died`` the number of deaths in this time.
    ``failing`` is None unless more attempts fail than usual; ``alerts`` are as in QueueStats.
    """

    counts: Mapping[Status, int]
    cancelled: int
    age_of_oldest_ready: float | None
    rates: EventRates
    started: Sequence[int]
    alerts: Mapping[Threshold, "Alert"] | None = None
    grown: int = 0
    died: int = 0
    failing: Failing | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of several queues; ``as_of`` is the latest change counted, or None."""

    queues: Mapping[str, Glance]
    as_of: datetime | None


class StatsOperations(ServicePart):
    """Shows the state of queues."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.archive: Archive | None = None if service.lake is None else Archive(service.lake)

    def of(self, queue: str, *, exact: bool = False) -> QueueStats:
        """Return the state of *queue*; *exact* counts every entry of the index.

        If the queue has more entries than one call may count, the figures are the recorder's.
        Raises NotFound.
        """
        source = self.service.queues.cached(queue)
        buffers = self.service.counters.buffers()
        sums = self.service.counters.counts(queue, buffers)
        index = QueueIndex(self.store, source, by_state(sums), self.now())
        later = index.scheduled(_LOOK)
        ready = index.ready(_FEW if later.complete else _LOOK)
        inflight = index.first(State.INFLIGHT, limit=GLANCE)
        as_of = self._as_of(index, buffers)
        rates = self._rates(queue, buffers, as_of)
        counted = exact_counts(self.service.inspect, source) if exact else None
        if counted is not None:
            as_of, (counts, cancelled) = index.now, counted
        else:
            ready_count, later_count = index.divide_waiting(ready, later)
            counts = {
                Status.SCHEDULED: later_count,
                Status.READY: ready_count,
                Status.INFLIGHT: inflight.at_least(index.recorded[State.INFLIGHT]),
                **{Status(state): index.finished(state) for state in FINISHED},
            }
            cancelled = cancelled_of(sums, counts[Status.DEAD])
        return QueueStats(
            counts,
            cancelled,
            oldest_ready(ready.entries, index.now),
            _age_of_oldest_inflight(index, inflight),
            rates,
            as_of,
            _seconds(index.now - as_of),
            None if source.settings.groups is None else self._groups(source, rates, index.now),
            self._alerts(source),
        )

    def overview(self, queues: Sequence[Queue], each: Each = map) -> Overview:
        """Return the state of *queues*.

        This reads the buffers and the totals once, and the index for each queue: once in most
        queues, twice if more tasks are ready than the first look shows, four times if as many are
        scheduled, and more often if tasks may be past their retention.  *each* makes these looks:
        map(), or a function like it that makes several at the same time.
        """
        totals, now = self.service.counters.totals(), self.now()
        glances = each(lambda queue: self._glance(queue, totals, now), queues)
        counted = totals.as_of
        as_of = None if counted is None else min(now, instant_of(counted))
        return Overview(dict(zip((queue.name for queue in queues), glances, strict=True)), as_of)

    def metrics(
        self,
        queue: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step_seconds: int = STEP_SECONDS,
    ) -> MetricSeries:
        """Return a point for each step from *since* (its minute) to *until* (not included).

        The default is the last hour.  Points from before the last week are read from the lake; for
        steps of days that are not rolled up, or without a lake, they are unknown.
        Raises NotFound, InvalidRequest naming ``from`` or ``step_seconds``, and Unavailable.
        """
        source = self.service.queues.cached(queue)
        now = self.now()
        steps = Steps.between(since, until, step_seconds, now)
        buffers = self.service.counters.buffers()
        recorded = self.service.counters.oldest()
        before, unknown = self._before(queue, steps, recorded)
        since_then = self.service.counters.minutes(
            queue, buffers, max(steps.first, recorded), steps.last
        )
        points = steps.points(chain(before, since_then), unknown)
        as_of = self._as_of(QueueIndex(self.store, source, {}, now), buffers)
        return MetricSeries(points, step_seconds, as_of, _seconds(now - as_of))

    def _before(
        self, queue: str, steps: Steps, recorded: int
    ) -> tuple[Iterable[tuple[int, Activity]], Sequence[range]]:
        """Return the activity before the minute *recorded*, and the minutes that are unknown."""
        if steps.first >= recorded:
            return (), ()
        known = self.archive.known() if self.archive is not None else range(0)
        if self.archive is None or not known:
            return (), [range(steps.first, recorded)]
        happened = self.archive.minutes(queue, steps, range(known.start, min(known.stop, recorded)))
        unknown = range(steps.first, min(known.start, recorded)), range(known.stop, recorded)
        return happened, unknown

    def _glance(self, queue: Queue, totals: Totals, now: datetime) -> Glance:
        sums = totals.counts(queue.name)
        index = QueueIndex(self.store, queue, by_state(sums), now)
        waiting = index.recorded[State.ENQUEUED]
        limit = GLANCE if waiting <= GLANCE else _FIRST
        ready = index.ready(limit)
        if ready.complete:
            ready_count, later_count = ready.count, max(0, waiting - ready.count)
        else:
            later = index.scheduled(limit)
            if not later.complete and limit < GLANCE:  # to divide them, more entries are needed
                ready, later = index.ready(GLANCE), index.scheduled(GLANCE)
            ready_count, later_count = index.divide_waiting(ready, later)
        counts = {
            Status.SCHEDULED: later_count,
            Status.READY: ready_count,
            Status.INFLIGHT: max(0, index.recorded[State.INFLIGHT]),
            **{Status(state): index.finished_at_a_glance(state) for state in FINISHED},
        }
        throughput, micros = totals.throughput(queue.name), micros_of(now)
        return Glance(
            counts,
            cancelled_of(sums, counts[Status.DEAD]),
            oldest_ready(ready.entries, now),
            EventRates(*throughput.rates(micros)),
            throughput.hour(micros),
            self._alerts(queue),
            *throughput.step(micros),
            throughput.failing(micros),
        )

    def _alerts(self, queue: Queue) -> Mapping[Threshold, "Alert"] | None:
        """Return the alerts that are on; None for a queue without alert settings."""
        settings = queue.settings.alerts
        if settings is None:
            return None
        from headrace.store.records.queues import alerts_of  # noqa: PLC0415  few queues have any

        with flat_rate():
            state = alerts_of(self.store, queue)
        return {} if state is None else state.on(settings)

    def _groups(self, queue: Queue, rates: EventRates, now: datetime) -> Sequence[GroupGlance]:
        """Return the groups that have most of the next turns."""
        found = self.service.fair_groups.next_turns(queue)
        return [
            GroupGlance(
                one.group_key,
                one.turns,
                _seconds(now - one.due_since),
                rates.dequeued * one.turns / found.looked_at,
                one.blocked,
            )
            for one in found.shares
        ]

    def _rates(self, queue: str, buffers: Sequence[Record], as_of: datetime) -> EventRates:
        end = micros_of(as_of)
        first = end // MINUTE - 1
        total = Activity()
        for _, activity in self.service.counters.minutes(queue, buffers, first, end // MINUTE):
            total.merge(activity)
        seconds = (end - first * MINUTE) / 1_000_000
        events = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.MOVED)
        return EventRates(*(total.number(event) / seconds for event in events))

    def _as_of(self, index: QueueIndex, buffers: Sequence[Record]) -> datetime:
        """Return the time up to which all changes of the queue are counted, by the index."""
        counted = max((buffer.body["as_of"] for buffer in buffers), default=0)
        as_of = min(index.now, instant_of(counted)) if counted else index.queue.created_at
        if index.now - as_of <= _FRESH or any(_changes_after(index, as_of)):
            return as_of
        return index.now


def _changes_after(index: QueueIndex, as_of: datetime) -> Iterator[bool]:
    """Yield whether the newest finish, delivery and due time are after *as_of*."""
    for state in FINISHED:
        finished = index.newest(state)
        yield finished is not None and finished.own_time > as_of
    for state in (State.ENQUEUED, State.INFLIGHT):
        entry = index.newest(state, until=index.now if state is State.ENQUEUED else None)
        if entry is None or entry.own_time <= as_of:
            continue
        task = index.task(entry)
        if task is not None:
            started = task.started_at
            yield task.enqueued_at > as_of or (started is not None and started > as_of)


def _age_of_oldest_inflight(index: QueueIndex, inflight: Sample) -> float | None:
    """Return the seconds since the start of the task whose lease ends first."""
    task = index.task(inflight.entries[0]) if inflight.entries else None
    if task is None or task.started_at is None:
        return None
    still = (task.queue, task.state) == (index.queue.name, State.INFLIGHT)
    return _seconds(index.now - task.started_at) if still else None


def _seconds(length: timedelta) -> float:
    return max(0.0, length.total_seconds())
