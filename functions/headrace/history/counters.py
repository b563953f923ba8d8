"""The counters that the recorder keeps in the control table: how they are written and read.

- A **buffer** (``recorder``, one of a few, chosen by the shard of the stream) holds what was
  counted since its last flush, and how far each shard is counted.  Both are one record, changed by
  version, so each batch of the stream counts once.
- The first write after the buffer's minute *closes* it.  The next writer must first *flush* it: it
  adds counts, flows and the last hour's minutes to ``totals``, and writes all minutes as blocks of
  ``series``.  Both keep the buffer's version, so a flush may be repeated, and a crash between two
  writes neither loses nor doubles anything.
- The numbers of **batches** are posted to the batches in the same way.  If a callback may depend on
  them, they are posted before the next write to the buffer, otherwise once a minute.

Totals and series are in buckets, chosen by the queue's name.  A flush takes at most two writes for
each bucket with activity, and one for each queue whose faults changed; see ``faults``.

No record outgrows DynamoDB's 400 KB: a buffer is closed at BUFFER_BYTES and a batch of the stream
adds at most BATCH_BYTES; a block is a part of a buffer; a bucket of totals has room for 1,800
queues with the longest names, besides FLOWS_BYTES of flows and MINUTES_BYTES of minutes.  So there
is room for 115,000 queues.
"""

import json
import random
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.ids import new_chance
from headrace.domain.instants import MINUTE, instant_of, micros_of
from headrace.domain.task import State
from headrace.history.counter_buffer import (
    BUFFER,
    STREAM_KEPT,
    Buffer,
    add_pending_faults,
    parts_to_count,
)
from headrace.history.faults import FAULTS, Kinds, QueueFaults, change_faults
from headrace.history.tally import (
    STATES,
    Activity,
    Counts,
    QueueFlows,
    Tally,
    add_counts,
    counts_of,
    minutes_of,
)
from headrace.history.throughput import Throughput, recent_minutes
from headrace.ops.tasks.batch_names import Uncounted
from headrace.ops.tasks.batches import BatchOperations
from headrace.store.base import Record, Store, every_record
from headrace.store.call_scope import flat_rate

TOTALS: Final = "totals"
SERIES: Final = "series:"
BUFFERS: Final = 8
BUCKETS: Final = 64
BUFFER_BYTES: Final = 128 * 1024
BATCH_BYTES: Final = 192 * 1024
FLOWS_BYTES: Final = 32 * 1024  # in each bucket, and so
MINUTES_BYTES: Final = 48 * 1024
KEPT: Final = timedelta(days=7)
"""How long the minutes of a queue can be looked at."""

_BLOCK: Final = 10  # minutes of a block
_PAGE: Final = 200
_TRIES: Final = 20


_NOTHING: Final[Mapping[str, Any]] = {"posted": {}, "counts": {}, "minutes": {}}


@dataclass(frozen=True, slots=True)
class Totals:
    """What is counted of all queues, as read at one moment."""

    buffers: Sequence[Record]
    buckets: Mapping[int, Mapping[str, Any]]

    @property
    def as_of(self) -> int | None:
        """The time of the latest change counted, in microseconds since 1970; None for none yet."""
        return max((buffer.body["as_of"] for buffer in self.buffers), default=0) or None

    def counts(self, queue: str) -> Counts:
        """Return how many tasks *queue* has."""
        return _counted(queue, self.buckets.get(bucket_of(queue), _NOTHING), self.buffers)

    def dead(self, queue: str) -> int | None:
        """Return how many dead tasks *queue* has; None if nothing was ever counted."""
        return None if self.as_of is None else self.counts(queue)[STATES.index(State.DEAD)]

    def throughput(self, queue: str) -> Throughput:
        """Return how busy *queue* is; nothing where hundreds of others are busier."""
        body = self.buckets.get(bucket_of(queue), _NOTHING)
        throughput = Throughput(minutes_of(body, queue))
        for buffer in self.buffers:
            if body["posted"].get(buffer.name, 0) < buffer.version:
                throughput.add(minutes_of(buffer.body, queue))
        return throughput

    def flows(self) -> QueueFlows:
        """Return who fed whom in the last day, the part of an hour before it included."""
        flows = QueueFlows()
        for body in self.buckets.values():
            flows.merge(QueueFlows.of(body.get("moves", {})))
        for buffer in self.buffers:
            for target, sources in buffer.body.get("moves", {}).items():
                flushed = self.buckets.get(bucket_of(target), _NOTHING)["posted"]
                if flushed.get(buffer.name, 0) < buffer.version:
                    flows.merge(QueueFlows.of({target: sources}))
        return flows


@dataclass(slots=True, eq=False, repr=False)
class Counters:
    """Reads and writes the counters."""

    store: Store
    now: Callable[[], datetime]
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=new_chance)
    batches: BatchOperations | None = None  # nobody: batches are not counted
    watch_from: int = 20  # members of a batch must come at once; see Buffer.add_to_batch()

    # -- writing -------------------------------------------------------------------------------

    def buffer(self, number: int) -> Buffer:
        """Return a buffer as last written."""
        record = self.store.record(BUFFER, str(number))
        return Buffer(number) if record is None else Buffer.of(record)

    def keep(self, buffer: Buffer) -> bool:
        """Write *buffer*, closed if it is time; tell whether nobody else did since it was read."""
        minute = micros_of(self.now()) // MINUTE
        buffer.opened = buffer.opened or minute
        buffer.forget_recounts(self.now())
        body = buffer.body()
        buffer.closed = body["sealed"] = buffer.opened < minute or body_bytes(body) > BUFFER_BYTES
        replaces = buffer.version or None
        buffer.version += 1
        record = Record(BUFFER, str(buffer.number), body, buffer.version)
        # Lazy: the log that it was counted from is dropped by a later write.
        return self.store.put_record(record, replaces=replaces, lazy=True)

    def make_ready(self, buffer: Buffer) -> None:
        """Bring away what is due of a *buffer* as stored, so that it may be added to.

        Raises Unavailable as flush() and post() do.
        """
        self.post(buffer)
        if buffer.closed:
            self.flush(buffer)

    def post(self, buffer: Buffer) -> None:
        """Post to batches what a *buffer*, as stored, owes them; again changes nothing.

        Raises Unavailable when too many others count the same batch at once.
        """
        at, number = instant_of(buffer.as_of), str(buffer.number)
        for batch_id, delta in buffer.owed_to_batches.items():
            if self.batches is not None:
                self.batches.count(batch_id, delta, buffer=number, version=buffer.version, at=at)
            del buffer.batches[batch_id]

    def post_left(self) -> None:
        """Post to batches what waits for its minute, and what a recorder left that ended.

        Raises Unavailable as make_ready() does.
        """
        with flat_rate():
            records, _ = self.store.records(BUFFER, limit=BUFFERS, consistent=False)
        for record in records:
            if record.body.get("batches"):
                self._attempt(partial(self._post_left, int(record.name)))

    def _post_left(self, number: int) -> bool:
        buffer = self.buffer(number)
        while buffer.batches:
            if not buffer.owed_to_batches and buffer.opened == micros_of(self.now()) // MINUTE:
                break
            self.make_ready(buffer)
            if not self.keep(buffer):  # by which it is closed if its minute is over
                return False
        return True

    def uncounted(self) -> Iterator[Uncounted]:
        """Yield what buffers hold of batches, be some of it posted already."""
        for record in self.buffers():
            as_of, deltas = instant_of(record.body["as_of"]), record.body.get("batches", {})
            yield Uncounted(record.name, record.version, as_of, deltas)

    def flush(self, buffer: Buffer) -> None:
        """Add a closed buffer to the totals and series, and open it again.

        Raises Unavailable when too many others write to the same totals at once.
        """
        stored = buffer.record()
        by_bucket: dict[int, Tally] = {}
        for queue in buffer.tally.counts.keys() | buffer.early.counts.keys():
            by_bucket.setdefault(bucket_of(queue), Tally()).counts[queue] = counts_of()
        for queue, minutes in buffer.tally.minutes.items():
            by_bucket.setdefault(bucket_of(queue), Tally()).minutes[queue] = minutes
        for queue in buffer.tally.flows.by_target:
            part = by_bucket.setdefault(bucket_of(queue), Tally())
            part.flows.merge(buffer.tally.flows.to(queue))
        for bucket, tally in by_bucket.items():
            self._add_to_totals(bucket, stored, tally)
            for block, happened in _blocks(tally).items():
                name = f"{_block_name(block)}.{buffer.number}.{buffer.version}"
                until = instant_of((block + 1) * _BLOCK * MINUTE) + KEPT
                body = {"minutes": happened.body()["minutes"]}
                self.store.put_record(Record(_series(bucket), name, body, 1, until), replaces=None)
        for queue in buffer.tally.faults.by_queue.keys() | buffer.early.faults.by_queue.keys():
            self._add_to_faults(queue, stored)
        buffer.tally, buffer.early = Tally(), Tally()
        buffer.closed, buffer.opened = False, 0

    def _add_to_faults(self, queue: str, buffer: Record) -> None:
        now = micros_of(self.now())

        def added(faults: QueueFaults) -> bool:
            if faults.posted.get(buffer.name, 0) >= buffer.version:
                return False
            add_pending_faults(faults, queue, [buffer], now)
            faults.posted[buffer.name] = buffer.version
            return True

        self._attempt(lambda: change_faults(self.store, queue, added, now))

    def _add_to_totals(self, bucket: int, buffer: Record, tally: Tally) -> None:
        def added(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if body["posted"].get(buffer.name, 0) >= buffer.version:
                return None
            counts = {queue: _counted(queue, body, [buffer]) for queue in tally.counts}
            flows, now = QueueFlows.of(body.get("moves", {})), micros_of(self.now())
            flows.merge(tally.flows)
            return {
                **_with_counts(body, counts),
                "posted": {**body["posted"], buffer.name: buffer.version},
                "moves": flows.kept(now, FLOWS_BYTES).body(),
                "minutes": recent_minutes(body, tally.minutes, now, MINUTES_BYTES),
            }

        self._change_totals(bucket, added)

    def _change_totals(
        self, bucket: int, change: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    ) -> None:
        """Make *change* to a bucket of totals, unless it says None: it has been made."""

        def attempt() -> bool:
            record = self.store.record(TOTALS, str(bucket))
            body = change(record.body if record else _NOTHING)
            if body is None:
                return True
            version = record.version if record else 0
            changed = Record(TOTALS, str(bucket), body, version + 1)
            return self.store.put_record(changed, replaces=version or None)

        self._attempt(attempt)

    def _attempt(self, attempt: Callable[[], bool]) -> None:
        """Try until it is done.  Raises Unavailable when too many others write there at once."""
        for _ in range(_TRIES):
            if attempt():
                return
            self.wait()
        raise Unavailable("too many shards of the stream are being counted at once")

    def change_buffers(self, change: Callable[[Buffer], None]) -> None:
        """Make *change* to every buffer, each for itself.

        Raises Unavailable when too many others write to one at once, and what *change* raises.
        """
        with flat_rate(write=BUFFERS, read=BUFFERS):  # they are about every queue
            for number in range(BUFFERS):
                self._change_buffer(number, change)

    def _change_buffer(self, number: int, change: Callable[[Buffer], None]) -> None:
        def attempt() -> bool:
            buffer = self.buffer(number)
            self.make_ready(buffer)
            change(buffer)
            return self.keep(buffer)

        self._attempt(attempt)

    def set_counts(self, queue: str, counts: Counts, faults: Kinds, until: int) -> Counts:
        """Set what *queue* has to *counts* and *faults*, and return the counts before.

        They hold the changes up to *until*, in microseconds since 1970: buffers keep apart what
        the recorder gets of that time later, and the totals say that it is counted.  So a call that
        fails midway changes nothing, or all but the faults.  Raises Unavailable.
        """

        def mark(buffer: Buffer) -> None:
            buffer.recounted[queue] = until

        self.change_buffers(mark)
        buffers, now = self.buffers(), micros_of(self.now())
        oldest = micros_of(self.now() - STREAM_KEPT)
        was = counts_of()

        def changed(body: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal was
            was = _counted(queue, body, buffers)
            before = body.get("recounted", {}).items()
            recent = {name: at for name, at in before if at > oldest}
            empty = {**body, "counts": {}, "recounted": {**recent, queue: until}}
            pending = _counted(queue, empty, buffers)
            stored = [right - later for right, later in zip(counts, pending, strict=True)]
            return {**_with_counts(body, {queue: stored}), "recounted": empty["recounted"]}

        def changed_faults(known: QueueFaults) -> bool:
            known.recounted = until
            pending = QueueFaults(dict(known.posted), recounted=until)
            add_pending_faults(pending, queue, buffers, now)
            if not (faults or known.kinds or pending.kinds):
                return False
            known.set_numbers(faults, pending.kinds, now)
            return True

        with flat_rate(write=1.0):  # queues share their buckets
            self._change_totals(bucket_of(queue), changed)
            self._attempt(lambda: change_faults(self.store, queue, changed_faults, now))
        return was

    def wait(self) -> None:
        """Let the one who was quicker finish."""
        self.sleep(self.chance.uniform(0, 0.05))

    # -- reading -------------------------------------------------------------------------------

    def buffers(self) -> Sequence[Record]:
        """Return all buffers.  What else is read must be read after them: flushes go one way."""
        with flat_rate():  # they are about every queue
            return list(every_record(self.store, BUFFER, page=BUFFERS))

    def counts(self, queue: str, buffers: Sequence[Record]) -> Counts:
        """Return how many tasks *queue* has."""
        with flat_rate():  # queues share their buckets
            record = self.store.record(TOTALS, str(bucket_of(queue)))
        return _counted(queue, record.body if record else _NOTHING, buffers)

    def faults(self, queue: str, buffers: Sequence[Record]) -> QueueFaults:
        """Return what tasks of *queue* fail of."""
        faults = QueueFaults.of(self.store.record(FAULTS, queue))
        add_pending_faults(faults, queue, buffers, micros_of(self.now()))
        return faults

    def totals(self) -> Totals:
        """Return the totals of all queues at once: some reads, however many there are."""
        buffers = self.buffers()
        with flat_rate():
            records = every_record(self.store, TOTALS, page=BUCKETS)
            buckets = {int(record.name): record.body for record in records}
        return Totals(buffers, buckets)

    def oldest(self) -> int:
        """Return the first minute since 1970 that is still kept."""
        return micros_of(self.now() - KEPT) // MINUTE // _BLOCK * _BLOCK

    def minutes(
        self, queue: str, buffers: Sequence[Record], since: int, until: int
    ) -> Iterator[tuple[int, Activity]]:
        """Yield what happened in *queue* in the minutes *since* to *until*, both included.

        A minute may come more than once; what it holds adds up.
        """
        flushed: dict[tuple[int, str], int] = {}
        for block, buffer, record in self._read_blocks(bucket_of(queue), since, until):
            version = int(record.name.rpartition(".")[2])
            flushed[block, buffer] = max(version, flushed.get((block, buffer), 0))
            yield from _within(minutes_of(record.body, queue), since, until)
        for record in buffers:
            pending = {
                minute: activity
                for minute, activity in minutes_of(record.body, queue).items()
                if flushed.get((minute // _BLOCK, record.name), 0) < record.version
            }
            yield from _within(pending, since, until)

    def _read_blocks(
        self, bucket: int, since: int, until: int
    ) -> Iterator[tuple[int, str, Record]]:
        after, rate = _block_name(max(since, self.oldest()) // _BLOCK), 1.0
        while True:
            with flat_rate(read=rate):
                records, more = self.store.records(_series(bucket), after=after, limit=_PAGE)
            rate = 0.0
            for record in records:
                block, buffer, _ = record.name.split(".")
                if int(block) > until // _BLOCK:
                    return
                yield int(block), buffer, record
            if not more or not records:
                return
            after = records[-1].name


def _counted(queue: str, body: Mapping[str, Any], buffers: Sequence[Record]) -> Counts:
    """Return the counts of a queue by the *body* of its bucket and what is not flushed yet."""
    counts = counts_of(body["counts"].get(queue, ()))
    recounted = body.get("recounted", {}).get(queue, 0)
    for buffer in buffers:
        if body["posted"].get(buffer.name, 0) < buffer.version:
            for part in parts_to_count(buffer.body, queue, recounted):
                add_counts(counts, part["counts"].get(queue, ()))
    return counts


def _with_counts(body: Mapping[str, Any], counts: Mapping[str, Counts]) -> Mapping[str, Any]:
    """Return a bucket's *body* with these *counts*, without queues that have none."""
    merged = {**body["counts"], **counts}
    return {**body, "counts": {queue: sums for queue, sums in merged.items() if any(sums)}}


def buffer_of(shard: str) -> int:
    """Return the buffer that counts *shard* of the stream, always the same one."""
    return zlib.crc32(shard.encode()) % BUFFERS


def bucket_of(queue: str) -> int:
    """Return the bucket of totals and series that *queue* is in, always the same one."""
    return zlib.crc32(queue.encode()) % BUCKETS


def body_bytes(body: Mapping[str, Any]) -> int:
    """Return how much room *body* takes in a record; all of it is ASCII."""
    return len(json.dumps(body))


def _series(bucket: int) -> str:
    return f"{SERIES}{bucket}"


def _block_name(block: int) -> str:
    return f"{block:09}"


def _blocks(tally: Tally) -> dict[int, Tally]:
    """Split the minutes of *tally* into those of each block."""
    blocks: dict[int, Tally] = {}
    for queue, minutes in tally.minutes.items():
        for minute, activity in minutes.items():
            block = blocks.setdefault(minute // _BLOCK, Tally())
            block.minutes.setdefault(queue, {})[minute] = activity
    return blocks


def _within(
    minutes: Mapping[int, Activity], since: int, until: int
) -> Iterator[tuple[int, Activity]]:
    for minute, activity in minutes.items():
        if since <= minute <= until:
            yield minute, activity
