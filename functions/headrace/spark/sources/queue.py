"""The format ``headrace``: tasks of a queue as rows, leased when read and settled when written.

Both may be run again by Spark, in part or as a whole.  A read finds what it has leased before; a
write is a compare-and-set on the lease that each row names.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Row as SparkRow
from pyspark.sql import datasource as api
from pyspark.sql.types import StructType

from headrace.domain.errors import FieldError, HeadraceError, InvalidRequest, NotFound
from headrace.domain.limits import KEEPALIVE_SECONDS
from headrace.spark.sources import connect
from headrace.spark.sources.beat import Every, beating
from headrace.spark.sources.connect import Connection, opened
from headrace.spark.sources.leasing import SCHEMA, Intake, leased, shard_deliveries
from headrace.spark.sources.options import Option, number, parsed, queue_name, whole
from headrace.spark.sources.rows import COLUMNS, Row, rows_of
from headrace.spark.sources.settling import Outlet, Runs, Tally, apart, settle
from headrace.spark.sources.sweeping import sweep
from headrace.store.items import micros

try:  # from Spark 4.2 on a stream of a Python source can be drained
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as Drained
except ImportError:

    class Drained:  # type: ignore[no-redef]  # what earlier versions lack
        """Nothing: the trigger takes one batch."""


NAME: Final = "headrace"
_LOG: Final = logging.getLogger(__name__)
_SAMPLES: Final = 3
_SAID: Final = 300  # characters of a reason in the log
_BATCH_SECONDS: Final = 600.0
_STREAM_SECONDS: Final = 60.0  # a heartbeat extends it; who is killed holds its tasks no longer
READING: Final = (
    Option("queue", queue_name, "the queue to lease from", required=True),
    Option("station", queue_name, "the worker's name on the tasks it takes", "spark"),
    Option("max_rows", whole(1, 1_000_000), "most tasks of a read, or of a micro-batch", 5_000),
    Option(
        "lease_seconds",
        number(*KEEPALIVE_SECONDS),
        "how long a read holds its tasks: for a batch, which nothing extends, longer than the job,"
        f" else {_BATCH_SECONDS:g}; for a stream, which is extended while it runs, else"
        f" {_STREAM_SECONDS:g}",
    ),
    Option("rate", number(0.001, 1_000_000), "most tasks a second, all shards together"),
    *connect.OPTIONS,
)
WRITING: Final = (
    Option("queue", queue_name, "the queue that the rows were leased from", required=True),
    Option("to", queue_name, "where a row is moved that names no `to_queue`"),
    *connect.OPTIONS,
)


class QueueSource(api.DataSource):
    """``spark.read.format("headrace")`` and its like."""

    @classmethod
    def name(cls) -> str:
        """Return what the format is called."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a leased task."""
        return SCHEMA

    def reader(self, schema: StructType) -> "QueueReader":  # noqa: ARG002 (always all columns)
        """Return what reads a batch.  Raises InvalidRequest for wrong options."""
        return QueueReader(Reading.of(self.options))

    def streamReader(self, schema: StructType) -> "QueueStream":  # noqa: ARG002, N802 (Spark's)
        """Return what reads a stream.  Raises InvalidRequest for wrong options."""
        return QueueStream(Reading.of(self.options, lease_seconds=_STREAM_SECONDS))

    def writer(self, schema: StructType, overwrite: bool) -> "QueueWriter":  # noqa: FBT001 (Spark's)
        """Return what settles a batch.

        Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
        """
        return QueueWriter(_outlet(self.options, schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802 (Spark's)
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 (Spark's)
    ) -> "QueueStreamWriter":
        """Return what settles a stream.

        Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
        """
        return QueueStreamWriter(_outlet(self.options, schema, overwrite=overwrite))


@dataclass(frozen=True, slots=True)
class Reading:
    """The options of a read."""

    connection: Connection
    queue: str
    station: str
    max_rows: int
    lease_seconds: float
    rate: float | None

    @classmethod
    def of(cls, given: Mapping[str, str], *, lease_seconds: float = _BATCH_SECONDS) -> "Reading":
        """Return what *given* says, and *lease_seconds* if it does not.  Raises InvalidRequest."""
        values = parsed(READING, given, of=NAME)
        if values["lease_seconds"] is None:
            values["lease_seconds"] = lease_seconds
        own = {row.name: values[row.name] for row in READING if row not in connect.OPTIONS}
        return cls(Connection.of(values), **own)

    def open(self) -> "list[Share]":
        """Open a group and divide it: a share for each shard.

        Raises NotFound when there is no such queue.
        """
        uses = opened(self.connection)
        shards = uses.queues.get(self.queue).shards_in_use
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
        return [Share(intake, shard) for shard in range(shards)]


class Share(api.InputPartition):
    """One partition: a shard of the queue, and the group that its tasks are leased under."""

    def __init__(self, intake: Intake, shard: int) -> None:
        super().__init__((intake.group, shard))
        self.intake = intake
        self.shard = shard


class QueueReader(api.DataSourceReader):
    """Leases up to ``max_rows`` due tasks; all reads of one plan are of one group."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def partitions(self) -> Sequence[Share]:
        """Open the group; called once for a plan, on the driver's side."""
        return self.reading.open()

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        """Yield what the share holds already, and what it can lease."""
        assert isinstance(partition, Share)  # noqa: S101 (we made it)
        return leased(partition.intake, partition.shard)


@dataclass(slots=True)
class _Epoch:
    """One micro-batch: its shares, and the heartbeat of its group."""

    shares: list[Share]
    beat: Every


class QueueStream(api.DataSourceStreamReader, Drained):
    """Leases batch after batch, each under a group of its own that a thread extends.

    An offset is the time at which a batch was seen to be due, in microseconds.  It says nothing of
    what is in the batch: a restarted query leases anew, and what it held before comes back when
    that lease ends.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._open: dict[int, _Epoch] = {}
        self._until: datetime | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to the executors without the heartbeats."""
        return (QueueStream, (self.reading,))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's)
        """Return the offset before all others."""
        return {"epoch": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's)
        """Note that only what is due by now is wanted."""
        self._until = opened(self.reading.connection).now()

    def latestOffset(  # noqa: N802 (Spark's)
        self,
        start: dict[str, int] | None = None,
        limit: object = None,  # noqa: ARG002 (a batch has max_rows)
    ) -> dict[str, int]:
        """Return a new offset if something is due, else where it stands.

        Spark asks when the batches before are over, so this also ends them.
        """
        last = max([*self._open, (start or {}).get("epoch", 0)])
        self._finish(last)
        shards = shard_deliveries(self.reading.connection)
        if shards.due(self.reading.queue, by=self._until):
            return {"epoch": max(micros(shards.now()), last + 1)}
        return {"epoch": last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Share]:  # noqa: ARG002 (see above)
        """Open a group for the batch that ends at *end*, once."""
        epoch = self._open.get(end["epoch"])
        if epoch is None:
            shares = self.reading.open()
            beat = beating(
                opened(self.reading.connection).leases,
                shares[0].intake.group,
                lease_seconds=self.reading.lease_seconds,
            )
            epoch = self._open[end["epoch"]] = _Epoch(shares, beat)
            beat.__enter__()
        return epoch.shares

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        """Yield what the share holds already, and what it can lease."""
        assert isinstance(partition, Share)  # noqa: S101 (we made it)
        return leased(partition.intake, partition.shard)

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


@dataclass
class Settled(api.WriterCommitMessage):
    """What became of the rows of one partition, and how they stood there.

    Of a partition that Spark ran twice it tells the second time.
    """

    tally: Tally = field(default_factory=Tally)
    runs: Runs = field(default_factory=Runs)


class QueueWriter(api.DataSourceArrowWriter):
    """Settles the tasks of the rows, whoever sends them how often."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def write(self, iterator: Iterator[Any]) -> Settled:
        """Settle the rows of one partition."""
        return _settled(self.outlet, rows_of(iterator, self.outlet.default))

    def commit(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Look at what was told.  Raises InvalidRequest where children may be missing."""
        _looked_at(self.outlet, messages)


class QueueStreamWriter(api.DataSourceStreamWriter):
    """Settles the tasks of the rows, whoever sends them how often."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def write(self, iterator: Iterator[SparkRow]) -> Settled:
        """Settle the rows of one partition."""
        return _settled(self.outlet, (_row(row, self.outlet.default) for row in iterator))

    def commit(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 (Spark's)
        """Look at what was told.  Raises InvalidRequest where children may be missing."""
        _looked_at(self.outlet, messages)


def _settled(outlet: Outlet, rows: Iterator[Row]) -> Settled:
    runs = Runs()
    return Settled(settle(outlet, runs.watched(rows)), runs)


def _looked_at(outlet: Outlet, messages: Sequence[api.WriterCommitMessage | None]) -> None:
    """Warn of tasks that their rows did not settle as they say.

    Raises InvalidRequest when rows of a task that spawns stood apart.
    """
    settled = [one for one in messages if isinstance(one, Settled)]
    tally = Tally()
    for one in settled:
        tally.merge(one.tally)
    if tally.amiss:
        told = "; ".join(
            f"{number:,} {outcome}{_said(tally.why.get(outcome))}"
            for outcome, number in sorted(tally.amiss.items())
        )
        _LOG.warning(
            "%s: of the tasks of queue %s, about so many were not settled as their rows say: %s",
            NAME,
            outlet.queue,
            told,
        )
    found = apart([one.runs for one in settled])
    if found:
        message = (
            f"{NAME}: the rows of {len(found):,} tasks that spawn stand apart, so their children"
            ' may be missing: say .repartition("id").sortWithinPartitions("id") before writing;'
            f" such as task {', '.join(found[:_SAMPLES])}"
        )
        raise InvalidRequest(message)


def _said(reason: str | None) -> str:
    return f" (such as: {reason:.{_SAID}})" if reason else ""


def _outlet(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Outlet:
    values = parsed(WRITING, given, of=NAME)
    if overwrite:
        message = f'{NAME}: say .mode("append"): tasks are settled, and there is nothing to replace'
        raise InvalidRequest(message)
    types = {column.name: column.dataType.simpleString() for column in schema}
    wrong = [
        FieldError(name, f"must be a {wanted}, not {types.get(name, 'missing')}")
        for name, wanted in COLUMNS.items()
        if types.get(name, wanted if name not in ("id", "lease") else None) != wanted
    ]
    if wrong:
        told = "; ".join(f"column {one.field} {one.message}" for one in wrong)
        raise InvalidRequest(f"{NAME}: {told}", errors=wrong)
    outlet = Outlet(Connection.of(values), values["queue"], values["to"])
    _check_queues(outlet)
    return outlet


def _check_queues(outlet: Outlet) -> None:
    """Look the queues up, once, where the write is planned.  Raises NotFound naming the option."""
    queues = opened(outlet.connection).queues
    wrong = []
    for option, queue in (("queue", outlet.queue), ("to", outlet.to)):
        try:
            if queue is not None:
                queues.get(queue)
        except NotFound as missing:
            wrong.append(FieldError(option, missing.detail))
    if wrong:
        told = "; ".join(f"option {one.field}: {one.message}" for one in wrong)
        raise NotFound(f"{NAME}: {told}", errors=wrong)


def _row(row: SparkRow, default: str) -> Row:
    given = {name: row[name] for name in COLUMNS if name in row}
    return Row(**{**given, "action": given.get("action") or default})
