"""The stream of the format ``headrace``: micro-batches, each with its group lease.

The offset of a batch names its group, and the claim log has the rows that the group has leased.  So
a query that starts again from its checkpoint gets the same rows of its batch, settled or not, and a
heartbeat extends the group again if it is still open.

If the group has ended when a query plans the batch for the first time, the batch has lapsed: it
still has the rows whose tasks were settled, because its sink may have half of them.  The others are
left out, so the batch never settles them (``ending``); they come again in a later batch.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from pyspark.sql import datasource as api
from typing_extensions import override

from headrace.client.threads import PeriodicThread
from headrace.domain.errors import HeadraceError, LeaseLost, Unavailable
from headrace.domain.times import micros_of
from headrace.spark.sources import QUEUE, committed
from headrace.spark.sources.claims import GroupClaims
from headrace.spark.sources.connect import opened, store
from headrace.spark.sources.ending import Ending
from headrace.spark.sources.leasing import group_heartbeat, leased
from headrace.spark.sources.options import plain_errors
from headrace.spark.sources.rate_limit import IdleBackoff
from headrace.spark.sources.reading import (
    QueuePartition,
    QueueReading,
    partition_of,
    rooms_by,
)

try:  # from Spark 4.2 on a stream of a Python source can be drained, and hears of limits
    from pyspark.sql.streaming.datasource import ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as Drained
except ImportError:

    class Drained:  # type: ignore[no-redef]  # what earlier versions lack
        """Nothing: the trigger takes one batch."""


Offset = dict[str, Any]

_AWAY: Final = 8  # looks in a row that the tables were away for
_WATCH: Final = "commits of a stream"
_STALE: Final = (
    f"{QUEUE}: the checkpoint asks for a micro-batch of queue {{about}} that was settled and"
    " forgotten long ago, so it cannot be read again. Start the query with a new checkpoint (and a"
    " sink of files with a new folder): every task that is not settled yet comes there"
)
_LOG: Final = logging.getLogger(__name__)


class StaleCheckpoint(HeadraceError):
    """The checkpoint of a stream is older than the batches that its tables remember."""

    code = "stale_checkpoint"
    title = "Stale checkpoint"


class QueueStream(api.DataSourceStreamReader, Drained):
    """Leases batch after batch, each under a group that a thread extends.

    An offset has the time at which its batch was seen to be due (*epoch*, in microseconds), the
    *group*, what the shares are made of (*shards*, and of each the *rows*), whether the sink is
    known to settle tasks itself (*settles*), and how many batches have lost their lease so far, if
    any (*lapses*): Spark shows it all in the progress of the query.  One without a group has no
    rows.
    """

    def __init__(self, reading: QueueReading, clock: Callable[[], float] = time.monotonic) -> None:
        self.reading = reading
        self._idle = IdleBackoff(reading.poll_after_seconds, clock)
        self._beats: dict[str, PeriodicThread] = {}
        self._lapsed_batches: dict[str, bool] = {}  # by group, as this query has decided
        self._ended: str | None = None
        self._closing: str | None = None
        self._last: Offset | None = None
        self._until: datetime | None = None
        self._settles = False
        self._lapses = 0
        self._lapsed: set[str] = set()
        self._away = 0
        self._watch: PeriodicThread | None = None
        self._backlog: Offset | None = None
        self._lock = threading.RLock()  # the watch ends batches too

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to the executors without the heartbeats."""
        return (QueueStream, (self.reading,))

    @override
    def initialOffset(self) -> Offset:
        """Return the offset before all others."""
        return {"epoch": 0}

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Note that only tasks that are due by now are wanted."""
        self._until = opened(self.reading.connection).now()

    @override
    @plain_errors()
    def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:
        """Return a new offset if something is due, else where it stands.

        Spark before 4.2 does not say where to *start*, nor how much it wants.
        Spark asks when the batches before are over, so this also ends them.  While the tables are
        away there is nothing new.  Raises Unavailable when they stay away.
        """
        last = start or self._last or self.initialOffset()
        try:
            with self._lock:
                self._last = self._next(last, limit)
        except Unavailable as error:
            self._away += 1
            if self._away > _AWAY:
                raise
            _LOG.warning("%s: the stream of queue %s waits: %s", QUEUE, self.reading.about, error)
            self._last = last
        else:
            self._away = 0
        return self._last

    @override
    def getDefaultReadLimit(self) -> Any:
        """Return ``max_rows``, as Spark from 4.2 on says it."""
        return ReadMaxRows(self.reading.max_rows)

    @override
    def reportLatestOffset(self) -> Offset | None:
        """Return *epoch*, *backlog* and *oldest_ready_seconds* as of the last look at the tables.

        The backlog is the number of due tasks, counted up to one page in each shard.  Spark shows
        the dictionary as ``latestOffset`` in the progress of the query, and asks often, so this
        makes no request.  The last look was before the last micro-batch was read, or found nothing.
        """
        return self._backlog

    def _next(self, last: Offset, limit: object) -> Offset:
        self._end_others(last)
        reading = self.reading
        uses = opened(reading.connection)
        if self._idle.wait:
            return last
        epoch = max(micros_of(uses.now()), last["epoch"] + 1)
        if not reading.due(by=self._until):
            self._backlog = {"epoch": epoch, "backlog": 0, "oldest_ready_seconds": 0.0}
            self._idle.nothing(least=reading.pause())
            return last
        self._idle.found()
        plan = reading.plan()
        group = uses.leases.open(None, keepalive=reading.lease_seconds)
        self._claims(group.id).note_planned(now=uses.now())
        self._lapsed_batches[group.id] = False
        self._beat(group.id)
        oldest = round(reading.oldest_ready() or 0.0, 3)
        self._backlog = {"epoch": epoch, "backlog": sum(plan.due), "oldest_ready_seconds": oldest}
        rooms = rooms_by(reading.most(limit, sum(plan.due)), plan.due, group.id)
        offset: Offset = {"epoch": epoch, "group": group.id}
        offset |= {"shards": plan.shards, "rows": list(rooms)}
        offset |= {"settles": True} if self._settles else {}
        return offset | ({"lapses": self._lapses} if self._lapses else {})

    @override
    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[QueuePartition]:
        """Return the shares of the batch that ends at *end*, the same ones each time.

        When a query starts again, Spark calls this with *start* equal to *end*, the last offset in
        its log.  That batch may be committed or not, so the call ends nothing.
        Raises StaleCheckpoint for a batch whose claim log was removed, and InvalidRequest for a
        batch of another query.
        """
        if start == end:
            self._last = end
            return []
        group_id = end.get("group")
        if group_id is not None:
            self.reading.by_queue(end["shards"])  # refused before anything is decided
        with self._lock:
            self._end_others(start, but=end)
            if group_id is None:
                return []
            lapsed = self._has_lapsed(group_id)
        shards, rooms = end["shards"], end["rows"]
        return self.reading.shares(group_id, shards, rooms, stream=True, lapsed=lapsed)

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        """Yield what the share has claimed already, and what it can lease."""
        ours = partition_of(partition)
        with plain_errors():
            yield from leased(ours.request, ours.shard)

    def commit(self, end: Offset) -> None:
        """End the batch of *end*, if it was not yet."""
        with suppress(Unavailable), self._lock:  # the next look does it
            self._end(end)

    def stop(self) -> None:
        """Release the held tasks, no attempt used, if Spark lets this process live so long.

        If a query ends within a batch, Spark mostly kills this process before.  Then the heartbeat
        ends too, and the end of the lease releases the tasks.  A stream that settles on commit
        releases nothing, because its batch may be committed.  The claim log stays: the batch may be
        read again.
        """
        if self._watch is not None:
            self._watch.stop()
        for group_id in list(self._beats):
            self._rest(group_id)
            if committed.marked(group_id):
                with suppress(HeadraceError):
                    self._end({"group": group_id})
            elif self.reading.on_commit is None:
                with suppress(HeadraceError):  # the reaper does it
                    self._ending.give_back(group_id)

    # -- the groups of batches -------------------------------------------------------------------

    @property
    def _ending(self) -> Ending:
        reading = self.reading
        return Ending(reading.connection, reading.about, reading.on_commit, self._settles)

    def _end_others(self, done: Offset, *, but: Offset | None = None) -> None:
        """End the batch of *done*, and the other open groups, which were never read."""
        self._settles = self._settles or done.get("settles", False)
        self._lapses = max(self._lapses, done.get("lapses", 0))
        self._end(done)
        kept = but.get("group") if but is not None else None
        for group_id in [one for one in self._beats if one != kept]:
            self._closing = group_id
            self._ending.forget(group_id)
            self._rest(group_id)

    def _end(self, offset: Offset) -> None:
        group_id = offset.get("group")
        if group_id is None or group_id == self._ended:
            return
        self._closing = group_id
        ended = self._ending.end(group_id)
        self._settles = ended.settles
        if ended.lapsed:
            self._lapse(group_id)
        self._ended = group_id
        self._rest(group_id)
        committed.unmark(group_id)

    def _claims(self, group_id: str) -> GroupClaims:
        return GroupClaims(store(self.reading.connection), group_id)

    def _has_lapsed(self, group_id: str) -> bool:
        """Return whether the lease of a batch has ended; else extend it.

        Decided once for each query, so that all reads of one attempt at the batch agree.
        """
        if group_id in self._lapsed_batches:
            return self._lapsed_batches[group_id]
        if self._claims(group_id).is_lapsed() is None:
            raise StaleCheckpoint(_STALE.format(about=self.reading.about))
        try:
            opened(self.reading.connection).leases.extend(group_id)
        except LeaseLost:
            lapsed = True
            _LOG.warning(
                "%s: queue %s, micro-batch %s: its lease ended before it is read again. Rows whose"
                " tasks are not settled are left out, and come again in a later micro-batch",
                QUEUE,
                self.reading.about,
                group_id,
            )
            self._count_lapse(group_id)
        else:
            lapsed = False
            self._beat(group_id)
        self._lapsed_batches[group_id] = lapsed
        return lapsed

    def _beat(self, group_id: str) -> None:
        """Begin to extend a group from a thread."""
        uses = opened(self.reading.connection)
        seconds = self.reading.lease_seconds
        lost = partial(self._lost, group_id)
        beat = group_heartbeat(uses.leases, group_id, lease_seconds=seconds, on_lost=lost)
        self._beats[group_id] = beat
        beat.start()
        if self._watch is None:
            committed.tidy()
            self._watch = PeriodicThread(_WATCH, self._look, log=_LOG)
            self._watch.start()

    def _look(self) -> float:
        """End what is marked as committed, long before the next batch if its trigger is long."""
        for group_id in list(self._beats):
            if committed.marked(group_id):
                with suppress(Unavailable), self._lock:  # the next look does it
                    self._end({"group": group_id})
        return committed.LOOK_EVERY

    def _lost(self, group_id: str) -> None:
        if group_id != self._closing:  # who closes it knows whether it had lapsed
            self._lapse(group_id)

    def _lapse(self, group_id: str) -> None:
        if self._count_lapse(group_id):
            _LOG.warning(
                "%s: queue %s, micro-batch %s: its lease has ended. Tasks that are not settled yet"
                " come again in a later micro-batch; a longer lease_seconds helps",
                QUEUE,
                self.reading.about,
                group_id,
            )

    def _count_lapse(self, group_id: str) -> bool:
        """Count a batch's lapse; return whether it is news."""
        news = group_id not in self._lapsed
        self._lapsed.add(group_id)
        self._lapses += news
        return news

    def _rest(self, group_id: str) -> None:
        self._lapsed_batches.pop(group_id, None)
        beat = self._beats.pop(group_id, None)
        if beat is not None:
            beat.stop()
            beat.join()


class RefusedStream(api.DataSourceStreamReader):
    """A stream that cannot begin: its first call raises the error."""

    def __init__(self, error: HeadraceError) -> None:
        self.error = error

    @override
    @plain_errors()
    def initialOffset(self) -> Offset:
        """Raise the error."""
        raise self.error

    @override
    @plain_errors()
    def latestOffset(self, *_given: object) -> Offset:
        """Raise the error."""
        raise self.error

    @override
    @plain_errors()
    def partitions(self, start: Offset, end: Offset) -> Sequence[QueuePartition]:
        """Raise the error."""
        raise self.error

    def read(self, partition: api.InputPartition) -> Iterator[Any]:  # noqa: ARG002 (Spark's)
        """Raise the error."""
        raise self.error
