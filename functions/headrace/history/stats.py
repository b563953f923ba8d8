"""How a queue is doing: counts, ages, rates, and a series of points for charts.

Long, because all of these read the same few things at one moment, and must agree on it.

Counts and series are the recorder's, a second or so behind.  What waits and what is in flight is
looked up in the index as well, some hundred entries at most: in a small queue that *is* the count,
in a large one it divides the recorder's number into ready and scheduled.

**How old the figures are.**  They are as of the latest change the recorder has counted.  Nothing
comes from the stream while nothing changes, so when that is a while ago the index is asked for a
change of this queue that came after it: if there is none, the figures are as of now.

**How far back.**  The recorder's minutes are kept for a week; what came before is in the lake, from
where the days that are rolled up are read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.domain.change import Entry
from headrace.domain.instants import MICROSECOND, MINUTE, instant_of, micros_of
from headrace.domain.queue import Queue, Threshold
from headrace.domain.task import State, Status, Task
from headrace.domain.transitions import Event
from headrace.history.counters import Counters, Totals
from headrace.history.exact_counts import exact_counts
from headrace.history.metrics import STEP_SECONDS, Archive, MetricSeries, Steps
from headrace.history.tally import Activity, by_state, cancelled_of
from headrace.history.throughput import Failing
from headrace.ops.shared.group_limits import Blocking
from headrace.ops.shared.lanes import oldest_ready
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.tasks.fair_groups import FairGroups
from headrace.ops.tasks.inspect import Inspect
from headrace.store.base import Record, Store
from headrace.store.call_scope import flat_rate

if TYPE_CHECKING:
    from headrace.domain.alerts import Alert

_LOOK: Final = 250  # entries of one state and side, all shards together
_FEW: Final = 100
_GLANCE: Final = 50
_FIRST: Final = 8  # enough for the oldest
_FRESH: Final = timedelta(seconds=5)  # not worth asking whether there is something newer
_SHARDS_ASKED: Final = 4  # tasks are spread evenly: what is missing is missing on each
_LEAST_PART: Final = 0.001
_FINISHED: Final = (State.SUCCEEDED, State.DEAD)

Each: TypeAlias = Callable[[Callable[[Queue], "Glance"], Iterable[Queue]], Iterable["Glance"]]
"""What map() does with one iterable: the result of a look at each of some queues, in order."""


@dataclass(frozen=True, slots=True)
class EventRates:
    """Events per second, from the beginning of the last full minute on."""

    enqueued: float
    dequeued: float
    succeeded: float
    failed: float
    moved: float = 0.0  # on to another queue, by a worker

    @property
    def out(self) -> float:
        """What leaves as it should: succeeded, or moved on."""
        return self.succeeded + self.moved


@dataclass(frozen=True, slots=True)
class GroupGlance:
    """A group among the next turns: how many are its, since when its first is due (seconds).

    ``dequeued`` is its part of what the queue delivers a second, as the next turns divide it.
    ``blocked`` is what keeps it from having another task in flight.
    """

    group_key: str | None
    turns: int
    age: float
    dequeued: float
    blocked: Blocking | None = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at a glance; ages are seconds, None when there is no such task.

    ``alerts`` are those that are on, None for a queue that can have none.
    """

    counts: Mapping[Status, int]
    cancelled: int  # of the dead: unless exact, as far as the recorder knows, so rather too few
    age_of_oldest_ready: float | None
    age_of_oldest_inflight: float | None
    rates: EventRates
    as_of: datetime
    staleness: float
    groups: Sequence[GroupGlance] | None = None
    alerts: Mapping[Threshold, "Alert"] | None = None


@dataclass(frozen=True, slots=True)
class Glance:
    """A queue among many; ``started`` is by five minutes, of an hour, ``alerts`` as above.

    ``grown`` is by how many more tasks wait than five minutes ago, ``died`` how many did since.
    ``failing`` is None unless more attempts fail than usually do.
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
    """Several queues at a glance; ``as_of`` is the latest change counted, None for none yet."""

    queues: Mapping[str, Glance]
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The first entries of a stretch of the index, in order; ``complete`` when that is all."""

    entries: Sequence[Entry]
    complete: bool

    @property
    def count(self) -> int:
        return len(self.entries)

    def at_least(self, number: int) -> int:
        """Return *number*, as far as what was seen agrees."""
        return self.count if self.complete else max(number, self.count)

    def estimate(self, begin: datetime | None, end: datetime | None) -> float:
        """Return about how many there are from *begin* to *end*, were they as dense all along."""
        if self.complete or begin is None or end is None or end <= begin:
            return self.count
        part = (self.entries[-1].own_time - begin) / (end - begin)
        return self.count / min(1.0, max(_LEAST_PART, part))


@dataclass(slots=True, eq=False, repr=False)
class StatsOperations:
    """The use case, with what it needs from outside."""

    store: Store
    queues: QueueOperations
    inspect: Inspect
    counters: Counters
    now: Callable[[], datetime]
    fair_groups: FairGroups
    archive: Archive | None = None

    def of(self, queue: str, *, exact: bool = False) -> QueueStats:
        """Return how *queue* is doing; *exact* counts every entry of the index instead.

        Of a queue that has more entries than one call may count, the recorder knows all the same.
        Raises NotFound.
        """
        source = self.queues.cached(queue)
        buffers = self.counters.buffers()
        sums = self.counters.counts(queue, buffers)
        recorded = by_state(sums)
        now = self.now()
        later = self._look(source, State.ENQUEUED, since=now + MICROSECOND, limit=_LOOK)
        limit = _FEW if later.complete else _LOOK
        ready = self._look(source, State.ENQUEUED, until=now, limit=limit)
        inflight = self._look(source, State.INFLIGHT, limit=_GLANCE)
        as_of = self._as_of(source, buffers, now)
        rates = self._rates(queue, buffers, as_of)
        counted = exact_counts(self.inspect, source) if exact else None
        if counted is not None:
            as_of, counts, cancelled = now, counted.counts, counted.cancelled
        else:
            ready_count, later_count = self._divided(source, ready, later, recorded, now)
            counts = {
                Status.SCHEDULED: later_count,
                Status.READY: ready_count,
                Status.INFLIGHT: inflight.at_least(recorded[State.INFLIGHT]),
                **{Status(one): self._kept(source, one, recorded, now) for one in _FINISHED},
            }
            cancelled = cancelled_of(sums, counts[Status.DEAD])
        return QueueStats(
            counts,
            cancelled,
            oldest_ready(ready.entries, now),
            self._oldest_inflight(source, inflight, now),
            rates,
            as_of,
            _seconds(now - as_of),
            None if source.settings.groups is None else self._groups(source, rates, now),
            self._alerts(source),
        )

    def overview(self, queues: Sequence[Queue], each: Each = map) -> Overview:
        """Return how *queues* are doing, from what is read of all of them at once.

        That is one look at the buffers and one at the totals, and for each queue one at the index:
        two where more is ready than that shows, four if as much is scheduled, more where tasks may
        be past their retention.  *each* makes these looks: map(), or one like it that makes several
        at a time.
        """
        totals, now = self.counters.totals(), self.now()
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

        The last hour when neither is named.  What is more than a week ago is read from the lake;
        steps of days that are not rolled up, or without a lake, say nothing.
        Raises NotFound, InvalidRequest naming ``from`` or ``step_seconds``, and Unavailable.
        """
        source = self.queues.cached(queue)
        now = self.now()
        steps = Steps.between(since, until, step_seconds, now)
        buffers = self.counters.buffers()
        recorded = self.counters.oldest()
        before, unknown = self._before(queue, steps, recorded)
        since_then = self.counters.minutes(queue, buffers, max(steps.first, recorded), steps.last)
        points = steps.points(chain(before, since_then), unknown)
        as_of = self._as_of(source, buffers, now)
        return MetricSeries(points, step_seconds, as_of, _seconds(now - as_of))

    def _before(
        self, queue: str, steps: Steps, recorded: int
    ) -> tuple[Iterable[tuple[int, Activity]], Sequence[range]]:
        """Return the activity before the minute *recorded*, and minutes of which none is known."""
        if steps.first >= recorded:
            return (), ()
        known = self.archive.known() if self.archive is not None else range(0)
        if self.archive is None or not known:
            return (), [range(steps.first, recorded)]
        happened = self.archive.minutes(queue, steps, range(known.start, min(known.stop, recorded)))
        unknown = range(steps.first, min(known.start, recorded)), range(known.stop, recorded)
        return happened, unknown

    # -- many queues ---------------------------------------------------------------------------

    def _glance(self, queue: Queue, totals: Totals, now: datetime) -> Glance:
        sums = totals.counts(queue.name)
        recorded = by_state(sums)
        waiting = recorded[State.ENQUEUED]
        limit = _GLANCE if waiting <= _GLANCE else _FIRST
        ready = self._look(queue, State.ENQUEUED, until=now, limit=limit)
        if ready.complete:
            ready_count, later_count = ready.count, max(0, waiting - ready.count)
        else:
            later = self._look(queue, State.ENQUEUED, since=now + MICROSECOND, limit=limit)
            if not later.complete and limit < _GLANCE:  # what is to be divided is seen closer
                ready = self._look(queue, State.ENQUEUED, until=now, limit=_GLANCE)
                later = self._look(queue, State.ENQUEUED, since=now + MICROSECOND, limit=_GLANCE)
            ready_count, later_count = self._divided(queue, ready, later, recorded, now)
        counts = {
            Status.SCHEDULED: later_count,
            Status.READY: ready_count,
            Status.INFLIGHT: max(0, recorded[State.INFLIGHT]),
            **{Status(one): self._kept_at_a_glance(queue, one, recorded, now) for one in _FINISHED},
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
        """Return the alerts that are on; None for a queue that can have none."""
        settings = queue.settings.alerts
        if settings is None:
            return None
        from headrace.store.records.alerts import state_of  # noqa: PLC0415  few queues have any

        with flat_rate():
            state = state_of(self.store, queue)
        return {} if state is None else state.on(settings)

    def _kept_at_a_glance(
        self, queue: Queue, state: State, recorded: Mapping[State, int], now: datetime
    ) -> int:
        """Return the recorder's number where nothing can be past its retention yet."""
        young = now - queue.created_at <= timedelta(seconds=_retention(queue, state))
        if young or recorded[state] <= 0:
            return max(0, recorded[state])
        return self._kept(queue, state, recorded, now)

    # -- counts --------------------------------------------------------------------------------

    def _divided(
        self,
        queue: Queue,
        ready: _Seen,
        later: _Seen,
        recorded: Mapping[State, int],
        now: datetime,
    ) -> tuple[int, int]:
        """Return how many of those waiting are ready, and how many are scheduled for later."""
        if ready.complete and later.complete:
            return ready.count, later.count
        waiting = max(recorded[State.ENQUEUED], ready.count + later.count)
        if later.complete:
            return waiting - later.count, later.count
        if ready.complete:
            return ready.count, waiting - ready.count
        last = self._newest(queue, State.ENQUEUED)
        before = ready.estimate(ready.entries[0].own_time, now)
        after = later.estimate(now, last.own_time if last else None)
        share = round(waiting * before / (before + after))
        share = min(max(share, ready.count), waiting - later.count)
        return share, waiting - share

    def _kept(
        self, queue: Queue, state: State, recorded: Mapping[State, int], now: datetime
    ) -> int:
        """Return how many finished tasks there are, without those past their retention.

        The table may take two days to forget them, and only then does the recorder hear of it.
        """
        oldest = self._look(queue, state, limit=_GLANCE)
        finished = oldest.at_least(recorded[state])
        hidden = sum(entry.hidden(now) for entry in oldest.entries)
        if oldest.complete or hidden < oldest.count:
            return finished - hidden
        retention = timedelta(seconds=_retention(queue, state))
        over = oldest.estimate(oldest.entries[0].own_time, now - retention)
        return max(0, finished - round(over))

    # -- ages, rates, freshness ----------------------------------------------------------------

    def _oldest_inflight(self, queue: Queue, inflight: _Seen, now: datetime) -> float | None:
        """Return how long the task whose first lease ends first has been worked on."""
        task = self._task(inflight.entries[0]) if inflight.entries else None
        if task is None or task.started_at is None:
            return None
        still = (task.queue, task.state) == (queue.name, State.INFLIGHT)
        return _seconds(now - task.started_at) if still else None

    def _groups(self, queue: Queue, rates: EventRates, now: datetime) -> Sequence[GroupGlance]:
        """Return the groups that have most of the next turns."""
        found = self.fair_groups.next_turns(queue)
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
        for _, activity in self.counters.minutes(queue, buffers, first, end // MINUTE):
            total.merge(activity)
        seconds = (end - first * MINUTE) / 1_000_000
        events = (Event.ENQUEUED, Event.STARTED, Event.SUCCEEDED, Event.FAILED, Event.MOVED)
        return EventRates(*(total.number(event) / seconds for event in events))

    def _as_of(self, queue: Queue, buffers: Sequence[Record], now: datetime) -> datetime:
        """Return the time up to which all changes of *queue* are counted, as far as one can see."""
        counted = max((buffer.body["as_of"] for buffer in buffers), default=0) or None
        as_of = queue.created_at if counted is None else min(now, instant_of(counted))
        if now - as_of <= _FRESH or any(self._changes_after(queue, as_of, now)):
            return as_of
        return now

    def _changes_after(self, queue: Queue, as_of: datetime, now: datetime) -> Iterator[bool]:
        """Tell of the newest finish, delivery and due time whether they came after *as_of*."""
        for state in _FINISHED:
            finished = self._newest(queue, state)
            yield finished is not None and finished.own_time > as_of
        for state in (State.ENQUEUED, State.INFLIGHT):
            until = now if state is State.ENQUEUED else None
            entry = self._newest(queue, state, until=until)
            if entry is None or entry.own_time <= as_of:
                continue
            task = self._task(entry)
            if task is not None:
                yield task.enqueued_at > as_of or (
                    task.started_at is not None and task.started_at > as_of
                )

    # -- the index -----------------------------------------------------------------------------

    def _look(
        self,
        queue: Queue,
        state: State,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int,
    ) -> _Seen:
        """Return the first entries of all places, about *limit* together."""
        places = queue.places(state)
        each = -(-limit // len(places))
        entries: list[Entry] = []
        complete = True
        for place in places:
            page = self.store.entries(place, since=since, until=until, limit=each)
            entries += page.entries
            complete = complete and page.last is None
        entries.sort(key=lambda entry: entry.own_time)
        return _Seen(entries, complete)

    def _newest(self, queue: Queue, state: State, *, until: datetime | None = None) -> Entry | None:
        """Return the last entry of a state by its own time, on the shards that are looked at."""
        found: list[Entry] = []
        for place in queue.places(state):
            if place.shard >= _SHARDS_ASKED:
                continue
            found += self.store.entries(place, until=until, descending=True, limit=1).entries
        return max(found, key=lambda entry: entry.own_time, default=None)

    def _task(self, entry: Entry) -> Task | None:
        return self.store.read([entry.task_id], payload=False).get(entry.task_id)


def _retention(queue: Queue, state: State) -> float:
    settings = queue.settings
    if state is State.SUCCEEDED:
        return settings.history_retention_in_seconds
    return settings.dead_letter_queue_config.retention_period_in_seconds


def _seconds(length: timedelta) -> float:
    return max(0.0, length.total_seconds())
