"""Values of every type of Spark's, at their extremes, as rows that are enqueued."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import Place, State
from headrace.spark.sources import connect
from headrace.spark.sources.arrow import rows_in
from headrace.spark.sources.badrows import EnqueueSummary
from headrace.spark.sources.connect import StoreConnection
from headrace.spark.sources.enqueue import Sending, enqueued
from headrace.spark.sources.newrows import Identity

LONG: Final = st.sampled_from([-(2**63), -1, 0, 1, 253_402_300_800_000_000, 2**63 - 1]) | (
    st.integers(-(2**63), 2**63 - 1)
)
INT: Final = st.sampled_from([-(2**31), -719_163, 0, 2_932_897, 2**31 - 1])
TEXT: Final = st.sampled_from(
    [b"", b"a", b"\xff", b"\x00", "\N{CURRENCY SIGN}".encode(), b"x" * 70_000]
)
MOST: Final = Decimal("9" * 20 + "." + "9" * 18)


def instants(zone: str | None) -> Any:
    return st.builds(lambda at: pa.array([at], pa.timestamp("us", zone)), LONG)


def of(kind: pa.DataType, values: Any) -> Any:
    return st.builds(lambda value: pa.array([value], kind), values)


TYPES: Final = {
    "boolean": of(pa.bool_(), st.booleans()),
    "tinyint": of(pa.int8(), st.sampled_from([-128, 0, 127])),
    "smallint": of(pa.int16(), st.sampled_from([-(2**15), 2**15 - 1])),
    "int": of(pa.int32(), INT),
    "bigint": of(pa.int64(), LONG),
    "float": of(pa.float32(), st.floats(width=32)),
    "double": of(pa.float64(), st.floats()),
    "decimal": of(pa.decimal128(38, 18), st.sampled_from([MOST.copy_negate(), Decimal(0), MOST])),
    "string": st.builds(lambda text: pa.array([text]).view(pa.string()), TEXT),
    "binary": of(pa.binary(), TEXT),
    "date": st.builds(lambda day: pa.array([day], pa.int32()).cast(pa.date32()), INT),
    "timestamp": instants("UTC"),
    "timestamp in another zone": instants("America/Los_Angeles"),
    "timestamp in a third zone": instants("Pacific/Kiritimati"),
    "timestamp_ntz": instants(None),
    "interval day to second": st.builds(lambda us: pa.array([us], pa.duration("us")), LONG),
    "time": of(pa.time64("ns"), st.sampled_from([0, 1, 86_399_999_999_999])),
    "array": st.builds(
        lambda some: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), some), instants(None)
    ),
    "struct": st.builds(lambda some: pa.StructArray.from_arrays([some], ["at"]), instants("UTC")),
    "map": st.builds(
        lambda some: pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a"]), some),
        instants(None),
    ),
    "void": st.just(pa.nulls(1)),
}
COLUMNS: Final = {
    "scheduled_at": ["timestamp", "timestamp in another zone", "timestamp in a third zone"],
    "expires_at": ["timestamp", "timestamp in another zone", "timestamp in a third zone"],
    "delay_in_seconds": ["tinyint", "bigint", "float", "double", "decimal"],
    "keepalive_timeout_in_seconds": ["tinyint", "bigint", "float", "double", "decimal"],
    "dedupe_key": ["string"],
    "group_key": ["string"],
    "priority": ["string"],
    "retry_strategy": ["string"],
    "payload": ["string"],
    "queue": ["string"],
}


@pytest.fixture
def mail(connection: StoreConnection) -> StoreConnection:
    connect.opened(connection).queues.create("mail", QueueSettings(shards=1))
    return connection


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        try:
            yield
        finally:
            patch.undo()
            time.tzset()


def batch_of(**columns: Any) -> pa.RecordBatch:
    """Return two rows: the one with the columns that are given, and a good one."""
    made: dict[str, Any] = {}
    for name, column in {"payload": pa.array(["1"]), **columns}.items():
        good = {"payload": "2", "n": None, "queue": "mail"}.get(name)
        made[name] = pa.concat_arrays([column, pa.array([good], column.type)])
    made["m"] = pa.array(["first", "second"])
    return pa.RecordBatch.from_pydict(made)


def enqueue(mail: StoreConnection, batch: pa.RecordBatch, queue: str | None) -> EnqueueSummary:
    known = tuple(name for name in ("m", "n") if name in batch.schema.names)
    sending = Sending(mail, Identity(id_from=known), queue)
    return enqueued(sending, rows_in([batch]))


def ids(mail: StoreConnection) -> set[str]:
    entries = connect.store(mail).entries(Place("mail", State.ENQUEUED, 0), limit=1000).entries
    return {entry.task_id for entry in entries}


QUICK: Final = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.gate
def test_any_value_in_id_from_is_a_bad_row_or_the_same_id_in_every_time_zone(
    mail: StoreConnection, kind: str
) -> None:
    @QUICK
    @given(TYPES[kind])
    def any_value(value: pa.Array) -> None:
        batch = batch_of(n=value)
        with time_zone("Asia/Kolkata"):
            first = enqueue(mail, batch, "mail")
        there = ids(mail)
        with time_zone("America/Los_Angeles"):
            again = enqueue(mail, batch, "mail")

        assert first.counts.total() == again.counts.total() == 2
        assert first.bad == again.bad
        assert all(reason.count("n ") for reason in first.bad)
        assert again.counts["created"] == 0
        assert ids(mail) == there

    any_value()


@pytest.mark.parametrize(
    ("column", "kind"), [(column, kind) for column, kinds in COLUMNS.items() for kind in kinds]
)
def test_any_value_of_a_column_makes_a_task_or_a_bad_row_and_spares_the_others(
    mail: StoreConnection, column: str, kind: str
) -> None:
    @QUICK
    @given(TYPES[kind])
    def any_value(value: pa.Array) -> None:
        batch = batch_of(**{column: value})

        summary = enqueue(mail, batch, None if column == "queue" else "mail")

        assert summary.counts.total() == 2
        assert summary.counts["bad"] <= 1
        assert summary.counts["bad"] == len(summary.bad)

    any_value()


def test_rows_of_spark_itself_have_the_ids_that_their_arrow_batches_have() -> None:
    """Spark 4.0 gives a stream's sink rows, in whose timestamps the zone is not said."""
    at = datetime(2030, 5, 1, 12, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "at": pa.array([at], pa.timestamp("us", "UTC")),
            "wall": pa.array([at.replace(tzinfo=None)], pa.timestamp("us")),
            "bytes": pa.array([b"a"]),
        }
    )
    identity = Identity(id_from=("at", "wall", "bytes"))
    with time_zone("America/Los_Angeles"):
        local = at.astimezone().replace(tzinfo=None)
        row = Row(at=local, wall=at.replace(tzinfo=None), bytes=bytearray(b"a"))
        by_row, by_batch = (
            identity.of(next(rows_in([given], {"wall"})), "mail") for given in (row, batch)
        )

    assert by_row == by_batch
