"""The format ``headrace``: tasks of a queue as rows, leased when read and settled when written.

Both may be run again by Spark, in part or as a whole.  A read finds what it has leased before; how
it is written is in ``settling``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import datasource as api
from pyspark.sql.types import StructType
from typing_extensions import override

from headrace.client.threads import PeriodicThread
from headrace.domain.errors import HeadraceError
from headrace.domain.instants import micros_of
from headrace.domain.limits import KEEPALIVE_SECONDS
from headrace.domain.task import State
from headrace.spark.sources import QUEUE, connect
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.leasing import (
    SCHEMA,
    Intake,
    group_heartbeat,
    leased,
    shard_deliveries,
    sweep,
)
from headrace.spark.sources.options import SourceOption, number, parsed, queue_name, whole
from headrace.spark.sources.settling import QueueStreamWriter, QueueWriter, outlet_of

try:  # from Spark 4.2 on a stream of a Python source can be drained
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as Drained
except ImportError:

    class Drained:  # type: ignore[no-redef]  # what earlier versions lack
        """Nothing: the trigger takes one batch."""


_BATCH_SECONDS: Final = 600.0
_STREAM_SECONDS: Final = 60.0  # a heartbeat extends it; who is killed holds its tasks no longer
READING: Final = (
    SourceOption("queue", queue_name, "the queue to lease from", required=True),
    SourceOption("station", queue_name, "the worker's name on the tasks it takes", "spark"),
    SourceOption(
        "max_rows", whole(1, 1_000_000), "most tasks of a read, or of a micro-batch", 5_000
    ),
    SourceOption(
        "lease_seconds",
        number(*KEEPALIVE_SECONDS),
        "how long a read holds its tasks: for a batch, which nothing extends, longer than the job,"
        f" else {_BATCH_SECONDS:g}; for a stream, which is extended while it runs, else"
        f" {_STREAM_SECONDS:g}",
    ),
    SourceOption("rate", number(0.001, 1_000_000), "most tasks a second, all shards together"),
    *connect.OPTIONS,
)


class QueueSource(api.DataSource):
    """``spark.read.format("headrace")`` and its like."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return QUEUE

    def schema(self) -> str:
        """Return the columns of a leased task."""
        return SCHEMA

    @override
    def reader(self, schema: StructType) -> "QueueReader":
        """The reader of a batch.  Raises InvalidRequest for wrong options."""
        return QueueReader(QueueReading.of(self.options))

    @override
    def streamReader(self, schema: StructType) -> "QueueStream":
        """The reader of a stream.  Raises InvalidRequest for wrong options."""
        return QueueStream(QueueReading.of(self.options, lease_seconds=_STREAM_SECONDS))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> "QueueWriter":
        """The writer that settles a batch.

        Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
        """
        return QueueWriter(outlet_of(self.options, schema, overwrite=overwrite))

    @override
    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> "QueueStreamWriter":
        """The writer that settles a stream.

        Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
        """
        return QueueStreamWriter(outlet_of(self.options, schema, overwrite=overwrite))


@dataclass(frozen=True, slots=True)
class QueueReading:
    """The options of a read."""

    connection: StoreConnection
    queue: str
    station: str
    max_rows: int
    lease_seconds: float
    rate: float | None

    @classmethod
    def of(
        cls, given: Mapping[str, str], *, lease_seconds: float = _BATCH_SECONDS
    ) -> "QueueReading":
        """Make it from the options *given*, else with *lease_seconds*.  Raises InvalidRequest."""
        values = parsed(READING, given, of=QUEUE)
        if values["lease_seconds"] is None:
            values["lease_seconds"] = lease_seconds
        own = {row.name: values[row.name] for row in READING if row not in connect.OPTIONS}
        return cls(StoreConnection.of(values), **own)

    def open(self) -> "list[QueuePartition]":
        """Open a group and divide it: a share for each shard.

        Raises NotFound when there is no such queue, and InvalidRequest for one with a target.
        """
        uses = opened(self.connection)
        shards = uses.queues.get(self.queue).shards_of(State.ENQUEUED)
        shard_deliveries(self.connection).source(self.queue)  # here, before a job begins
        group = uses.leases.open(None, keepalive=self.lease_seconds)
        intake = Intake(
            self.connection,
            self.queue,
            group.id,
            self.station,
            self.max_rows,
            self.rate / shards if self.rate else None,
            shards,
        )
        return [QueuePartition(intake, shard) for shard in range(shards)]


class QueuePartition(api.InputPartition):
    """One partition: a shard of the queue, and the group that its tasks are leased under."""

    def __init__(self, intake: Intake, shard: int) -> None:
        super().__init__((intake.group, shard))
        self.intake = intake
        self.shard = shard


def _leased(partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
    ours = cast("QueuePartition", partition)
    return leased(ours.intake, ours.shard)


class QueueReader(api.DataSourceReader):
    """Leases up to ``max_rows`` due tasks; all reads of one plan are of one group."""

    def __init__(self, reading: QueueReading) -> None:
        self.reading = reading

    def partitions(self) -> Sequence[QueuePartition]:
        """Open the group; called once for a plan, on the driver's side."""
        return self.reading.open()

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        """Yield what the share holds already, and what it can lease."""
        return _leased(partition)


@dataclass(slots=True)
class _Epoch:
    """One micro-batch: its shares, and the heartbeat of its group."""

    shares: list[QueuePartition]
    beat: PeriodicThread


class QueueStream(api.DataSourceStreamReader, Drained):
    """Leases batch after batch, each under a group of its own that a thread extends.

    An offset is the time at which a batch was seen to be due, in microseconds.  It says nothing of
    what is in the batch: a restarted query leases anew, and what it held before comes back when
    that lease ends.
    """

    def __init__(self, reading: QueueReading) -> None:
        self.reading = reading
        self._open: dict[int, _Epoch] = {}
        self._until: datetime | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to the executors without the heartbeats."""
        return (QueueStream, (self.reading,))

    @override
    def initialOffset(self) -> dict[str, int]:
        """Return the offset before all others."""
        return {"epoch": 0}

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Note that only what is due by now is wanted."""
        self._until = opened(self.reading.connection).now()

    @override
    def latestOffset(
        self,
        start: dict[str, int] | None = None,
        limit: object = None,
    ) -> dict[str, int]:
        """Return a new offset if something is due, else where it stands.

        Spark asks when the batches before are over, so this also ends them.
        """
        last = max([*self._open, (start or {}).get("epoch", 0)])
        self._finish(last)
        shards = shard_deliveries(self.reading.connection)
        if shards.due(self.reading.queue, by=self._until):
            return {"epoch": max(micros_of(shards.now()), last + 1)}
        return {"epoch": last}

    @override
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[QueuePartition]:
        """Open a group for the batch that ends at *end*, once."""
        epoch = self._open.get(end["epoch"])
        if epoch is None:
            shares = self.reading.open()
            beat = group_heartbeat(
                opened(self.reading.connection).leases,
                shares[0].intake.group,
                lease_seconds=self.reading.lease_seconds,
            )
            epoch = self._open[end["epoch"]] = _Epoch(shares, beat)
            beat.__enter__()
        return epoch.shares

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        """Yield what the share holds already, and what it can lease."""
        return _leased(partition)

    def commit(self, end: dict[str, int]) -> None:
        """End the batches up to *end*."""
        self._finish(end["epoch"])

    def stop(self) -> None:
        """Give back what is held, no attempt used, if Spark lets it.

        Where a query ends within a batch Spark kills this process, mostly before it comes to this.
        Then the heartbeat is over too, and what is held comes back when the lease ends.
        """
        for number_ in list(self._open):
            self._close(number_, swept=False)

    def _finish(self, until: int) -> None:
        for epoch in [one for one in self._open if one <= until]:
            self._close(epoch, swept=True)

    def _close(self, number_: int, *, swept: bool) -> None:
        """End a batch; what was not settled counts an attempt if it had its chance (*swept*)."""
        epoch = self._open.pop(number_)
        epoch.beat.__exit__(None, None, None)
        group = epoch.shares[0].intake.group
        with suppress(HeadraceError):  # the reaper does it
            if swept:
                sweep(self.reading.connection, self.reading.queue, group)
            opened(self.reading.connection).leases.close(group)
