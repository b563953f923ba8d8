"""``headrace.table``: the table of tasks, all of it by segments, or one queue by the index.

Nothing is leased and nothing changed.  A page is decoded while the next one is fetched.

The source defines no ``pushFilters``: Spark 4.1 to 4.3 keeps the reader that one query has narrowed
with the frame, and the next query over that frame reads too few rows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from headrace.domain.errors import FieldError
from headrace.domain.task import SHOWN_STATES, Place, State
from headrace.domain.times import micros_of
from headrace.spark.sources import TABLE, connect, decode
from headrace.spark.sources.columns import DEFAULT, TaskColumn, columns_of, ddl
from headrace.spark.sources.options import (
    SourceOption,
    check_queues,
    choice,
    flag,
    instant,
    number,
    parsed,
    plain_errors,
    queue_name,
    refused,
    whole,
)
from headrace.spark.sources.rate_limit import RateLimiter
from headrace.store import keys
from headrace.store.items import EVER, READ_AT_ONCE, Between, Item, partition
from headrace.store.sqlite.tasks import ROW

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.store.dynamo import DynamoStore
    from headrace.store.dynamo.pages import Pages
    from headrace.store.sqlite import SqliteStore
    from headrace.store.sqlite.tasks import FilePages

OPTIONS: Final = (
    SourceOption("queue", queue_name, "only this queue, read by the index; else the whole table"),
    SourceOption(
        "state",
        choice(*(state.lower() for state in SHOWN_STATES)),
        "only this state of the queue, such as `dead`",
    ),
    SourceOption(
        "since", instant, "only tasks of the queue whose `attention_at` is this or later, in UTC"
    ),
    SourceOption("until", instant, "only those whose `attention_at` is before this"),
    SourceOption("segments", whole(1, 10_000), "parts of the table that are read at a time", 8),
    SourceOption(
        "consistent",
        flag,
        "see every write that was answered; costs twice the units",
        default=False,
    ),
    SourceOption("rate", number(1, 1e9), "read units a second, all parts together; else no limit"),
    *connect.OPTIONS,
)
_IN_INDEX: Final = frozenset({keys.TASK_ID, keys.QUEUE_STATE, keys.SCHEDULED_AT, keys.EXPIRES_AT})
_ID: Final = next(column for column in DEFAULT if column.name == "id")
_PLACE: Final = TaskColumn("place", "string", "text", keys.QUEUE_STATE, "where it is")
_LAST: Final = "LastEvaluatedKey"
_TEXT: Final = pa.struct([("S", pa.string())])
_DIGITS: Final = pa.struct([("N", pa.string())])
_KEY: Final = pa.struct(
    [
        (keys.TASK_ID, _TEXT),
        (keys.QUEUE_STATE, _TEXT),
        (keys.SCHEDULED_AT, _DIGITS),
        (ROW, _DIGITS),  # of a file
    ]
)
_UNITS: Final = pa.struct([("CapacityUnits", pa.float64())])


class Segment(InputPartition):
    """One of so many parts of the table, as its pages call it."""

    def __init__(self, part: tuple[int, int], of: int) -> None:
        super().__init__(part)
        self.of = of


class IndexPart(InputPartition):
    """One partition of the index, of so many that are read."""

    def __init__(self, place: Place, of: int) -> None:
        super().__init__((place.queue, str(place.state), place.label))
        self.of = of


@dataclass(frozen=True, slots=True)
class TableReading:
    """What to read: plain data, which travels to every worker.

    ``rate`` is read units a second of one partition.
    """

    connection: connect.StoreConnection
    columns: tuple[TaskColumn, ...]
    consistent: bool = False
    rate: float | None = None
    between: Between = EVER

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the columns are made of."""
        return tuple(dict.fromkeys(column.top for column in self.columns))


class TableSource(DataSource):
    """Tasks as they are stored; a schema that names some columns reads those alone."""

    @classmethod
    def name(cls) -> str:
        return TABLE

    def schema(self) -> str:
        return ddl(DEFAULT)

    @plain_errors()
    def reader(self, schema: "StructType") -> "TableReader":
        chosen = parsed(OPTIONS, self.options, of=TABLE)
        alone = [name for name in ("state", "since", "until") if chosen[name] is not None]
        if alone and not chosen["queue"]:
            raise refused([FieldError(name, "needs a queue") for name in alone], of=TABLE)
        columns = columns_of([(one.name, one.dataType.simpleString()) for one in schema.fields])
        return TableReader(chosen, columns)


class TableReader(DataSourceReader):
    """Reads the partitions of one frame."""

    def __init__(self, chosen: dict[str, Any], columns: tuple[TaskColumn, ...]) -> None:
        self.chosen = chosen
        self.columns = columns
        self.connection = connect.StoreConnection.of(chosen)

    @plain_errors()
    def partitions(self) -> Sequence[InputPartition]:
        queue, state = self.chosen["queue"], self.chosen["state"]
        if queue is None:
            parts = pages_of(self.connection).parts(self.chosen["segments"])
            return [Segment(part, len(parts)) for part in parts]
        queues = connect.opened(self.connection).queues
        check_queues(queues, [("queue", queue)], of=TABLE)
        source = queues.get(queue)
        states = [State(state.upper())] if state else SHOWN_STATES
        places = [place for one in states for place in source.places(one)]
        return [IndexPart(place, len(places)) for place in places]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rate = self.chosen["rate"]
        of = cast("Segment | IndexPart", partition).of
        reading = TableReading(
            self.connection,
            self.columns,
            self.chosen["consistent"],
            rate / of if rate else None,
            _between(self.chosen["since"], self.chosen["until"]),
        )
        with plain_errors():
            if isinstance(partition, Segment):
                yield from scanned(reading, partition.value)
                return
            queue, state, label = partition.value
            yield from listed(reading, Place.labelled(queue, State(state), label))


def _between(since: datetime | None, until: datetime | None) -> Between:
    first, last = EVER
    return (
        first if since is None else micros_of(since),
        last if until is None else micros_of(until) - 1,
    )


def scanned(reading: TableReading, part: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part of the table."""
    pages, now = pages_of(reading.connection), connect.opened(reading.connection).now()

    def page(start: Item | None) -> bytes:
        return pages.scan(
            part,
            attributes=reading.attributes,
            now=now,
            start=start,
            consistent=reading.consistent,
        )

    for items in _followed(page, decode.wire_struct(reading.columns), RateLimiter(reading.rate)):
        yield decode.rows(items, reading.columns)


def listed(reading: TableReading, place: Place) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one partition of the index.

    Columns that the index lacks are read from the tasks; a task that has left the place by then is
    left out.
    """
    pages, now = pages_of(reading.connection), connect.opened(reading.connection).now()
    limiter = RateLimiter(reading.rate)
    columns = reading.columns
    known = {*reading.attributes} <= _IN_INDEX
    wanted = columns if known else (_ID,)
    wire = decode.wire_struct(wanted)

    def page(start: Item | None) -> bytes:
        return pages.entries(place, now=now, start=start, between=reading.between)

    for items in _followed(page, wire, limiter):
        if known:
            yield decode.rows(items, columns)
            continue
        ids = decode.column_of(items, _ID).to_pylist()
        for start in range(0, len(ids), READ_AT_ONCE):
            yield from _looked_up(pages, ids[start : start + READ_AT_ONCE], reading, place, limiter)


def _looked_up(
    pages: "Pages | FilePages",
    ids: Sequence[str],
    reading: TableReading,
    place: Place,
    limiter: RateLimiter,
) -> Iterator[pa.RecordBatch]:
    """Yield the tasks *ids* that are in *place* still, as last written."""
    attributes = tuple(dict.fromkeys((*reading.attributes, keys.QUEUE_STATE)))
    text = pages.tasks(ids, attributes=attributes)
    page = _page(text, decode.wire_struct((*reading.columns, _PLACE)))
    _spend(limiter, page.units)
    there = pc.equal(decode.column_of(page.items, _PLACE), partition(place))
    yield decode.rows(page.items.filter(there), reading.columns)


@dataclass(frozen=True, slots=True)
class _ItemPage:
    """A page, parsed: what it holds, what it cost in read units, and where to go on."""

    items: Any
    units: float
    last: Item | None


def _page(text: bytes, wire: pa.StructType) -> _ItemPage:
    schema = pa.schema([("Items", pa.list_(wire)), ("ConsumedCapacity", _UNITS), (_LAST, _KEY)])
    row = decode.parsed(text, schema)
    last = row.column(_LAST).to_pylist()[0]
    key = {name: value for name, value in (last or {}).items() if value is not None}
    units = row.column("ConsumedCapacity").to_pylist()[0] or {}
    return _ItemPage(
        row.column("Items").combine_chunks().flatten(),
        units.get("CapacityUnits") or 0.0,
        key or None,
    )


def _followed(
    ask: Callable[[Item | None], bytes], wire: pa.StructType, limiter: RateLimiter
) -> Iterator[Any]:
    """Yield what is on all pages: the next one is requested before this one is handed out."""
    with ThreadPoolExecutor(1, "page") as ahead:
        coming: Future[bytes] | None = ahead.submit(ask, None)
        while coming is not None:
            page = _page(coming.result(), wire)
            _spend(limiter, page.units)
            coming = ahead.submit(ask, page.last) if page.last else None
            if len(page.items):
                yield page.items


def _spend(limiter: RateLimiter, units: float) -> None:
    """Wait for as long as *units* take at the requested rate."""
    left = math.ceil(units)
    while left > 0:
        left -= limiter.next(left)


def pages_of(connection: connect.StoreConnection) -> "Pages | FilePages":
    """The pages of the table, retried while it is away: no page is ever left out."""
    return cast("DynamoStore | SqliteStore", connect.store(connection)).pages()
