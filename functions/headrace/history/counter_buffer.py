"""One buffer of the counters: what was counted since it was last flushed; see ``counters``."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from headrace.domain.batch import BatchDelta
from headrace.domain.instants import micros_of
from headrace.domain.transitions import Transition
from headrace.history.faults import QueueFaults, kinds_of
from headrace.history.tally import Tally
from headrace.store.base import Record

BUFFER: Final = "recorder"
STREAM_KEPT: Final = timedelta(hours=26)
"""A stream keeps its records for a day; what was not heard of for longer has nothing to repeat."""

WATCHED: Final = 16
"""Of how many batches a buffer knows how many members are live: the names take room."""


@dataclass(slots=True)
class Buffer:
    """What was counted since the last flush; ``version`` is the stored one, 0 when there is none.

    ``as_of`` is the time of the latest change counted, in microseconds since 1970; ``opened`` the
    minute of the first batch since the flush; ``shards`` has for each the last sequence number and
    the hour it was seen.  ``recounted`` has for queues the time of their last recount, in
    microseconds since 1970, and ``early`` their numbers of tasks by changes up to that time, which
    the recount has counted: they count only if it was not finished.  ``batches`` is what is to be
    posted to batches.  ``live`` says of some batches how many of the members whose
    birth was counted here have not ended, or of how many more that was counted: never too many.
    """

    number: int
    version: int = 0
    as_of: int = 0
    opened: int = 0
    closed: bool = False
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    recounted: dict[str, int] = field(default_factory=dict)
    early: Tally = field(default_factory=Tally)
    batches: dict[str, BatchDelta] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)

    @property
    def owed_to_batches(self) -> dict[str, BatchDelta]:
        """What batches must be told before anything is added: all of it in a closed buffer."""
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
            self.early.take_standing(counted, queue)
        self.tally.merge(counted)

    def add_to_batch(
        self, batch_id: str, delta: BatchDelta, *, watch_from: int, failure_known: bool
    ) -> None:
        """Count *delta*, all that a batch of the log has of a batch of tasks.

        If it brings *watch_from* live members at least, ends need not be posted one by one: it is
        known from now on whether more of them come.
        """
        live = self.live.pop(batch_id, 0 if delta.live >= watch_from else None)
        live = 0 if live is None else live + delta.live
        if live > 0:
            self.live[batch_id] = live
            while len(self.live) > WATCHED:  # those that were not heard of for longest
                self.live.pop(next(iter(self.live)))
        known = self.batches.setdefault(batch_id, BatchDelta())
        known.merge(delta)
        known.decide(live, failure_known=failure_known)

    def done(self, shard: str) -> int:
        """Return the last sequence number counted of *shard*, -1 if none was."""
        return self.shards.get(_shard_key(shard), (-1, 0))[0]

    def reach(self, shard: str, sequence: int, now: datetime) -> None:
        """Remember how far *shard* is counted, and forget shards that have long ended."""
        hour = int(now.timestamp()) // 3600
        self.shards[_shard_key(shard)] = (sequence, hour)
        self.shards = {
            key: (last, seen)
            for key, (last, seen) in self.shards.items()
            if hour - seen <= STREAM_KEPT.total_seconds() // 3600
        }

    def forget_recounts(self, now: datetime) -> None:
        """Drop the recounts of which nothing can come any more."""
        before = micros_of(now - STREAM_KEPT)
        self.recounted = {queue: at for queue, at in self.recounted.items() if at > before}

    def body(self) -> dict[str, Any]:
        """Return it as JSON, none of it changed by what is counted later."""
        batches = {batch_id: delta.body() for batch_id, delta in self.batches.items()}
        return {
            "as_of": self.as_of,
            "opened": self.opened,
            "sealed": self.closed,
            "shards": {key: [str(last), seen] for key, (last, seen) in self.shards.items()},
            **self.tally.body(),
            **({"recounted": dict(self.recounted)} if self.recounted else {}),
            **({"early": self.early.body()} if self.early.counts else {}),
            **({"batches": batches} if batches else {}),
            **({"live": dict(self.live)} if self.live else {}),
        }

    def record(self) -> Record:
        """Return it as the record that holds it."""
        return Record(BUFFER, str(self.number), self.body(), self.version)

    @classmethod
    def of(cls, record: Record) -> "Buffer":
        body = record.body
        shards = {key: (int(last), seen) for key, (last, seen) in body["shards"].items()}
        return cls(
            int(record.name),
            record.version,
            body["as_of"],
            body["opened"],
            body["sealed"],
            shards,
            Tally.of(body),
            dict(body.get("recounted", {})),
            Tally.of(body["early"]) if "early" in body else Tally(),
            {batch_id: BatchDelta.of(one) for batch_id, one in body.get("batches", {}).items()},
            dict(body.get("live", {})),
        )


def parts_to_count(
    body: Mapping[str, Any], queue: str, recounted: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the tallies in a buffer's *body* that hold what *queue* still has to count.

    *recounted* is the time of the last recount of the queue that was finished.
    """
    yield body
    if "early" in body and recounted < body.get("recounted", {}).get(queue, 0):
        yield body["early"]


def add_pending_faults(
    faults: QueueFaults, queue: str, buffers: Iterable[Record], now: int
) -> None:
    """Add to the *faults* of a queue what *buffers*, read before them, have not posted yet."""
    for buffer in buffers:
        if faults.posted.get(buffer.name, 0) < buffer.version:
            for part in parts_to_count(buffer.body, queue, faults.recounted):
                if kinds := part.get("faults", {}).get(queue):
                    faults.merge(kinds_of(kinds), now)


def _shard_key(shard: str) -> str:
    return blake2b(shard.encode(), digest_size=6).hexdigest()
