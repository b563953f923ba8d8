"""The counters that the recorder keeps in the control table: how they are written and read.

- A **buffer** (``recorder``, one of a few, chosen by the shard of the stream) holds the numbers
  since its last flush, and how far each shard is counted.  Both are one record, changed by version,
  so each chunk of the stream counts once.
- The first write after the buffer's minute *closes* it.  The next writer must first *flush* it: the
  flush adds counts, flows and the last hour's minutes to ``totals``, and writes all minutes as
  blocks of ``series``.  Both keep the buffer's version, so a flush may be repeated, and a crash
  between two writes neither loses nor doubles anything.
- The numbers of **batches** are posted to the batches in the same way.  If a callback may depend on
  them, they are posted before the next write to the buffer, otherwise once a minute.

Totals and series are in buckets, chosen by the queue's name.  A flush takes at most two writes for
each bucket with activity, and one for each queue whose faults changed; see ``faults``.

No record exceeds DynamoDB's 400 KB.  A buffer is closed at BUFFER_BYTES, and a chunk of the stream
adds at most CHUNK_BYTES.  A block is a part of a buffer.  A bucket of totals has room for 1,800
queues with the longest names, besides its flows and minutes.  So there is room for 115,000 queues.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.times import MINUTE, instant_of, micros_of
from headrace.history.counter_buffer import BUFFER, Buffer
from headrace.history.faults import FAULTS, Kinds, QueueFaults, change_faults
from headrace.history.tally import Activity, Counts, Tally, counts_of, minutes_body, minutes_of
from headrace.history.totals import (
    BUCKETS,
    EMPTY,
    Body,
    Totals,
    bucket_of,
    counted,
    with_buffer,
    with_counts,
)
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.batch_writes import Uncounted
from headrace.store.base import Record, every_record
from headrace.store.call_scope import flat_rate

if TYPE_CHECKING:
    from headrace.runtime.service import Service


TOTALS: Final = "totals"
SERIES: Final = "series:"
BUFFERS: Final = 8
BUFFER_BYTES: Final = 128 * 1024
CHUNK_BYTES: Final = 192 * 1024
KEPT: Final = timedelta(days=7)
"""How long the minutes of a queue are kept."""

_BLOCK: Final = 10  # minutes of a block
_PAGE: Final = 200
_TRIES: Final = 20


class Counters(ServicePart):
    """Reads and writes the counters; without *batches*, batches are not counted."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.watch_from: int = 20

    # -- writing -------------------------------------------------------------------------------

    def buffer(self, number: int) -> Buffer:
        """Return a buffer as stored."""
        record = self.store.record(BUFFER, str(number))
        return Buffer(number) if record is None else Buffer.of(record)

    def write(self, buffer: Buffer) -> bool:
        """Write *buffer*, closed after its minute; return False if another process wrote it."""
        minute = micros_of(self.now()) // MINUTE
        buffer.opened = buffer.opened or minute
        buffer.forget_recounts(self.now())
        body = buffer.body()
        buffer.closed = body["closed"] = buffer.opened < minute or body_bytes(body) > BUFFER_BYTES
        replaces = buffer.version or None
        buffer.version += 1
        record = Record(BUFFER, str(buffer.number), body, buffer.version)
        # Lazy: the log that it was counted from is dropped by a later write.
        return self.store.put_record(record, replaces=replaces, lazy=True)

    def make_ready(self, buffer: Buffer) -> None:
        """Post and flush *buffer*, as stored, as far as needed before anything is added to it.

        Raises Unavailable as flush() and post() do.
        """
        self.post(buffer)
        if buffer.closed:
            self.flush(buffer)

    def post(self, buffer: Buffer) -> None:
        """Post the due changes of *buffer*, as stored, to their batches; it may be repeated.

        Raises Unavailable if too many others count the same batch at the same time.
        """
        at, number = instant_of(buffer.as_of), str(buffer.number)
        for batch_id, delta in buffer.due_for_batches.items():
            if self.service.task_batches is not None:
                self.service.batch_writes.count(
                    batch_id, delta, buffer=number, version=buffer.version, at=at
                )
            del buffer.batches[batch_id]

    def post_left(self) -> None:
        """Post changes whose minute is over, also those of recorders that ended.

        Raises Unavailable as make_ready() does.
        """
        with flat_rate():
            records, _ = self.store.records(BUFFER, limit=BUFFERS, consistent=False)
        for record in records:
            if record.body["batches"]:
                self._retry(partial(self._post_left, int(record.name)))

    def _post_left(self, number: int) -> bool:
        buffer = self.buffer(number)
        while buffer.batches:
            if not buffer.due_for_batches and buffer.opened == micros_of(self.now()) // MINUTE:
                break
            self.make_ready(buffer)
            if not self.write(buffer):  # this closes it if its minute is over
                return False
        return True

    def uncounted(self) -> Iterator[Uncounted]:
        """Yield the changes of batches that buffers hold; some may be posted already."""
        for record in self.buffers():
            as_of = instant_of(record.body["as_of"])
            yield Uncounted(record.name, record.version, as_of, record.body["batches"])

    def flush(self, buffer: Buffer) -> None:
        """Add a closed buffer to the totals and series, and open it again.

        Raises Unavailable if too many others write the same totals at the same time.
        """
        stored, now = buffer.record(), micros_of(self.now())
        for bucket, tally in _by_bucket(buffer.tally).items():
            self._change_totals(bucket, partial(with_buffer, buffer=stored, tally=tally, now=now))
            for block, minutes in _by_block(tally).items():
                name = f"{_block_name(block)}.{buffer.number}.{buffer.version}"
                until = instant_of((block + 1) * _BLOCK * MINUTE) + KEPT
                body = {"minutes": {queue: minutes_body(own) for queue, own in minutes.items()}}
                self.store.put_record(Record(_series(bucket), name, body, 1, until), replaces=None)
        for queue in buffer.tally.faults:
            self._add_to_faults(queue, stored, now)
        buffer.tally = Tally()
        buffer.closed, buffer.opened = False, 0

    def _add_to_faults(self, queue: str, buffer: Record, now: int) -> None:
        def add(faults: QueueFaults) -> bool:
            if faults.posted.get(buffer.name, 0) >= buffer.version:
                return False
            faults.merge_buffers(queue, [buffer], now)
            faults.posted[buffer.name] = buffer.version
            return True

        self._retry(lambda: change_faults(self.store, queue, add, now))

    def _change_totals(self, bucket: int, change: Callable[[Body], Body | None]) -> None:
        """Apply *change* to a bucket of totals; it returns None if the bucket has it already."""

        def attempt() -> bool:
            record = self.store.record(TOTALS, str(bucket))
            body = change(record.body if record else EMPTY)
            if body is None:
                return True
            version = record.version if record else 0
            changed = Record(TOTALS, str(bucket), body, version + 1)
            return self.store.put_record(changed, replaces=version or None)

        self._retry(attempt)

    def _retry(self, attempt: Callable[[], bool]) -> None:
        """Repeat *attempt* until it succeeds.  Raises Unavailable if others are always faster."""
        for _ in range(_TRIES):
            if attempt():
                return
            self.wait()
        raise Unavailable("too many shards of the stream are being counted at the same time")

    def wait(self) -> None:
        """Wait for another process that was faster."""
        self.service.sleep(self.service.random.uniform(0, 0.05))

    def change_buffers(self, change: Callable[[Buffer], None]) -> None:
        """Apply *change* to every buffer, in a write for each.

        Raises Unavailable if too many others write a buffer at the same time, and the errors of
        *change*.
        """
        with flat_rate(write=BUFFERS, read=BUFFERS):  # they are about every queue
            for number in range(BUFFERS):
                self._retry(partial(self._change_buffer, number, change))

    def _change_buffer(self, number: int, change: Callable[[Buffer], None]) -> bool:
        buffer = self.buffer(number)
        self.make_ready(buffer)
        change(buffer)
        return self.write(buffer)

    def set_counts(self, queue: str, counts: Counts, faults: Kinds, until: int) -> Counts:
        """Set the numbers of *queue* to *counts* and *faults*; return the counts before.

        They include the changes up to *until*, in microseconds since 1970, so the recorder does not
        count these if they come later.  A call that raises Unavailable must be repeated.
        """
        was = self.counts(queue, self.buffers())
        self.change_buffers(lambda buffer: buffer.drop_counts_until(queue, until))
        now = micros_of(self.now())

        def set_faults(known: QueueFaults) -> bool:
            known.set_numbers(faults, now)
            return bool(known.kinds)

        with flat_rate(write=1.0):  # queues share their buckets
            self._change_totals(bucket_of(queue), lambda body: with_counts(body, {queue: counts}))
            self._retry(lambda: change_faults(self.store, queue, set_faults, now))
        return was

    # -- reading -------------------------------------------------------------------------------

    def buffers(self) -> Sequence[Record]:
        """Return all buffers.  Read other records after them, because buffers are flushed there."""
        with flat_rate():  # they are about every queue
            return list(every_record(self.store, BUFFER, page=BUFFERS))

    def counts(self, queue: str, buffers: Sequence[Record]) -> Counts:
        """Return the numbers of tasks of *queue*."""
        with flat_rate():  # queues share their buckets
            record = self.store.record(TOTALS, str(bucket_of(queue)))
        return counted(queue, record.body if record else EMPTY, buffers)

    def faults(self, queue: str, buffers: Sequence[Record]) -> QueueFaults:
        """Return the faults of *queue*."""
        faults = QueueFaults.of(self.store.record(FAULTS, queue))
        faults.merge_buffers(queue, buffers, micros_of(self.now()))
        return faults

    def totals(self) -> Totals:
        """Return the totals of all queues; the number of reads does not depend on theirs."""
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
        """Yield the activity of *queue* in the minutes *since* to *until*, both included.

        A minute may come more than once, in parts to be added.
        """
        flushed: dict[tuple[int, str], int] = {}
        parts: list[Mapping[int, Activity]] = []
        for block, buffer, record in self._read_blocks(bucket_of(queue), since, until):
            version = int(record.name.rpartition(".")[2])
            flushed[block, buffer] = max(version, flushed.get((block, buffer), 0))
            parts.append(minutes_of(record.body, queue))
        for record in buffers:
            pending = minutes_of(record.body, queue).items()
            parts.append(
                {
                    minute: activity
                    for minute, activity in pending
                    if flushed.get((minute // _BLOCK, record.name), 0) < record.version
                }
            )
        for part in parts:
            for minute, activity in part.items():
                if since <= minute <= until:
                    yield minute, activity

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


def buffer_of(shard: str) -> int:
    """Return the buffer that counts *shard* of the stream, always the same one."""
    return zlib.crc32(shard.encode()) % BUFFERS


def body_bytes(body: Mapping[str, Any]) -> int:
    """Return the size of *body* in a record; all of it is ASCII."""
    return len(json.dumps(body))


def _series(bucket: int) -> str:
    return f"{SERIES}{bucket}"


def _block_name(block: int) -> str:
    return f"{block:09}"


def _by_bucket(tally: Tally) -> dict[int, Tally]:
    """Divide *tally* by the buckets of its queues, without faults."""
    parts: dict[int, Tally] = {}
    for queue in tally.counts.keys() | tally.minutes.keys() | tally.flows.by_target.keys():
        part = parts.setdefault(bucket_of(queue), Tally())
        part.counts[queue] = tally.counts.get(queue) or counts_of()
        if minutes := tally.minutes.get(queue):
            part.minutes[queue] = minutes
        part.flows.merge(tally.flows.to(queue))
    return parts


def _by_block(tally: Tally) -> dict[int, dict[str, dict[int, Activity]]]:
    """Divide the minutes of *tally* by the blocks that they are in, then by queue."""
    blocks: dict[int, dict[str, dict[int, Activity]]] = {}
    for queue, minutes in tally.minutes.items():
        for minute, activity in minutes.items():
            blocks.setdefault(minute // _BLOCK, {}).setdefault(queue, {})[minute] = activity
    return blocks
