"""Counting the writes of tasks, as the store's log shows them: on DynamoDB its table's stream.

A batch of the log becomes one conditional write, whatever its size; see ``counters``.  Lambda
delivers a batch again, whole or in halves, when it is not sure that it was taken: the buffer says
how far each shard is counted, so what comes again changes nothing.

Where there is a lake, a batch is written to it first; see ``changelog``.

A queue that is counted anew gets what the new count has not seen; see ``recount``.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.domain.instants import micros_of
from headrace.domain.write import TaskWrite
from headrace.history import recount as recount_record
from headrace.history.changelog import Changelog, Line, line
from headrace.history.counter_buffer import Buffer, BufferedRecount
from headrace.history.counters import BATCH_BYTES, Counters, buffer_of
from headrace.history.recount import NewCount
from headrace.history.tally import MINUTE
from headrace.history.transitions import (
    Event,
    IndexEntry,
    Transition,
    UnreadableImage,
    index_entry,
    transition,
)

IndexChange: TypeAlias = tuple[IndexEntry | None, IndexEntry | None, int]
"""A change of the index: the entry that went, the one that came, and when."""


@dataclass(slots=True)
class Judging:
    """Judges changes by what new counts have seen of them."""

    counters: Counters
    _finished: dict[str, NewCount] = field(default_factory=dict)  # by id; they do not change

    def add(self, buffer: Buffer, changes: Sequence[IndexChange]) -> bool:
        """Note in *buffer* what *changes* mean to the queues that are counted anew, or were.

        The buffer's tally has counted them as if there were no such queue.  Returns whether that
        could be done: not while a count is being made.
        """
        by_queue = {queue: _of(queue, changes) for queue in buffer.recounts}
        by_queue = {queue: some for queue, some in by_queue.items() if some}
        now = micros_of(self.counters.now())
        if any(buffer.recounts[queue].held > now for queue in by_queue):
            return False
        for queue, some in by_queue.items():
            recount = buffer.recounts[queue]
            if recount.open:
                self._add_fresh(queue, recount, some)
            if recount.done:
                self._leave_out(buffer, queue, recount, some)
            if not recount.open and not recount.done:
                del buffer.recounts[queue]
        return True

    def _add_fresh(
        self, queue: str, recount: BufferedRecount, changes: Sequence[IndexChange]
    ) -> None:
        done = self._read(recount_record.DONE, queue, recount.open)
        if done is not None:  # whoever finished it could not tell this buffer
            recount.finish(done.ended)
            return
        count = self._read(recount_record.OPEN, queue, recount.open)
        if count is None:
            recount.give_up()
            return
        for change in changes:
            for place, step in count.adds(*change):
                recount.fresh[place] += step

    def _leave_out(
        self, buffer: Buffer, queue: str, recount: BufferedRecount, changes: Sequence[IndexChange]
    ) -> None:
        """Take back from the buffer's tally what the finished count of *queue* has seen already."""
        late = [change for change in changes if change[-1] <= recount.ended]
        if not late:
            return
        count = self._finished.get(recount.done)
        count = count or self._read(recount_record.DONE, queue, recount.done)
        if count is None:  # too long ago for anything to come
            recount.done, recount.ended = "", 0
            return
        self._finished[recount.done] = count
        everything = NewCount("", 0)  # has seen nothing, so all is to be added
        for change in late:
            for place, step in count.adds(*change):
                buffer.tally.add_count(queue, place, step)
            for place, step in everything.adds(*change):
                buffer.tally.add_count(queue, place, -step)

    def _read(self, kind: str, queue: str, recount: str) -> NewCount | None:
        found = recount_record.read(self.counters.store, kind, queue, recount, self.counters.now())
        return found[0] if found else None


def _of(queue: str, changes: Sequence[IndexChange]) -> list[IndexChange]:
    """Return *changes* as one queue sees them."""
    sides = (
        (
            left if left is not None and left.queue == queue else None,
            entered if entered is not None and entered.queue == queue else None,
            at,
        )
        for left, entered, at in changes
        if left != entered  # else a heartbeat, or another write that moves nothing
    )
    return [change for change in sides if change[:2] != (None, None)]


_TRIES: Final = 20
_HELD_TRIES: Final = 100  # longer than any buffer is held
_HELD_SECONDS: Final = 0.25
# What a record of a buffer takes for a queue or a minute besides the name, and for one duration.
_ENTRY_BYTES: Final = 48
_DURATION_BYTES: Final = 12
_SURELY_SMALL: Final = 250  # records


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a batch: numbers of writes, and the sequence number to go on from.

    ``unreadable`` says of each write that shows no task why; they are left out for good.
    ``failed_at`` is the first that could not be counted now and must come again, None if all were.
    ``events`` is what happened in those that were counted, all queues together.
    """

    counted: int
    repeated: int
    unreadable: tuple[str, ...] = ()
    failed_at: int | None = None
    events: Mapping[Event, int] = field(default_factory=dict, compare=False)


class _Reading(NamedTuple):
    """One write that was understood."""

    write: TaskWrite
    change: Transition
    line: Line | None

    @property
    def index_change(self) -> IndexChange:
        """What it did to the index."""
        return index_entry(self.write.before), index_entry(self.write.after), self.change.at


@dataclass(slots=True)
class Recording:
    """The use case, with what it needs from outside."""

    counters: Counters
    changelog: Changelog | None = None
    _judging: Judging = field(init=False)
    _buffers: dict[int, Buffer] = field(default_factory=dict)  # as last written by us

    def __post_init__(self) -> None:
        self._judging = Judging(self.counters)

    def record(self, shard: str, writes: Sequence[TaskWrite]) -> Recorded:
        """Count *writes* of one shard of the log, each once however often it comes."""
        readings: dict[int, _Reading] = {}
        unreadable: list[str] = []
        for write in writes:
            try:
                readings[write.sequence] = self._read(shard, write)
            except UnreadableImage as error:
                unreadable.append(str(error))
        ordered = [readings[sequence] for sequence in sorted(readings)]
        try:
            self._write(ordered)
        except Unavailable:
            return Recorded(0, 0, tuple(unreadable), ordered[0].write.sequence)
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
        return Recorded(counted, repeated, tuple(unreadable), events=events)

    def position(self, shard: str) -> int:
        """Return the last sequence number counted of *shard*, -1 if none was."""
        return self.counters.buffer(buffer_of(shard)).done(shard)

    def _count(self, shard: str, readings: Sequence[_Reading], events: Counter[Event]) -> int:
        """Add *readings* to the buffer of their shard, and what happened to *events*.

        Return how many were new.
        """
        number = buffer_of(shard)
        for _ in range(_TRIES + _HELD_TRIES):
            # Taken out until it is written: what is half done must not be gone on with.
            buffer = self._buffers.pop(number, None) or self.counters.buffer(number)
            done = buffer.done(shard)
            fresh = [reading for reading in readings if reading.write.sequence > done]
            if not fresh:
                self._buffers[number] = buffer
                return 0
            if buffer.closed:
                self.counters.flush(buffer)
            for reading in fresh:
                buffer.tally.add(reading.change)
            if buffer.recounts and not self._judging.add(
                buffer, [read.index_change for read in fresh]
            ):
                self.counters.sleep(_HELD_SECONDS)  # its queue is just being counted anew
                continue
            buffer.as_of = max(buffer.as_of, *(reading.change.at for reading in fresh))
            buffer.reach(shard, fresh[-1].write.sequence, self.counters.now())
            if self.counters.keep(buffer):
                self._buffers[number] = buffer
                events.update(one.event for read in fresh for one in read.change.happenings)
                return len(fresh)
            self.counters.wait()
        message = "too many shards of the stream are being counted at once"
        raise Unavailable(message)

    def _write(self, readings: Sequence[_Reading]) -> None:
        """Bring the batch to the lake, if there is one.  Raises Unavailable."""
        if self.changelog is not None:
            self.changelog.write([reading.line for reading in readings if reading.line])

    def _read(self, shard: str, write: TaskWrite) -> _Reading:
        """Return the reading of *write*.  Raises UnreadableImage."""
        try:
            change = transition(write)
        except UnreadableImage as error:
            message = f"{write.sequence}: {error}"
            raise UnreadableImage(message) from error
        spot = change.entered or change.left
        if self.changelog is None or spot is None:
            return _Reading(write, change, None)
        payload = self.changelog.keeps_payload(spot[0])
        return _Reading(write, change, line(write, change, shard=shard, payload=payload))


def _too_large(readings: Sequence[_Reading]) -> bool:
    """Tell whether *readings* might add more to a buffer than it has room for."""
    if len(readings) <= _SURELY_SMALL:
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
    entries = _ENTRY_BYTES * (len(queues) + len(minutes) + len(flows))
    entries += _DURATION_BYTES * (len(events) + len(moved))
    return names + entries > BATCH_BYTES
