"""A buffer of the recorder: the numbers since its last flush; see ``counters``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from headrace.domain.batch import BatchDelta
from headrace.domain.times import micros_of
from headrace.domain.transitions import Transition
from headrace.history.tally import Tally
from headrace.store.base import Record

BUFFER: Final = "recorder"
STREAM_KEPT: Final = timedelta(hours=26)
"""A stream keeps its records for a day, so nothing older can be repeated."""

WATCHED: Final = 16
"""The number of batches whose live members a buffer counts: their names take room."""


@dataclass(slots=True)
class Buffer:
    """The numbers since the last flush; ``version`` is the stored one, 0 without a record.

    - ``as_of`` is the time of the latest change counted, in microseconds since 1970.
    - ``opened`` is the minute of the first write since the flush.
    - ``shards`` has for each shard of the log its last sequence number, and the hour of that.
    - ``recounted`` has the time of the last recount of queues, in microseconds since 1970.  The
      recount has counted the changes up to that time.
    - ``batches`` has the changes that are not posted to their batches yet.
    - ``live`` has for some batches a number of live members, never too large: of the members whose
      creation was counted here, those whose end was not.
    """

    number: int
    version: int = 0
    as_of: int = 0
    opened: int = 0
    closed: bool = False
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    recounted: dict[str, int] = field(default_factory=dict)
    batches: dict[str, BatchDelta] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)

    @property
    def due_for_batches(self) -> dict[str, BatchDelta]:
        """The changes to post before anything is added: in a closed buffer all of them."""
        return {one: delta for one, delta in self.batches.items() if self.closed or delta.due}

    def add(self, change: Transition) -> None:
        """Count one write of a task."""
        recounted = [queue for queue, until in self.recounted.items() if change.at <= until]
        if not recounted:
            self.tally.add(change)
            return
        counted = Tally()
        counted.add(change)
        for queue in recounted:
            counted.drop_numbers(queue)
        self.tally.merge(counted)

    def drop_counts_until(self, queue: str, recounted: int) -> None:
        """Drop the numbers of *queue* up to the time of a recount, also those of late changes."""
        self.recounted[queue] = recounted
        self.tally.drop_numbers(queue)

    def add_to_batch(
        self, batch_id: str, delta: BatchDelta, *, watch_from: int, failure_known: bool
    ) -> None:
        """Count *delta*, the changes of one batch of tasks in one chunk of the log.

        If it brings at least *watch_from* live members, ends need not be posted one by one: from
        now on the buffer knows whether others are still live.
        """
        live = self.live.pop(batch_id, 0 if delta.live >= watch_from else None)
        live = 0 if live is None else live + delta.live
        if live > 0:
            self.live[batch_id] = live
            while len(self.live) > WATCHED:  # the batch that has been without changes for longest
                self.live.pop(next(iter(self.live)))
        known = self.batches.setdefault(batch_id, BatchDelta())
        known.merge(delta)
        known.decide(live, failure_known=failure_known)

    def position(self, shard: str) -> int:
        """Return the last sequence number counted of *shard*; -1 before the first one."""
        return self.shards.get(_shard_key(shard), (-1, 0))[0]

    def advance(self, shard: str, sequence: int, now: datetime) -> None:
        """Note the last sequence number of *shard*, and forget shards that ended long ago."""
        hour = int(now.timestamp()) // 3600
        self.shards[_shard_key(shard)] = (sequence, hour)
        self.shards = {
            key: (last, seen)
            for key, (last, seen) in self.shards.items()
            if hour - seen <= STREAM_KEPT.total_seconds() // 3600
        }

    def forget_recounts(self, now: datetime) -> None:
        """Drop the recounts whose changes can no longer come from the stream."""
        before = micros_of(now - STREAM_KEPT)
        self.recounted = {queue: at for queue, at in self.recounted.items() if at > before}

    def body(self) -> dict[str, Any]:
        """Return the buffer as JSON; later changes of the buffer do not change it."""
        return {
            "as_of": self.as_of,
            "opened": self.opened,
            "closed": self.closed,
            "shards": {key: [str(last), seen] for key, (last, seen) in self.shards.items()},
            "recounted": dict(self.recounted),
            "batches": {batch_id: delta.body() for batch_id, delta in self.batches.items()},
            "live": dict(self.live),
            **self.tally.body(),
        }

    def record(self) -> Record:
        """Return the buffer as a record."""
        return Record(BUFFER, str(self.number), self.body(), self.version)

    @classmethod
    def of(cls, record: Record) -> "Buffer":
        """Return the buffer that a record holds."""
        body: Mapping[str, Any] = record.body
        return cls(
            int(record.name),
            record.version,
            body["as_of"],
            body["opened"],
            body["closed"],
            {key: (int(last), seen) for key, (last, seen) in body["shards"].items()},
            Tally.of(body),
            dict(body["recounted"]),
            {batch_id: BatchDelta.of(one) for batch_id, one in body["batches"].items()},
            dict(body["live"]),
        )


def _shard_key(shard: str) -> str:
    return blake2b(shard.encode(), digest_size=6).hexdigest()
