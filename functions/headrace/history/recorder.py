"""The recorder: it reads chunks of writes from the store's log (on DynamoDB the table's stream).

For each chunk, in this order:

1. The writes are added to the lake, if there is one; see ``changelog``.
2. The index of values is updated; see ``matching``.
3. The objects of payloads that no task refers to any longer are dropped; see ``domain.offload``.
4. Webhooks report the ends of tasks; see ``ops.delivery.end_webhooks``.
5. The writes are counted, with one conditional write for a chunk of any size; see ``counters``.

Lambda repeats a chunk, in one or in halves, if it does not know whether the chunk was processed.
The buffer of the counters has the position in each shard, so a repetition changes nothing.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.domain.batch import DEAD_IDS, QUEUES, BatchDelta
from headrace.domain.errors import Unavailable
from headrace.domain.offload import may_come_again
from headrace.domain.task import State
from headrace.domain.times import MINUTE
from headrace.domain.transitions import Event, TaskWrite, Transition, batch_deltas, transition
from headrace.history.changelog import Changelog, Line, line
from headrace.history.counter_buffer import Buffer
from headrace.history.counters import CHUNK_BYTES, buffer_of
from headrace.history.faults import FAULT_BYTES
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_log: Final = safe_logger(__name__)

_TRIES: Final = 20
# Bytes of a buffer for a queue or a minute, besides the name, and for one duration.
_ENTRY_BYTES: Final = 48
_DURATION_BYTES: Final = 12
_NAME_BYTES: Final = 70  # an id, at most
_NAMED: Final = 25  # members of a batch that a buffer names; then they are written to the batch
_SURELY_SMALL: Final = 250  # records


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a chunk: numbers of writes.

    ``unreadable`` has for each write that could not be read the reason; these are never counted.
    ``failed_at`` is the sequence number of the first write that must come again, or None.
    ``events`` are the numbers of events in the writes that were counted, of all queues together.
    ``arrived`` are the queues that tasks entered to wait there.
    """

    counted: int
    repeated: int
    unreadable: tuple[str, ...] = ()
    failed_at: int | None = None
    events: Mapping[Event, int] = field(default_factory=dict, compare=False)
    arrived: frozenset[str] = field(default=frozenset(), compare=False)


class _WriteReading(NamedTuple):
    """A write and its meaning."""

    write: TaskWrite
    change: Transition
    line: Line | None
    batches: tuple[tuple[str, BatchDelta], ...] = ()
    dropped: tuple[str, ...] = ()


class Recording(ServicePart):
    """Records chunks of writes; a part that is None is skipped."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.changelog: Changelog | None = (
            None
            if service.lake is None
            else Changelog(service.lake, service.settings.lake_payloads)
        )
        self._buffers: dict[int, Buffer] = {}

    def record(self, shard: str, writes: Sequence[TaskWrite]) -> Recorded:
        """Record *writes* of one shard of the log; a repetition counts nothing twice."""
        readings: dict[int, _WriteReading] = {}
        unreadable: list[str] = []
        for write in writes:
            try:
                readings[write.sequence] = self._read(shard, write)
            except ValueError as error:  # UnreadableWrite, or a text that is not valid Unicode
                unreadable.append(f"{write.sequence}: {error}")
        ordered = [readings[sequence] for sequence in sorted(readings)]
        try:
            if self.changelog is not None:
                self.changelog.write([reading.line for reading in ordered if reading.line])
            self.service.matching.write([reading.write for reading in ordered])
        except Unavailable:
            again = min((write.sequence for write in writes), default=None)
            return Recorded(0, 0, tuple(unreadable), again)
        self._drop_objects(ordered)
        waiting = deque([ordered] if ordered else ())
        events: Counter[Event] = Counter()
        counted = 0
        while waiting:
            part = waiting.popleft()
            if _too_large(part):
                middle = len(part) // 2
                waiting.extendleft((part[middle:], part[:middle]))
                continue
            try:
                counted += self._count(shard, part, events)
            except Unavailable:
                return Recorded(counted, 0, tuple(unreadable), part[0].write.sequence, events)
        repeated = len(readings) - counted
        return Recorded(
            counted, repeated, tuple(unreadable), events=events, arrived=_arrivals(ordered)
        )

    def position(self, shard: str) -> int:
        """Return the last sequence number counted of *shard*; -1 before the first one."""
        return self.service.counters.buffer(buffer_of(shard)).position(shard)

    def _count(self, shard: str, readings: Sequence[_WriteReading], events: Counter[Event]) -> int:
        """Add *readings* to the buffer of their shard, and their events to *events*.

        Return the number of new ones.
        """
        number, notified = buffer_of(shard), False
        for _ in range(_TRIES):
            # Taken out until it is written, so that a failure leaves no half changed buffer.
            buffer = self._buffers.pop(number, None) or self.service.counters.buffer(number)
            position = buffer.position(shard)
            fresh = [reading for reading in readings if reading.write.sequence > position]
            if not fresh:
                self.service.counters.post(
                    buffer
                )  # another process may have counted and not posted
                self._buffers[number] = buffer
                return 0
            if not notified:  # before they are counted
                self.service.end_webhooks.send([(read.write, read.change) for read in fresh])
                notified = True
            self.service.counters.make_ready(buffer)
            for reading in fresh:
                buffer.add(reading.change)
            self._add_to_batches(buffer, fresh)
            buffer.as_of = max(buffer.as_of, *(reading.change.at for reading in fresh))
            buffer.advance(shard, fresh[-1].write.sequence, self.service.counters.now())
            if self.service.counters.write(buffer):
                events.update(one.event for read in fresh for one in read.change.happenings)
                self.service.counters.post(buffer)
                self._buffers[number] = buffer
                return len(fresh)
            self.service.counters.wait()
        message = "too many shards of the stream are being counted at the same time"
        raise Unavailable(message)

    def _add_to_batches(self, buffer: Buffer, readings: Sequence[_WriteReading]) -> None:
        deltas: dict[str, BatchDelta] = {}
        for reading in readings:
            for batch_id, delta in reading.batches:
                deltas.setdefault(batch_id, BatchDelta()).merge(delta)
        batches = self.service.batch_writes
        for batch_id, delta in deltas.items():
            if batches.names.full(batch_id):
                delta.born.clear()  # the batch has enough names
            if batches.names.dead_full(batch_id):
                delta.died.clear()
            known = batches.failure_known(batch_id)
            watch_from = self.service.counters.watch_from
            buffer.add_to_batch(batch_id, delta, watch_from=watch_from, failure_known=known)
            born = buffer.batches[batch_id].born
            if len(born) >= _NAMED:
                batches.remember(batch_id, born)  # even if this chunk fails later
                born.clear()

    def _drop_objects(self, readings: Sequence[_WriteReading]) -> None:
        """Drop the objects that no task refers to any longer; their names are never used again.

        Uploads that another task may still use stay, and become orphans like others.  This comes
        before counting, so that a chunk that is repeated drops them again.  Objects that cannot be
        dropped now are left to ``ops.delivery.orphans``.
        """
        if self.service.objects is None:
            return
        now = self.service.counters.now()
        dropped = (name for reading in readings for name in reading.dropped)
        names = [name for name in dropped if not may_come_again(name, now)]
        try:
            self.service.objects.drop(names)
        except Unavailable as error:
            _log.warning("Payloads of finished tasks are not removed yet: %s", error)

    def _read(self, shard: str, write: TaskWrite) -> _WriteReading:
        """Return the reading of *write*.  Raises UnreadableWrite."""
        change = transition(write)
        batches = batch_deltas(write)
        for _, delta in batches:
            delta.first_at = delta.last_at = change.at
        dropped = _dropped_objects(write)
        spot = change.entered or change.left
        if self.changelog is None or spot is None:
            return _WriteReading(write, change, None, batches, dropped)
        payload = self.changelog.keeps_payload(spot[0])
        entry = line(write, change, shard=shard, payload=payload)
        return _WriteReading(write, change, entry, batches, dropped)


def _dropped_objects(write: TaskWrite) -> tuple[str, ...]:
    """Return the names of the objects that the task of *write* no longer refers to."""
    if write.before is None or not (before := write.before.offloaded.values()):
        return ()
    kept = () if write.after is None else write.after.offloaded.values()
    return tuple(one.name for one in before if one not in kept)


def _arrivals(readings: Sequence[_WriteReading]) -> frozenset[str]:
    """Return the queues that a task entered to wait there."""
    return frozenset(
        reading.change.entered[0]
        for reading in readings
        if reading.change.entered is not None
        and reading.change.entered[1] == State.ENQUEUED
        and reading.change.entered != reading.change.left
    )


def _too_large(readings: Sequence[_WriteReading]) -> bool:
    """Return whether *readings* may add more to a buffer than it has room for."""
    failed = [one.change for one in readings if one.change.old_fault or one.change.new_fault]
    if len(readings) + 2 * len(failed) <= _SURELY_SMALL:
        return False
    spots = [(reading.change.left, reading.change.entered) for reading in readings]
    queues = {spot[0] for pair in spots for spot in pair if spot is not None}
    events = [happening for reading in readings for happening in reading.change.happenings]
    minutes = {(event.queue, event.at // MINUTE) for event in events}
    minutes |= {
        (spot[0], reading.change.at // MINUTE)
        for reading, pair in zip(readings, spots, strict=True)
        for spot in pair
        if spot is not None
    }
    moved = [(left[0], entered[0]) for left, entered in spots if left and entered]
    moved = [(source, target) for source, target in moved if source != target]
    flows = set(moved)
    names = sum(map(len, queues)) + sum(len(queue) for queue, _ in minutes)
    names += sum(len(source) + len(target) for source, target in flows)
    named = {batch_id for reading in readings for batch_id, _ in reading.batches}
    names += sum(map(len, named)) + _NAME_BYTES * _named(readings)
    entries = _ENTRY_BYTES * (len(queues) + len(minutes) + len(flows) + 5 * len(named))
    entries += _DURATION_BYTES * (len(events) + len(moved))
    entries += sum(FAULT_BYTES + len(queue) for queue, _ in _faults(failed))
    return names + entries > CHUNK_BYTES


def _faults(changes: Iterable[Transition]) -> set[tuple[str, str]]:
    """Return the queues and fingerprints that a buffer has to hold after *changes*."""
    sides = (
        (spot, fault)
        for change in changes
        for spot, fault in ((change.left, change.old_fault), (change.entered, change.new_fault))
    )
    return {(spot[0], fault.fingerprint) for spot, fault in sides if spot and fault}


def _named(readings: Sequence[_WriteReading]) -> int:
    """Return the largest number of members that a buffer may name after *readings*."""
    born: Counter[str] = Counter()
    died: Counter[str] = Counter()
    others = 0
    for reading in readings:
        for batch_id, delta in reading.batches:
            born[batch_id] += len(delta.born)
            died[batch_id] += len(delta.died)
            others += len(delta.revived)
    kept = sum(min(number, _NAMED) for number in born.values())
    queues = sum(2 * min(number, QUEUES + 1) for number in born.values())
    return kept + queues + sum(min(number, DEAD_IDS) for number in died.values()) + others
