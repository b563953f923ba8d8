"""The recorder of a service on one machine whose tasks are in DynamoDB tables."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from headrace.runtime.service import Service
from headrace.safe_logging import safe_logger
from headrace.store.dynamo.stream import (
    IteratorUnusable,
    StreamShard,
    TableStream,
    writes_of,
)

_BATCH: Final = 1000
_IDLE_SECONDS: Final = 0.25  # Amazon allows five reads a second for each shard
_RETRY_SECONDS: Final = 1.0
_NEW_SHARDS_EVERY: Final = 10.0

_log: Final = safe_logger("headrace.timers")


class StreamRecorder:
    """Hands the stream of the tasks table to the recorder.

    The recorder's counters keep the position in each shard.  So another process goes on where this
    one ended, and a record that is read twice counts once.
    """

    def __init__(
        self,
        use: Service,
        stream: TableStream,
        *,
        arrived: Callable[[Iterable[str]], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._use, self._stream, self._arrived = use, stream, arrived
        self._monotonic = monotonic
        self._shards: list[StreamShard] = []
        self._finished: set[str] = set()
        self._iterators: dict[str, str] = {}
        self._listed_at = float("-inf")

    def step(self) -> float:
        """Record a batch of each shard; return the seconds to wait.  Raises Unavailable."""
        if self._monotonic() - self._listed_at >= _NEW_SHARDS_EVERY:
            self._shards = self._stream.shards()
            self._finished &= {shard.id for shard in self._shards}
            self._listed_at = self._monotonic()
        unfinished = {shard.id for shard in self._shards} - self._finished
        # The records of a shard come after those of its parent.
        ready = [shard.id for shard in self._shards if shard.id in unfinished]
        parents = {shard.id: shard.parent for shard in self._shards}
        rests = [self._read(shard) for shard in ready if parents[shard] not in unfinished]
        return min(rests, default=_IDLE_SECONDS)

    def _read(self, shard: str) -> float:
        """Record one batch of *shard*; return the seconds to wait before the next one."""
        try:
            iterator = self._iterators.pop(shard, None) or self._begin(shard)
            page = self._stream.read(iterator, _BATCH)
        except IteratorUnusable:
            return 0.0  # the iterator is forgotten: the next step begins at the stored position
        if page.records:
            writes, unreadable = writes_of(page.records)
            recorded = self._use.recording.record(shard, writes)
            for reason in (*unreadable, *recorded.unreadable):
                _log.error("A write is left out of history: %s", reason)
            if recorded.failed_at is not None:
                return _RETRY_SECONDS
            self._arrived(recorded.arrived)
        if page.iterator is None:
            self._finished.add(shard)
            self._listed_at = float("-inf")  # its successor may be there already
            return 0.0
        self._iterators[shard] = page.iterator
        return 0.0 if len(page.records) == _BATCH else _IDLE_SECONDS

    def _begin(self, shard: str) -> str:
        position = self._use.recording.position(shard)
        if position >= 0:
            try:
                return self._stream.iterator(shard, after=position)
            except IteratorUnusable:
                _log.warning("Writes of shard %s are older than a day and are not counted", shard)
        return self._stream.iterator(shard, after=None)
