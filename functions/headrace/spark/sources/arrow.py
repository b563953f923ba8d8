"""The values of rows that come in Arrow batches, and the sink of a stream that takes such batches.

Spark gives Arrow batches to the sinks of streams from 4.1 on, and rows before.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource as api

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class ArrowSink(DataSourceStreamArrowWriter):
        """A sink whose rows come in Arrow batches."""
else:
    ArrowSink = getattr(api, "DataSourceStreamArrowWriter", api.DataSourceStreamWriter)


@dataclass(frozen=True, slots=True)
class UnfitValue:
    """A value of Spark's that Python has none for, such as a day past the year 9999."""

    reason: str

    def __str__(self) -> str:
        return f"({self.reason})"


def rows_in(given: Iterable[Any], ntz: Collection[str] = ()) -> Iterator[Mapping[str, Any]]:
    """Yield what such a sink is *given*, Arrow batches or on Spark 4.0 rows, row by row.

    Every timestamp with a time zone is aware, any other is naive.  Those of Spark's rows are all
    naive, in this machine's time zone unless their column is one of *ntz*.
    """
    for one in given:
        if isinstance(one, pa.RecordBatch):
            yield from rows_of(one)
        else:
            row = one.asDict(recursive=True)
            yield {name: value if name in ntz else _aware(value) for name, value in row.items()}


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of *batch*; a value that Python has none for is UnfitValue."""
    names = batch.schema.names
    columns = [_in_utc(column) for column in batch.columns]
    try:
        values = [column.to_pylist() for column in columns]
    except (OverflowError, ValueError):
        values = [[_value(scalar) for scalar in column] for column in columns]
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def _in_utc(column: pa.Array) -> pa.Array:
    """Return instants in UTC: which of them Python can tell is then the same in all time zones."""
    kind = column.type
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return column.cast(pa.timestamp(kind.unit, "UTC")) if zoned else column


def _value(scalar: pa.Scalar) -> Any:  # noqa: ANN401  whatever a column has
    try:
        return scalar.as_py()
    except UnicodeDecodeError as error:
        return UnfitValue(f"is not UTF-8: {error.reason}")
    except (OverflowError, ValueError):
        return UnfitValue(f"must be a {scalar.type} from the year 1 to 9999")


def _aware(value: Any) -> Any:  # noqa: ANN401  whatever a column has
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def plain(value: object) -> str:
    """Return *value* of a row as text, the same on each machine and with each version of Spark."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    return str(bytes(value) if isinstance(value, bytearray) else value)
