"""The stream of the format ``headrace``: a batch that comes again has the rows that it had.

Long, because each moment at which a stream may end is a test of its own.
"""

import json
import logging
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.lease import lapse
from headrace.domain.task import State
from headrace.spark import register
from headrace.spark.sources import committed
from headrace.spark.sources.claims import KIND
from headrace.spark.sources.connect import StoreConnection, store
from headrace.spark.sources.ending import Ending, OnCommit
from headrace.spark.sources.leasing import FRAME
from headrace.spark.sources.outlet import Outlet
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.rows import SettlingRow
from headrace.spark.sources.settling import settle
from headrace.spark.sources.stream import QueueStream
from infra import PROJECT_ROOT
from tests.functional.workers.proxy import Proxy
from tests.pipeline.harness import AT_ONCE, PipelineHarness, drained

Row = dict[str, Any]
GUIDE = (PROJECT_ROOT / "docs" / "guide" / "stations.md").read_text()


class Streams:
    """Streams over one checkpoint, one after the other; each may be killed at any time."""

    def __init__(self, harness: PipelineHarness, **options: str) -> None:
        self.options = {"queue": "in", **options, **harness.connection.options()}
        self.running: list[QueueStream] = []

    def start(self) -> QueueStream:
        stream = QueueStream(QueueReading.of(self.options, stream=True))
        self.running.append(stream)
        return stream

    def kill(self) -> None:
        for stream in self.running:
            for group in list(stream._beats):  # noqa: SLF001 (a process that is gone extends nothing)
                stream._rest(group)  # noqa: SLF001
        self.running.clear()


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
    made.kill()


def read(stream: QueueStream, start: Row, end: Row, *, most: int = 1000) -> list[Row]:
    rows: list[Row] = []
    for share in stream.partitions(start, end):
        for batch in stream.read(share):
            rows += batch.to_pylist()
            if len(rows) >= most:
                return rows
    return rows


def succeed(harness: PipelineHarness, rows: list[Row]) -> Counter[str]:
    outlet = Outlet(harness.connection, "in")
    return settle(outlet, [SettlingRow(row["id"], row["lease"], "succeed") for row in rows]).counts


def claims(harness: PipelineHarness) -> int:
    return len(store(harness.connection).records(KIND, limit=250)[0])


def test_a_batch_comes_again_as_it_was_though_some_of_it_was_settled_moved_or_deleted(
    filled: PipelineHarness, streams: Streams
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    first = read(stream, start, end)
    succeed(filled, first[:5])
    moved = SettlingRow(first[5]["id"], first[5]["lease"], "move", "out", '{"other":1}')
    settle(Outlet(filled.connection, "in"), [moved])
    filled.uses.tasks.delete(first[0]["id"])
    streams.kill()
    filled.fill("in", 10, start=30)

    again = read(streams.start(), start, json.loads(json.dumps(end)))

    assert again == first
    assert len(first) == 30
    assert not any(row["lapsed"] for row in again)


def test_a_lease_that_lapsed_before_its_batch_ended_is_counted_though_no_heartbeat_noticed(
    filled: PipelineHarness, streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    succeed(filled, read(stream, start, end))
    filled.fill("in", 10, start=30)
    tables = store(filled.connection)
    group = tables.group(end["group"])
    assert group
    tables.change_group(lapse(group, now=datetime.now(UTC)))

    later = stream.latestOffset(end)

    assert "lapses" not in end
    assert later["lapses"] == 1
    assert caplog.text.count("has ended") == 1


def test_a_lease_that_lapses_while_its_batch_is_being_ended_is_counted(
    filled: PipelineHarness, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.options["on_commit"] = "succeed"
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    read(stream, start, end)
    filled.fill("in", 10, start=30)
    (beat,) = stream._beats.values()  # noqa: SLF001 (a heartbeat that is due just then)
    settle_all = Ending._settle  # noqa: SLF001 (tables that take long)

    def slow(self: Ending, what: OnCommit, group_id: str) -> None:
        settle_all(self, what, group_id)
        tables = store(filled.connection)
        group = tables.group(group_id)
        assert group
        tables.change_group(lapse(group, now=datetime.now(UTC)))
        assert beat.step() is None

    monkeypatch.setattr(Ending, "_settle", slow)

    assert stream.latestOffset(end)["lapses"] == 1


def test_a_heartbeat_that_finds_its_batch_closed_by_its_commit_counts_no_lapse(
    filled: PipelineHarness,
    streams: Streams,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    succeed(filled, read(stream, start, end))
    filled.fill("in", 10, start=30)
    (beat,) = stream._beats.values()  # noqa: SLF001 (a heartbeat that is due just then)
    ran = []
    forget = Ending.forget

    def closed(self: Ending, group_id: str) -> None:
        forget(self, group_id)
        ran.append(beat.step())

    monkeypatch.setattr(Ending, "forget", closed)

    later = stream.latestOffset(end)

    assert ran == [None]  # it found the lease lost, and ended
    assert later != end
    assert "lapses" not in later
    assert "has ended" not in caplog.text


def test_what_lapsed_meanwhile_is_marked_in_its_old_batch_and_comes_again_in_a_later_one(
    filled: PipelineHarness, streams: Streams
) -> None:
    streams.options["lease_seconds"] = "1"
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    first = read(stream, start, end)
    succeed(filled, first[:12])
    streams.kill()
    time.sleep(1.1)

    restarted = streams.start()
    again = read(restarted, start, end)
    later = restarted.latestOffset(end)
    rest = read(restarted, end, later)

    assert [{**row, "lapsed": False} for row in again] == first
    lapsed = {row["id"] for row in again if row["lapsed"]}
    assert lapsed == {row["id"] for row in first[12:]} == {row["id"] for row in rest}
    assert succeed(filled, again[12:]) == Counter(lost=18)
    assert succeed(filled, rest) == Counter(succeeded=18)


def test_fifty_kills_change_no_row_of_a_batch(filled: PipelineHarness, streams: Streams) -> None:
    """A stream is killed 50 times, at any point of its batch, by a sink that settles as it goes."""
    chance = random.Random(7)
    filled.fill("in", 370, start=30)
    streams.options["max_rows"] = "16"
    start: Row = {"epoch": 0}
    seen: dict[str, list[str]] = {}
    kills = 0
    while kills < 50 or "ENQUEUED" in filled.states("in"):
        stream = streams.start()
        end = stream.latestOffset(start)
        if end == start:
            break
        known: list[Row] | None = None
        while True:
            die = kills < 50 and chance.random() < 0.75
            some = read(stream, start, end, most=chance.choice([1, 20, 1000]) if die else 1000)
            if known is not None:
                shorter = min(len(known), len(some))
                assert some[:shorter] == known[:shorter]
            known = some if known is None or len(some) > len(known) else known
            succeed(filled, chance.sample(some, chance.randint(0, len(some))) if die else some)
            if not die:
                break
            kills += 1
            streams.kill()
            stream = streams.start()
            assert not stream.partitions(end, end)  # which is all that Spark says at a restart
        seen[end["group"]] = [row["id"] for row in known]
        start = end
        streams.kill()

    assert kills == 50
    assert filled.states("in") == {"SUCCEEDED": 400}
    every = [id_ for ids in seen.values() for id_ in ids]
    assert len(every) == len(set(every)) == 400
    assert {task.attempts for task in filled.tasks("in")} == {1}


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


def test_the_offset_that_spark_names_at_a_restart_is_no_commit(
    filled: PipelineHarness, streams: Streams
) -> None:
    """Spark asks for the partitions from the last offset it has written to that very offset."""
    streams.options["on_commit"] = "succeed"
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    first = read(stream, start, end)
    streams.kill()
    restarted = streams.start()

    none = restarted.partitions(end, end)
    again = read(restarted, start, end)
    held = filled.states("in")
    later = restarted.latestOffset()  # before Spark 4.2 nobody says where the stream stands

    assert (list(none), again, held) == ([], first, {"INFLIGHT": 30})
    assert later == end
    assert filled.states("in") == {"SUCCEEDED": 30}


@pytest.mark.parametrize(
    ("option", "queue", "state"),
    [("succeed", "in", State.SUCCEEDED), ("move:out", "out", State.ENQUEUED)],
)
def test_any_sink_will_do_where_a_committed_batch_is_settled_by_its_source(
    filled: PipelineHarness, streams: Streams, option: str, queue: str, state: State
) -> None:
    streams.options["on_commit"] = option
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    written = read(stream, start, end)
    held = filled.states("in")

    stream.latestOffset(end)

    assert (len(written), held) == (30, {"INFLIGHT": 30})
    assert filled.states(queue) == {str(state): 30}


def test_a_batch_that_was_committed_before_a_kill_is_settled_by_whoever_comes_next(
    filled: PipelineHarness, streams: Streams
) -> None:
    streams.options["on_commit"] = "succeed"
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    read(stream, start, end)
    stream.stop()  # the batch may be committed or not: nothing goes back

    streams.start().latestOffset(end)

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


def test_a_sink_that_settles_is_remembered_by_the_offset(
    filled: PipelineHarness, streams: Streams
) -> None:
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    rows = read(stream, start, end)
    succeed(filled, rows[:10])
    after = stream.latestOffset(end)  # of the twenty that were dropped some are due at once
    streams.kill()
    restarted = streams.start()
    dropped = read(restarted, end, after)

    restarted.latestOffset(after)

    assert after["settles"]
    assert {row["attempts"] for row in dropped} == {2}
    assert {task.attempts for task in filled.tasks("in") if task.state is State.ENQUEUED} == {2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("done", "must be succeed, move:QUEUE or none, not 'done'"),
        ("move", "must be succeed, move:QUEUE or none, not 'move'"),
        ("move:a b", "names a queue that must be"),
    ],
)
def test_a_wrong_on_commit_is_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match="option on_commit ") as refused:
        QueueReading.of({"queue": "in", "on_commit": text}, stream=True)

    assert problem in str(refused.value)


def test_on_commit_is_refused_for_a_batch_and_for_a_queue_that_is_missing(
    filled: PipelineHarness,
) -> None:
    given = {"queue": "in", "on_commit": "move:nowhere", **filled.connection.options()}

    with pytest.raises(InvalidRequest, match="on_commit has a meaning only for a stream"):
        QueueReading.of(given)
    with pytest.raises(NotFound, match=r"option on_commit: .*nowhere"):
        QueueReading.of(given, stream=True).check(FRAME)


def test_another_schema_is_refused_before_anything_is_leased(filled: PipelineHarness) -> None:
    reading = QueueReading.of({"queue": "in", **filled.connection.options()})

    with pytest.raises(InvalidRequest, match="leave out the schema"):
        reading.check("id string, payload string")

    assert filled.states("in") == {"ENQUEUED": 30}


def test_a_batch_whose_commit_is_told_ends_long_before_the_next_one_is_planned(
    filled: PipelineHarness, streams: Streams
) -> None:
    streams.options["on_commit"] = "succeed"
    stream = streams.start()
    start, end = stream.initialOffset(), stream.latestOffset(stream.initialOffset())
    read(stream, start, end)

    committed.mark(str(committed.group_of_offset(json.dumps(end))))

    deadline = time.monotonic() + 20
    while "INFLIGHT" in filled.states("in") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert filled.states("in") == {"SUCCEEDED": 30}
    stream.stop()


def test_the_backlog_is_told_as_of_the_last_look(filled: PipelineHarness, streams: Streams) -> None:
    streams.options["max_rows"] = "10"
    stream = streams.start()
    start = stream.initialOffset()
    before = stream.reportLatestOffset()
    end = stream.latestOffset(start)
    told = stream.reportLatestOffset()
    succeed(filled, read(stream, start, end))
    stream.latestOffset(end)
    later = stream.reportLatestOffset()

    assert before is None
    assert told == {"epoch": end["epoch"], "backlog": 30}
    assert later is not None
    assert later["backlog"] == 20


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


def test_a_batch_of_an_earlier_version_is_read_with_its_offset(
    filled: PipelineHarness, streams: Streams
) -> None:
    stream = streams.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start)

    rows = read(stream, start, {**end, "rows": 12})

    assert len(rows) <= 12


@pytest.mark.parametrize("text", [None, "", "7", "{", '{"epoch": 7}', '{"group": "a"}'])
def test_offsets_of_other_sources_are_not_ours(text: str | None) -> None:
    assert committed.group_of_offset(text) is None


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

    deadline = time.monotonic() + 240
    while "SUCCEEDED" not in filled.states("in") or "INFLIGHT" in filled.states("in"):
        assert time.monotonic() < deadline, filled.states("in")
        time.sleep(0.2)

    assert filled.states("in") == {"SUCCEEDED": 11, "ENQUEUED": 19}
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


@pytest.mark.slow
def test_a_stream_survives_tables_that_are_away_for_longer_than_its_lease(
    dynamodb_tables: StoreConnection,
) -> None:
    proxy = Proxy(urlsplit(str(dynamodb_tables.dynamodb_url)).port or 0)
    threading.Thread(target=proxy.serve, daemon=True).start()
    harness = PipelineHarness(dynamodb_tables)
    harness.queue("in", shards=1, retry=AT_ONCE)
    harness.fill("in", 300)
    through = PipelineHarness(replace(dynamodb_tables, dynamodb_url=proxy.url))
    streams = Streams(through, lease_seconds="3", rate="100")
    stream = streams.start()
    start = stream.initialOffset()
    end = stream.latestOffset(start)
    rows: list[Row] = []
    (share,) = stream.partitions(start, end)

    def outage() -> None:
        time.sleep(1)
        proxy.cut()
        time.sleep(6)
        proxy.mend()

    away = threading.Thread(target=outage)
    away.start()
    for batch in stream.read(share):
        rows += batch.to_pylist()
    away.join()
    succeed(through, rows)  # whoever is not late by the reaper's clock still may
    later = stream.latestOffset(end)
    while later != end:
        succeed(through, read(stream, end, later))
        end, later = later, stream.latestOffset(later)

    assert 0 < len(rows) < 300
    assert end["lapses"] == 1
    assert harness.states("in") == {"SUCCEEDED": 300}
    assert {task.attempts for task in harness.tasks("in")} <= {1, 2}
    streams.kill()
    proxy.close()
