"""One buffer of the counters: what was counted since it was last flushed; see ``counters``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final, Self

from headrace.domain.batch import BatchDelta
from headrace.domain.instants import micros_of
from headrace.history.tally import Counts, Tally, counts_of
from headrace.store.base import Record

KEPT: Final = timedelta(hours=26)
"""A stream keeps its records for a day; what was not heard of for longer has nothing to repeat."""

_FRESH_FAULTS: Final = 400

WATCHED: Final = 16
"""Of how many batches a buffer knows how many members are live: the names take room."""


@dataclass(slots=True)
class BufferedRecount:
    """What a buffer knows of a queue that is counted anew, or was; see ``recounting``.

    *open* names the recount that is under way, and *fresh* what was counted that it has not seen,
    *faults* likewise: how many tasks are dead and are tried again, by fingerprint.
    Until *held*, in microseconds since 1970, nothing of the queue may be counted; later that says
    when the recount was last heard of.  *done* names the last one that was finished, and *ended*
    is when.
    """

    open: str = ""
    held: int = 0
    fresh: Counts = field(default_factory=counts_of)
    done: str = ""
    ended: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)

    def add_fault(self, fingerprint: str, step: int, *, dead: bool) -> None:
        """Count *step* tasks more, or less, that the recount has not seen."""
        crowded = len(self.faults) >= _FRESH_FAULTS
        name = fingerprint if fingerprint in self.faults or not crowded else ""
        self.faults.setdefault(name, [0, 0])[not dead] += step

    def finish(self, ended: int) -> None:
        """Note that the one under way is finished."""
        self.done, self.ended = self.open, ended
        self.give_up()

    def give_up(self) -> None:
        """Forget the one under way."""
        self.open, self.fresh, self.faults = "", counts_of(), {}

    def body(self) -> Sequence[Any]:
        """Return it as JSON, none of it changed by what is counted later."""
        faults = {name: [*numbers] for name, numbers in self.faults.items()}
        return [self.open, self.held, [*self.fresh], self.done, self.ended, faults]

    @classmethod
    def of(cls, body: Sequence[Any]) -> Self:
        """Return the recount that body() wrote."""
        opened, held, fresh, done, ended, *more = body
        faults = {name: [*numbers] for name, numbers in more[0].items()} if more else {}
        return cls(opened, held, counts_of(fresh), done, ended, faults)


@dataclass(slots=True)
class Buffer:
    """What was counted since the last flush; ``version`` is the stored one, 0 when there is none.

    ``as_of`` is the time of the latest change counted, in microseconds since 1970; ``opened`` the
    minute of the first batch since the flush; ``shards`` has for each the last sequence number and
    the hour it was seen.  ``recounts`` has the queues that are or were counted anew, ``batches``
    what is to be posted to batches.  ``live`` says of some batches how many of the members whose
    birth was counted here have not ended, or of how many more that was counted: never too many.
    """

    number: int
    version: int = 0
    as_of: int = 0
    opened: int = 0
    closed: bool = False
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    recounts: dict[str, BufferedRecount] = field(default_factory=dict)
    batches: dict[str, BatchDelta] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)

    @property
    def owed_to_batches(self) -> dict[str, BatchDelta]:
        """What batches must be told before anything is added: all of it in a closed buffer."""
        return {one: delta for one, delta in self.batches.items() if self.closed or delta.due}

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
            if hour - seen <= KEPT.total_seconds() // 3600
        }

    def forget_recounts(self, now: datetime) -> None:
        """Drop the recounts of which nothing can come any more."""
        before = micros_of(now - KEPT)
        self.recounts = {
            queue: one for queue, one in self.recounts.items() if max(one.held, one.ended) > before
        }

    def body(self) -> dict[str, Any]:
        """Return it as JSON, none of it changed by what is counted later."""
        recounts = {queue: recount.body() for queue, recount in self.recounts.items()}
        batches = {batch_id: delta.body() for batch_id, delta in self.batches.items()}
        return {
            "as_of": self.as_of,
            "opened": self.opened,
            "sealed": self.closed,
            "shards": {key: [str(last), seen] for key, (last, seen) in self.shards.items()},
            **self.tally.body(),
            **({"recounts": recounts} if recounts else {}),
            **({"batches": batches} if batches else {}),
            **({"live": dict(self.live)} if self.live else {}),
        }

    @classmethod
    def of(cls, record: Record) -> "Buffer":
        body = record.body
        shards = {key: (int(last), seen) for key, (last, seen) in body["shards"].items()}
        recounts = {
            queue: BufferedRecount.of(one) for queue, one in body.get("recounts", {}).items()
        }
        return cls(
            int(record.name),
            record.version,
            body["as_of"],
            body["opened"],
            body["sealed"],
            shards,
            Tally.of(body),
            recounts,
            {batch_id: BatchDelta.of(one) for batch_id, one in body.get("batches", {}).items()},
            dict(body.get("live", {})),
        )


def _shard_key(shard: str) -> str:
    return blake2b(shard.encode(), digest_size=6).hexdigest()
