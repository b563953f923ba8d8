"""The format ``headrace``: tasks of a queue as rows, leased when read and settled when written.

Both may be run again by Spark, in part or as a whole.  A read finds what it has leased before, by
``claims``; how it is written is in ``settling``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import datasource as api
from pyspark.sql.types import StructType
from typing_extensions import override

from headrace.domain.errors import HeadraceError
from headrace.spark.sources import QUEUE
from headrace.spark.sources.leasing import SCHEMA, leased
from headrace.spark.sources.options import plain_errors
from headrace.spark.sources.reading import (
    QueuePartition,
    QueueReading,
    columns_of,
    partition_of,
)
from headrace.spark.sources.settle_target import settle_target
from headrace.spark.sources.settling import QueueStreamWriter, QueueWriter
from headrace.spark.sources.stream import QueueStream, RefusedStream


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
    @plain_errors()
    def reader(self, schema: StructType) -> "QueueReader":
        """The reader of a batch.  Raises InvalidRequest for wrong options, and another schema."""
        reading = QueueReading.of(self.options)
        reading.check(columns_of(schema))
        return QueueReader(reading)

    @override
    def streamReader(self, schema: StructType) -> api.DataSourceStreamReader:
        """Return the reader of a stream.

        Its first call raises what is wrong with the options or the schema: if this method raised
        it, Spark would show another error.
        """
        try:
            reading = QueueReading.of(self.options, stream=True)
            reading.check(columns_of(schema))
        except HeadraceError as error:
            return RefusedStream(error)
        return QueueStream(reading)

    @override
    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> "QueueWriter":
        """The writer that settles a batch.

        Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
        """
        return QueueWriter(settle_target(self.options, schema, overwrite=overwrite))

    @override
    @plain_errors()
    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> "QueueStreamWriter":
        """The writer that settles a stream.

        Raises InvalidRequest for wrong options or columns, NotFound for a queue that is missing.
        """
        return QueueStreamWriter(settle_target(self.options, schema, overwrite=overwrite))


class QueueReader(api.DataSourceReader):
    """Leases up to ``max_rows`` due tasks; all reads of one plan are of one group."""

    def __init__(self, reading: QueueReading) -> None:
        self.reading = reading

    @plain_errors()
    def partitions(self) -> Sequence[QueuePartition]:
        """Open the group; called once for a plan, on the driver's side."""
        return self.reading.open()

    def read(self, partition: api.InputPartition) -> Iterator[Any]:
        """Yield what the share has claimed already, and what it can lease."""
        ours = partition_of(partition)
        with plain_errors():
            yield from leased(ours.request, ours.shard)
