"""The sink of a stream whose rows come in Arrow batches, which Spark does from 4.1 on."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource as api

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class ArrowSink(DataSourceStreamArrowWriter):
        """A sink whose rows come in Arrow batches."""
else:
    ArrowSink = getattr(api, "DataSourceStreamArrowWriter", api.DataSourceStreamWriter)


def rows_in(given: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what such a sink is *given*, Arrow batches or on Spark 4.0 rows, row by row."""
    for one in given:
        if isinstance(one, pa.RecordBatch):
            yield from one.to_pylist()
        else:
            yield one.asDict()
