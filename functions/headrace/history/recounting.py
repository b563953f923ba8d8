"""Recounts: they correct the counters of a queue, or of a batch, after the recorder missed changes.

A call counts for some seconds and returns a cursor for the next one.

For a queue, the tasks are counted by the index, which is read twice:

- The first pass counts its entries.  The index does not tell which tasks were cancelled or have
  failed, so it also reads each task that has not succeeded.  Then the counters are set.  The
  recorder does not count changes up to that time that come later: see ``Counters.set_counts``.
- The second pass compares.  If the index has other entries now, tasks changed while they were
  counted, and the counters may be off by those tasks: the result is not exact.

Until the first pass is over, a recount changes nothing, so it may be dropped or started again.

For a batch, each ended task is read, because no index has the members.  The batch takes the numbers
only if

- all members are found: those not spawned by a report are as many as the total, and no spawned one
  is missing;
- and each ended ``_SETTLED`` before the recount began.

Every change of these members is then older than ``_MARGIN`` before the beginning, and every other
change is later, however late clocks, slow writes and the index are.  From then on the batch skips
changes from before that time that the recorder gets later.  Otherwise the batch stays as it is: a
member that was removed looks like one that never existed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.domain.batch import HASHES, FoundMembers, TaskBatch, hash_of
from headrace.domain.change import Entry
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State, Task, places_of
from headrace.domain.times import instant_of, micros_of
from headrace.domain.transitions import standing_fault
from headrace.history.faults import QueueFaults, QueueKinds, count_of, kinds_body, kinds_of
from headrace.history.tally import CANCELLED, STATES, Counts, counts_of
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Position, Record
from headrace.store.call_scope import flat_rate
from headrace.store.records import queues as queue_records

if TYPE_CHECKING:
    from headrace.runtime.service import Service


KIND: Final = "recount"
_DROPPED_AFTER: Final = timedelta(hours=1)
_PAGE: Final = 2_000
_READ: Final = 100
_ENDED: Final = (State.SUCCEEDED, State.DEAD)
_SETTLED: Final = timedelta(minutes=10)
_MARGIN: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Recounted:
    """The progress of a recount: final without a ``cursor``.

    ``was`` has the numbers of the counters, after they are set those before.
    ``exact``: no task of the queue was written since the first step.
    """

    counts: Counts
    was: Counts
    cursor: str | None
    exact: bool


@dataclass(slots=True)
class _Progress:
    """The progress of a recount; times are microseconds since 1970.

    ``places`` is the number of places that both passes have read, and ``after`` the last entry read
    of the next one.  ``digests`` has for each pass a sum over the entries that it has read.
    ``was`` has the numbers of the counters before they were set; None until then.
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
        """Return the progress as JSON."""
        return {
            **asdict(replace(self, faults=QueueFaults())),
            "faults": kinds_body(self.faults.kinds),
        }

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the progress that a record holds."""
        kinds = kinds_of(record.body["faults"])
        return cls(**{**record.body, "faults": QueueFaults(kinds=kinds)})


class Recounting(ServicePart):
    """Recounts queues; a step counts for *patience* seconds."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 5.0
        self.new_id: Callable[[], str] = new_request_token

    def step(self, queue: str, cursor: str | None = None) -> Recounted:
        """Begin to recount *queue*, or continue at *cursor*.

        Raises NotFound for the queue, InvalidRequest for a cursor of a recount that was dropped or
        replaced by another one, and Unavailable if the same step runs at the same time, or if it
        could not be finished: then it may be repeated.
        """
        source = self.service.queues.get(queue)
        scope = f"recount {queue}"
        record = self.store.record(KIND, queue)
        if cursor is None:
            progress = self._begin(source)
        else:
            progress = self._resumed(record, self.service.cursors.read(scope, cursor))
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
        was = progress.was or self.service.counters.counts(queue, self.service.counters.buffers())
        to_continue = None if over else self.service.cursors.write(scope, progress.id)
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
        """Read the next entries; a task past its retention counts until it is removed."""
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
        faults: QueueKinds = {}
        for task in self._tasks(entries):
            if task is None or task.ended_in is not None or task.place != place:
                progress.exact = False
                continue
            progress.numbers[state] += 1
            progress.numbers[CANCELLED] += place.state is State.DEAD and task.cancelled
            progress.exact &= not _written_since(began, task)
            _count_fault(faults, task)
        for kinds in faults.values():
            progress.faults.merge(kinds, now=0)

    def _tasks(self, entries: Sequence[Entry]) -> Iterator[Task | None]:
        """Yield the task of each entry; None if it was removed."""
        ids = list(dict.fromkeys(entry.task_id for entry in entries))
        for start in range(0, len(ids), _READ):
            some = ids[start : start + _READ]
            yield from map(self.store.read(some, payload=False).get, some)

    def _set_counters(self, queue: str, progress: _Progress) -> None:
        counts, until = progress.numbers, micros_of(self.now())
        with self.service.audit.action("recount", queue=queue) as outcome:
            was = self.service.counters.set_counts(queue, counts, progress.faults.kinds, until)
            off = sum(abs(right - found) for right, found in zip(counts, was, strict=True))
            outcome.matched, outcome.changed = sum(counts[: len(STATES)]), off
        progress.was = was


def _digest(entries: Sequence[Entry]) -> int:
    """Return a sum that does not depend on the order of the entries, nor on their pages."""
    return sum(
        hash_of(f"{entry.place.label} {micros_of(entry.scheduled_at)} {entry.task_id}")
        for entry in entries
    )


def _written_since(began: datetime, task: Task) -> bool:
    """Return whether *task* entered its state after *began*."""
    times = (task.enqueued_at, task.returned_at, task.started_at, task.finished_at)
    return any(at is not None and at > began for at in times)


def _count_fault(faults: QueueKinds, task: Task) -> None:
    fault = standing_fault(task)
    if fault is not None:
        at = task.errors[-1].at if task.errors else task.finished_at or task.scheduled_at
        kind = count_of(faults, task.queue, fault.fingerprint)
        kind.step(fault, 1)
        kind.see(fault, micros_of(at), times=0)  # the recorder counts how often errors come


@dataclass(frozen=True, slots=True)
class RecountedBatch:
    """The progress of a recount of a batch: final without a ``cursor``.

    ``was`` is the batch before.  ``refusal`` is the reason why it was not changed, or None.
    """

    found: FoundMembers
    was: TaskBatch
    refusal: str | None
    cursor: str | None


class BatchRecounting(ServicePart):
    """Recounts batches; a step counts for *patience* seconds."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 5.0

    def step(self, batch_id: str, cursor: str | None = None) -> RecountedBatch:
        """Begin to recount the members of a batch, or continue; the last step corrects the batch.

        Raises NotFound for the batch, and InvalidRequest for a cursor of another list.
        """
        was = self.service.task_batches.get(batch_id)
        scope = f"recount batch {was.key}"
        began, found, where, after = self.now(), FoundMembers(), ("", 0), None
        if cursor is not None:
            micros, numbers, queue, number, end = self.service.cursors.read(scope, cursor)
            dead_ids = tuple(numbers.pop("dead_ids"))
            began, found = instant_of(micros), FoundMembers(**numbers, dead_ids=dead_ids)
            where = (queue, number)
            after = None if end is None else Position(instant_of(end[0]), end[1])
        until = self.now() + timedelta(seconds=self.patience)
        while (place := self._place(*where)) is not None:
            with flat_rate():  # most of these tasks are not in the batch
                page = self.store.entries(place, after=after, limit=_READ)
                ids = [entry.task_id for entry in page.entries]
                tasks = self.store.read(ids, payload=False)
            for task_id in ids:
                found = _with_task(found, was.key, tasks.get(task_id), place, began - _SETTLED)
            after = page.last
            where = (place.queue, _number(place) + (after is None))
            if self.now() >= until:
                end = None if after is None else (micros_of(after.scheduled_at), after.task_id)
                state = (micros_of(began), asdict(found), *where, end)
                return RecountedBatch(found, was, None, self.service.cursors.write(scope, state))
        return self._finish(was, found, began - _MARGIN)

    def _finish(self, was: TaskBatch, found: FoundMembers, until: datetime) -> RecountedBatch:
        with self.service.audit.action("recount", where={"batch": was.id}) as outcome:
            outcome.matched, outcome.changed = found.created, 0
            now = self.service.batch_writes.recount(was.id, found, until)
            outcome.changed = int(now.version != was.version)
        return RecountedBatch(found, was, _refusal(now, found), None)

    def _place(self, queue: str, number: int) -> Place | None:
        """Return a place of *queue* by its number, or the first place of the next queue."""
        record = self.store.record(queue_records.KIND, queue) if queue else None
        if record is not None:
            stored = queue_records.from_record(record)
            shard, dead = divmod(number, 2)
            if shard < max(stored.shards_ever, stored.shards_in_use):
                return Place(queue, _ENDED[dead], shard)
        records, _ = self.store.records(queue_records.KIND, after=queue, limit=1)
        return Place(records[0].name, _ENDED[0], 0) if records else None


def _number(place: Place) -> int:
    """Return the number of a place in its queue, which does not depend on its shards."""
    return 2 * place.shard + _ENDED.index(place.state)


def _with_task(
    found: FoundMembers, key: str, task: Task | None, place: Place, settled: datetime
) -> FoundMembers:
    """Return *found* with *task* added, if it is a member that ended by *settled*."""
    if task is None or task.ended_in is not None or task.place != place:
        return found
    if task.finished_at is None or task.finished_at > settled:
        return found
    member = next((one for one in task.batches or () if one.batch == key), None)
    if member is None:
        return found
    return found.with_member(task.id, member, dead=task.state is State.DEAD)


def _refusal(batch: TaskBatch, found: FoundMembers) -> str | None:
    """Return why *batch* did not take the numbers *found*; None if it has them."""
    if batch.total is None:
        return "total is not known: close the batch, then count it again"
    if found.direct != batch.total:
        return (
            f"{found.direct} of the total of {batch.total} members are kept and ended "
            f"ten minutes before: of the others it cannot be told whether and how they ended"
        )
    if found.owed:
        return "members that others spawned are not kept, or did not end ten minutes before"
    if not batch.says(found):
        return "something was counted in the last minutes: count again in ten"
    return None
