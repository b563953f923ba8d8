"""Recount a queue: count its tasks by the index, and set its counters to the result.

For a queue of which the recorder has missed changes.  A call counts for some seconds and returns a
cursor for the next one.  The index is read twice:

- The first pass counts its entries.  The index does not tell which tasks were cancelled or have
  failed, so it also reads each task that has not succeeded.  Then the counters are set.  Changes up
  to that time that the recorder gets later do not count again: see ``Counters.set_counts``.
- The second pass compares.  If the index has other entries now, tasks changed while they were
  counted, and the counters may be off by those tasks: the result is not exact.

Until the first pass is over a recount changes nothing, so it may be dropped or begun again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from headrace.domain.batch import HASHES, hash_of
from headrace.domain.change import Entry
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State, Task, places_of
from headrace.domain.transitions import standing_fault
from headrace.history.counters import Counters
from headrace.history.faults import FaultChanges, QueueFaults, body_of, kinds_of
from headrace.history.tally import CANCELLED, STATES, Counts, counts_of
from headrace.ops.shared.audit import Audit
from headrace.ops.shared.paging import Cursors
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Position, Record, Store

KIND: Final = "recount"
_DROPPED_AFTER: Final = timedelta(hours=1)
_PAGE: Final = 2_000
_READ: Final = 100


@dataclass(frozen=True, slots=True)
class Recounted:
    """The progress of a recount: final without a ``cursor``.

    ``was`` is what the counters say or, once they are set, what they said before.
    ``exact``: no task of the queue was written since the first step.
    """

    counts: Counts
    was: Counts
    cursor: str | None
    exact: bool


@dataclass(slots=True)
class _Progress:
    """How far a recount is; times are microseconds since 1970.

    ``places`` is the number of places that both passes have read, and ``after`` the last entry read
    of the next one.  ``digests`` has for each pass a sum over the entries that it has read.
    ``was`` is what the counters said when they were set, None before.
    """

    id: str
    began: int
    shards: int
    lanes: list[int]
    places: int = 0
    after: tuple[int, str] | None = None
    numbers: Counts = field(default_factory=counts_of)
    faults: QueueFaults = field(default_factory=QueueFaults)
    digests: list[int] = field(default_factory=lambda: [0, 0])
    was: Counts | None = None
    exact: bool = True

    def places_of(self, queue: str) -> list[Place]:
        """Return the places that each pass reads."""
        return [
            place for state in STATES for place in places_of(queue, state, self.shards, self.lanes)
        ]

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(replace(self, faults=QueueFaults())), "faults": body_of(self.faults.kinds)}

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the progress that a record holds."""
        kinds = kinds_of(record.body["faults"])
        return cls(**{**record.body, "faults": QueueFaults(kinds=kinds)})


@dataclass(slots=True, eq=False, repr=False)
class Recounting:
    """The use case, with what it needs from outside; a step counts for *patience* seconds."""

    store: Store
    queues: QueueOperations
    counters: Counters
    cursors: Cursors
    audit: Audit
    now: Callable[[], datetime]
    patience: float = 5.0
    new_id: Callable[[], str] = new_request_token

    def step(self, queue: str, cursor: str | None = None) -> Recounted:
        """Begin to recount *queue*, or continue at *cursor*.

        Raises NotFound for the queue, InvalidRequest for a cursor of a recount that was dropped or
        that another one has replaced, and Unavailable if the same step is taken at the same time:
        then it may be repeated.
        """
        source = self.queues.get(queue)
        scope = f"recount {queue}"
        record = self.store.record(KIND, queue)
        if cursor is None:
            progress = self._begin(source)
        else:
            progress = self._resumed(record, self.cursors.read(scope, cursor))
        places = progress.places_of(queue)
        until = self.now() + timedelta(seconds=self.patience)
        while progress.places < 2 * len(places):
            self._read_page(progress, places)
            if progress.places >= len(places) and progress.was is None:
                self._set_counters(queue, progress)
            if self.now() >= until:
                break
        over = progress.places == 2 * len(places)
        if over:
            same_places = (source.shards_in_use, sorted(source.lanes_in_use))
            progress.exact &= progress.digests[0] == progress.digests[1]
            progress.exact &= same_places == (progress.shards, progress.lanes)
        if not over or record is not None:
            self._save(queue, progress, record)
        was = progress.was or self.counters.counts(queue, self.counters.buffers())
        to_continue = None if over else self.cursors.write(scope, progress.id)
        return Recounted([*progress.numbers], was, to_continue, progress.exact)

    # -- a step --------------------------------------------------------------------------------

    def _begin(self, queue: Queue) -> _Progress:
        began, lanes = micros_of(self.now()), sorted(queue.lanes_in_use)
        return _Progress(self.new_id(), began, queue.shards_in_use, lanes)

    def _resumed(self, record: Record | None, recount: str) -> _Progress:
        if record is not None and (record.expires_at is None or record.expires_at > self.now()):
            progress = _Progress.of(record)
            if progress.id == recount:
                return progress
        message = "is of a recount that was dropped or that another one has replaced; begin again"
        raise InvalidRequest.of("cursor", message)

    def _save(self, queue: str, progress: _Progress, before: Record | None) -> None:
        version = before.version if before is not None else 0
        until = self.now() + _DROPPED_AFTER
        record = Record(KIND, queue, progress.body(), version + 1, until)
        if not self.store.put_record(record, replaces=version or None):
            message = f"Another call recounts queue {queue} at the same time; repeat this step"
            raise Unavailable(message)

    def _read_page(self, progress: _Progress, places: Sequence[Place]) -> None:
        """Read the next entries, with those past retention: they count until they are removed."""
        number, at = divmod(progress.places, len(places))
        place, after = places[at], progress.after
        behind = None if after is None else Position(instant_of(after[0]), after[1])
        page = self.store.entries(place, after=behind, limit=_PAGE)
        progress.digests[number] = (progress.digests[number] + _digest(page.entries)) % HASHES
        if number == 0:
            self._count(progress, place, page.entries)
        if page.last is None:
            progress.places, progress.after = progress.places + 1, None
        else:
            progress.after = micros_of(page.last.scheduled_at), page.last.task_id

    def _count(self, progress: _Progress, place: Place, entries: Sequence[Entry]) -> None:
        began, state = instant_of(progress.began), STATES.index(place.state)
        if place.state is State.SUCCEEDED:
            progress.numbers[state] += len(entries)
            progress.exact &= all(entry.own_time <= began for entry in entries)
            return
        faults = FaultChanges()
        for task in self._tasks(entries):
            if task is None or task.spent is not None or task.place != place:
                progress.exact = False
                continue
            progress.numbers[state] += 1
            progress.numbers[CANCELLED] += place.state is State.DEAD and task.cancelled
            progress.exact &= not _written_since(began, task)
            _count_fault(faults, task)
        for kinds in faults.by_queue.values():
            progress.faults.merge(kinds, now=0)

    def _tasks(self, entries: Sequence[Entry]) -> Iterator[Task | None]:
        """Yield the task of each entry, None where there is none any more."""
        ids = list(dict.fromkeys(entry.task_id for entry in entries))
        for start in range(0, len(ids), _READ):
            some = ids[start : start + _READ]
            yield from map(self.store.read(some, payload=False).get, some)

    def _set_counters(self, queue: str, progress: _Progress) -> None:
        counts, until = progress.numbers, micros_of(self.now())
        with self.audit.action("recount", queue=queue) as outcome:
            was = self.counters.set_counts(queue, counts, progress.faults.kinds, until)
            off = sum(abs(right - found) for right, found in zip(counts, was, strict=True))
            outcome.matched, outcome.changed = sum(counts[: len(STATES)]), off
        progress.was = was


def _digest(entries: Sequence[Entry]) -> int:
    """Return a sum that is the same for the same entries, in whatever order and pages."""
    return sum(
        hash_of(f"{entry.place.label} {micros_of(entry.scheduled_at)} {entry.task_id}")
        for entry in entries
    )


def _written_since(began: datetime, task: Task) -> bool:
    """Tell whether *task* came to its state after *began*."""
    times = (task.enqueued_at, task.returned_at, task.started_at, task.finished_at)
    return any(at is not None and at > began for at in times)


def _count_fault(faults: FaultChanges, task: Task) -> None:
    fault = standing_fault(task)
    if fault is not None:
        at = task.errors[-1].at if task.errors else task.finished_at or task.scheduled_at
        kind = faults.count(task.queue, fault.fingerprint)
        kind.step(fault, 1)
        kind.see(fault, micros_of(at), times=0)  # the recorder counts how often errors come
