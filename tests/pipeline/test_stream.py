"""The stream of the format ``headrace``: a batch that comes again has the rows that it had."""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.lease import lapse
from headrace.ops.shared.leases import find_group
from headrace.spark import register
from headrace.spark.sources.claims import KIND
from headrace.spark.sources.connect import store
from headrace.spark.sources.leasing import SCHEMA
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.rows import SettlingRow
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import settle
from headrace.spark.sources.stream import QueueStream
from infra import PROJECT_ROOT
from tests.pipeline.harness import AT_ONCE, PipelineHarness, drained
from tests.waiting import until

Row = dict[str, Any]
GUIDE = (PROJECT_ROOT / "docs" / "how-to" / "spark-jobs.md").read_text()


class Streams:
    """Streams over one checkpoint: to start another is as if the one before had been killed."""

    def __init__(self, harness: PipelineHarness, **options: str) -> None:
        self.options = {"queue": "in", **options, **harness.connection.options()}
        self.running: list[QueueStream] = []

    def start(self) -> QueueStream:
        stream = QueueStream(QueueReading.of(self.options, stream=True))
        self.running.append(stream)
        return stream

    def stop(self) -> None:
        for stream in self.running:
            stream.stop()


@pytest.fixture
def filled(harness: PipelineHarness) -> PipelineHarness:
    """Give the queues `in`, with thirty tasks, and `out`."""
    harness.queue("in", retry=AT_ONCE)
    harness.queue("out")
    harness.fill("in", 30)
    return harness


@pytest.fixture
def streams(filled: PipelineHarness) -> Iterator[Streams]:
    made = Streams(filled)
    yield made
    made.stop()


def read(stream: QueueStream, start: Row, end: Row) -> list[Row]:
    shares = stream.partitions(start, end)
    return [row for share in shares for batch in stream.read(share) for row in batch.to_pylist()]


def succeed(harness: PipelineHarness, rows: list[Row]) -> Counter[str]:
    target = SettleTarget(harness.connection, "in")
    return settle(target, [SettlingRow(row["id"], row["lease"], "succeed") for row in rows]).counts


def claims(harness: PipelineHarness) -> int:
    return len(store(harness.connection).records(KIND, limit=250)[0])


@pytest.mark.gate
def test_a_batch_comes_again_as_it_was_though_some_of_it_was_settled_moved_or_deleted(
    filled: PipelineHarness, streams: Streams
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    first = read(stream, start, end)
    succeed(filled, first[:5])
    moved = SettlingRow(first[5]["id"], first[5]["lease"], "move", "out", '{"other":1}')
    settle(SettleTarget(filled.connection, "in"), [moved])
    filled.uses.tasks.delete(first[0]["id"])
    filled.fill("in", 10, start=30)

    again = read(streams.start(), start, json.loads(json.dumps(end)))

    assert again == first
    assert len(first) == 30


def test_a_lease_that_lapsed_before_its_batch_ended_is_counted_though_no_heartbeat_noticed(
    filled: PipelineHarness, streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    succeed(filled, read(stream, start, end))
    filled.fill("in", 10, start=30)
    tables = store(filled.connection)
    group = find_group(tables, end["group"])
    assert group
    tables.patch(lapse(group, now=datetime.now(UTC)))

    later = stream.latestOffset(end)

    assert "lapses" not in end
    assert later["lapses"] == 1
    assert caplog.text.count("has ended") == 1


def test_the_progress_of_a_stream_has_the_backlog_and_the_age_of_the_oldest_ready_task(
    filled: PipelineHarness, streams: Streams
) -> None:
    stream = streams.start()
    end = stream.latestOffset(stream.initialOffset())
    before = stream.reportLatestOffset()
    succeed(filled, read(stream, stream.initialOffset(), end))
    time.sleep(0.1)
    stream.latestOffset(end)
    after = stream.reportLatestOffset()

    assert before is not None
    assert after is not None
    assert before["backlog"] == 30
    assert 0 < before["oldest_ready_seconds"] < 60
    assert (after["backlog"], after["oldest_ready_seconds"]) == (0, 0)


def test_a_batch_that_is_committed_leaves_nothing_behind(
    filled: PipelineHarness, streams: Streams
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    succeed(filled, read(stream, start, end))
    there = claims(filled)

    assert stream.latestOffset(end) == {**end}
    assert (there > 0, claims(filled)) == (True, 0)
    assert filled.states("in") == {"SUCCEEDED": 30}


def test_a_sink_that_settles_nothing_costs_no_attempt_and_a_warning_says_what_to_do(
    filled: PipelineHarness, streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    read(stream, start, end)

    with caplog.at_level(logging.WARNING, "headrace.spark"):
        assert stream.latestOffset(end) == end  # nothing is due for a minute

    assert filled.states("in") == {"ENQUEUED": 30}
    assert {(task.attempts, len(task.errors)) for task in filled.tasks("in")} == {(0, 0)}
    assert "say on_commit=succeed or on_commit=move:QUEUE" in caplog.text


def test_a_wrong_on_commit_is_refused_for_a_batch_and_for_a_queue_that_is_missing(
    filled: PipelineHarness,
) -> None:
    given = {"queue": "in", "on_commit": "move:nowhere", **filled.connection.options()}

    for wrong in ("done", "move:a b"):
        with pytest.raises(InvalidRequest, match="option on_commit "):
            QueueReading.of({"queue": "in", "on_commit": wrong}, stream=True)

    with pytest.raises(InvalidRequest, match="on_commit has a meaning only for a stream"):
        QueueReading.of(given)
    with pytest.raises(NotFound, match=r"option on_commit: .*nowhere"):
        QueueReading.of(given, stream=True).check(SCHEMA)


def test_another_schema_is_refused_before_anything_is_leased(filled: PipelineHarness) -> None:
    reading = QueueReading.of({"queue": "in", **filled.connection.options()})

    with pytest.raises(InvalidRequest, match="leave out the schema"):
        reading.check("id string, payload string")

    assert filled.states("in") == {"ENQUEUED": 30}


@pytest.mark.parametrize(
    ("limit", "rows"), [(None, 10), (SimpleNamespace(max_rows=7), 7), (SimpleNamespace(), 30)]
)
def test_a_batch_has_as_many_rows_as_spark_admits(
    filled: PipelineHarness, streams: Streams, limit: object, rows: int
) -> None:
    streams.options["max_rows"] = "10"
    stream = streams.start()
    start = stream.initialOffset()

    end = stream.latestOffset(start, limit)

    assert sum(end["rows"]) == rows
    assert len(read(stream, start, end)) == rows


@pytest.mark.slow
def test_what_a_query_drops_goes_back_though_its_next_trigger_is_an_hour_away(
    spark: SparkSession, filled: PipelineHarness, tmp_path: Path
) -> None:
    register(spark)
    options = {"queue": "in", **filled.connection.options()}
    tasks = spark.readStream.format("headrace").options(**options).load()
    some = tasks.where("get_json_object(payload, '$.n') < 11")
    writing = some.writeStream.format("headrace").options(**options)
    query = (
        writing.option("checkpointLocation", str(tmp_path / "c"))
        .trigger(processingTime="1 hour")
        .start()
    )

    until(lambda: filled.states("in") == {"SUCCEEDED": 11, "ENQUEUED": 19}, 240, every=0.2)
    query.stop()


@pytest.mark.versions
def test_a_stream_into_parquet_as_the_guide_has_it_does_each_task_once(
    spark: SparkSession, filled: PipelineHarness, tmp_path: Path
) -> None:
    register(spark)
    filled.queue("air.clean", retry=AT_ONCE)
    filled.fill("air.clean", 30)
    options = {"queue": "air.clean", "max_rows": "16", **filled.connection.options()}
    shown = re.search(r"^tasks = spark.readStream.*?^query = .*?$", GUIDE, re.DOTALL | re.MULTILINE)
    assert shown
    code = shown[0].replace('queue="air.clean"', "**options").replace('"lake/', f'"{tmp_path}/')

    def started() -> StreamingQuery:
        names: dict[str, Any] = {"spark": spark, "options": options}
        exec(code, names)  # noqa: S102 (what the guide shows)
        query: StreamingQuery = names["query"]
        return query

    for _ in range(1 if spark.version >= "4.2" else 2):  # before, a trigger is one batch
        assert drained(started) is None

    written = [row["id"] for row in spark.read.parquet(str(tmp_path / "air")).collect()]
    assert sorted(written) == sorted(task.id for task in filled.tasks("air.clean"))
    if spark.version >= "4.2":
        assert filled.states("air.clean") == {"SUCCEEDED": 30}


@pytest.mark.versions
@pytest.mark.gate
def test_a_micro_batch_that_failed_has_its_rows_again(
    spark: SparkSession, filled: PipelineHarness, tmp_path: Path
) -> None:
    register(spark)
    seen: dict[int, list[list[Row]]] = {}

    def each(frame: DataFrame, number: int) -> None:
        rows = [row.asDict() for row in frame.orderBy("id").collect()]
        seen.setdefault(number, []).append(rows)
        if len(seen[number]) == 1:
            succeed(filled, rows[::2])
            raise ValueError("killed")

    for _ in range(2):
        tasks = spark.readStream.format("headrace")
        tasks = tasks.options(queue="in", max_rows="20", **filled.connection.options())
        writing = tasks.load().writeStream.foreachBatch(each).trigger(availableNow=True)
        drained(writing.option("checkpointLocation", str(tmp_path / "c")).start)

    first, again = seen[0]
    assert first
    assert first == again
