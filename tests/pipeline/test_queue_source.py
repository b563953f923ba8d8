"""The format ``headrace``: leased once and settled once, whoever calls it and how often."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.push import Target
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.spark import register
from headrace.spark.sources import QUEUE, TABLE
from headrace.spark.sources.claims import KIND, GroupClaims
from headrace.spark.sources.connect import (
    RetryingStore,
    StoreConnection,
    clock_by,
    store,
)
from headrace.spark.sources.leasing import (
    ARROW,
    SCHEMA,
    LeaseRequest,
    leased,
    sweep,
)
from headrace.spark.sources.rate_limit import RateLimiter
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.rows import SettlingRow, rows_of
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import settle
from tests.pipeline.harness import AT_ONCE, PipelineHarness, drained


def request(harness: PipelineHarness, *, rows: int = 1000, seconds: float = 60) -> LeaseRequest:
    group = harness.uses.leases.open(None, keepalive=seconds)
    return LeaseRequest(harness.connection, "in", group.id, "tester", (rows, rows))


def rows(batches: list[pa.RecordBatch]) -> list[SettlingRow]:
    return list(rows_of(batches, "move"))


def taken(harness: PipelineHarness, number: int = 1) -> list[SettlingRow]:
    """Lease so many tasks of the queue `in`, which is made for it."""
    harness.queue("in", shards=1, retry=AT_ONCE)
    harness.queue("out", shards=1)
    harness.fill("in", number)
    return rows(list(leased(request(harness), 0)))


@pytest.fixture
def target(harness: PipelineHarness) -> SettleTarget:
    return SettleTarget(harness.connection, "in", "out")


def test_a_read_that_is_repeated_finds_what_it_leased_and_takes_no_more_than_asked(
    harness: PipelineHarness,
) -> None:
    harness.queue("in")
    harness.fill("in", 60)
    requested = request(harness, rows=20)

    first, again = ([*leased(requested, 0), *leased(requested, 1)] for _ in range(2))

    assert sorted(row.id for row in rows(first)) == sorted(row.id for row in rows(again))
    assert len(rows(first)) == 40
    assert {row.lease for row in rows(first)} == {row.lease for row in rows(again)}
    assert harness.states("in") == {"ENQUEUED": 20, "INFLIGHT": 40}


def test_a_read_is_repeated_on_tables_too_and_what_it_had_written_down_is_removed(
    dynamodb_tables: StoreConnection,
) -> None:
    harness = PipelineHarness(dynamodb_tables)
    harness.queue("in", shards=1)
    harness.fill("in", 30)
    requested = request(harness)

    first, again = (rows(list(leased(requested, 0))) for _ in range(2))
    GroupClaims(store(dynamodb_tables), requested.group).forget()

    assert len(first) == 30
    assert first == again
    assert not store(dynamodb_tables).records(KIND, limit=9)[0]


@pytest.mark.gate
def test_speculation_gives_both_copies_the_same_rows_and_spends_no_attempt(
    harness: PipelineHarness,
) -> None:
    harness.queue("in", shards=1)
    harness.queue("out", shards=1)
    harness.fill("in", 140)

    for _ in range(20):
        shared = request(harness, rows=7)
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda copy: rows(list(leased(copy, 0))), [shared, shared])
        settle(SettleTarget(harness.connection, "in", "out"), one)
        assert sorted(row.id for row in one) == sorted(row.id for row in other)
        assert sweep(harness.connection, "in", shared.group) == 0
        harness.uses.leases.close(shared.group)

    left = harness.tasks("in")
    assert len(left) + len(harness.tasks("out")) == 140
    assert {(task.state, task.attempts) for task in left} <= {(State.ENQUEUED, 0)}


@pytest.mark.gate
def test_rows_settle_their_tasks_once_however_often_they_are_written(
    harness: PipelineHarness, target: SettleTarget
) -> None:
    held = taken(harness, 120)

    with ThreadPoolExecutor(3) as pool:
        summaries = list(pool.map(lambda _: settle(target, held), range(3)))

    assert [summary.counts for summary in summaries] == [Counter(moved=120)] * 3
    moved = harness.tasks("out")
    assert {(task.version, task.attempts, len(task.trail)) for task in moved} == {(3, 0, 1)}
    assert len(moved) == 120
    assert harness.tasks("in") == []


def test_a_writer_whose_lease_was_lost_changes_nothing(
    harness: PipelineHarness, target: SettleTarget
) -> None:
    held = taken(harness, 3)
    zombie = settle(target, [replace(row, action="release") for row in held])
    again = rows(list(leased(request(harness), 0)))

    late = settle(target, [replace(row, action="fail", error="too late") for row in held])

    assert (zombie.counts, late.counts) == (Counter(released=3), Counter(lost=3))
    assert late.reasons["lost"]
    assert settle(target, again).counts == Counter(moved=3)


@pytest.mark.parametrize(
    ("row", "outcome", "state"),
    [
        ({"action": "move"}, "moved", State.ENQUEUED),
        ({"action": "move", "payload": '{"n":7}', "delay_seconds": 60.0}, "moved", State.ENQUEUED),
        ({"action": "succeed"}, "succeeded", State.SUCCEEDED),
        ({"action": "fail", "error": "Broken: no value"}, "dead", State.DEAD),
        ({"action": "retry", "error": "no answer"}, "retried", State.ENQUEUED),
        ({"action": "release", "delay_seconds": 5.0}, "released", State.ENQUEUED),
        ({"action": "explode"}, "dead", State.DEAD),
        ({"action": "move", "payload": f'"{"x" * 262_144}"'}, "dead", State.DEAD),
        ({"action": "move", "payload": '"\ud800"'}, "dead", State.DEAD),
        ({"action": "fail", "error": "Broken: \ud800"}, "dead", State.DEAD),
        ({"action": "release", "delay_seconds": -1.0}, "dead", State.DEAD),
        ({"action": "move", "to_queue": "nowhere"}, "retried", State.ENQUEUED),
    ],
)
@pytest.mark.gate
def test_the_action_of_a_row_says_what_becomes_of_its_task(
    harness: PipelineHarness, target: SettleTarget, row: dict[str, Any], outcome: str, state: State
) -> None:
    held = taken(harness)[0]

    summary = settle(target, [replace(held, **row)])

    task = harness.read(held.id)[0]
    assert (summary.counts, task.state) == (Counter({outcome: 1}), state)
    if outcome == "dead":
        assert (task.dead_reason, task.attempts) == ("rejected", 1)
        assert task.errors[-1].type == ("Broken" if row["action"] == "fail" else "BadRow")
    if row.get("payload") == '{"n":7}':
        assert task.payload == '{"n":7}'
        assert task.due_at - task.enqueued_at == timedelta(seconds=60)


def test_spawned_tasks_come_with_what_settles_their_parent_and_only_once(
    harness: PipelineHarness, target: SettleTarget
) -> None:
    held = taken(harness, 2)
    family = [
        replace(parent, action=action, payload=json.dumps({"n": n}), to_queue=queue)
        for parent in held
        for n, (action, queue) in enumerate([("spawn", None), ("succeed", None), ("spawn", "in")])
    ]

    summaries = [settle(target, family) for _ in range(2)]

    assert [summary.counts for summary in summaries] == [Counter(succeeded=2, spawned=4)] * 2
    assert (harness.numbers("out"), harness.numbers("in")[-2:]) == ([0, 0], [2, 2])
    assert harness.states("in") == {"SUCCEEDED": 2, "ENQUEUED": 2}


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        (["move", "succeed"], "by one row, not by 2"),
        (["spawn", "retry"], "must succeed or be moved, not retry"),
        (["spawn"] * (limits.SPAWN + 1), f"at most {limits.SPAWN} others"),
    ],
)
def test_rows_that_contradict_each_other_end_their_task_and_spare_the_others(
    harness: PipelineHarness, target: SettleTarget, actions: list[str], text: str
) -> None:
    wrong, right = taken(harness, 2)

    settle(target, [*(replace(wrong, action=one, payload="1") for one in actions), right])

    ended, moved = harness.read(wrong.id, right.id)
    assert (ended.state, moved.queue) == (State.DEAD, "out")
    assert text in ended.errors[0].message
    assert harness.states("out") == {"ENQUEUED": 1}


def test_a_queue_with_a_target_is_refused_before_a_job_begins(harness: PipelineHarness) -> None:
    hooks = QueueSettings(target=Target(url="https://example.com/tasks"))
    harness.uses.queues.create("hooks", hooks)
    reading = QueueReading.of({"queue": "hooks", **harness.connection.options()})

    with pytest.raises(InvalidRequest, match="queue hooks has a target"):
        reading.open()


def test_what_nobody_settled_counts_an_attempt_when_its_group_is_swept(
    harness: PipelineHarness,
) -> None:
    harness.queue("in")
    harness.fill("in", 5)
    requested = request(harness)
    held = rows([*leased(requested, 0), *leased(requested, 1)])
    settle(SettleTarget(harness.connection, "in"), [replace(held[0], action="succeed")])

    assert sweep(harness.connection, "in", requested.group) == 4
    assert sweep(harness.connection, "in", requested.group) == 0

    waiting = [task for task in harness.tasks("in") if task.state is State.ENQUEUED]
    assert {(task.attempts, task.errors[0].type) for task in waiting} == {(1, "Dropped")}
    assert all(task.due_at > harness.uses.now() for task in waiting)


@pytest.mark.versions
def test_bytes_that_are_no_text_spoil_their_own_row_only(
    harness: PipelineHarness, target: SettleTarget
) -> None:
    held = taken(harness, 3)
    texts = pa.array([b"1", b'"\xff"', b"3"]).view(pa.string())
    columns = {"id": [row.id for row in held], "lease": [row.lease for row in held]}
    batch = pa.RecordBatch.from_pydict({**columns, "payload": texts})

    summary = settle(target, rows([batch]))

    assert summary.counts == Counter(moved=2, dead=1)
    assert harness.read(held[1].id)[0].errors[0].message.startswith("payload must be JSON text")


@pytest.mark.versions
def test_rows_have_the_schema_that_spark_is_told(spark: SparkSession) -> None:
    declared = spark.createDataFrame([], SCHEMA).schema

    # Before Spark 4.2 instants are in UTC without being asked for.
    requested: Any = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )
    assert to_arrow_schema(declared, **requested) == ARROW


@pytest.mark.versions
def test_spark_knows_the_formats_without_being_told_where_the_package_is(
    spark: SparkSession, harness: PipelineHarness
) -> None:
    harness.queue("in")
    untold = spark.newSession()

    for name in (QUEUE, TABLE):
        rows = untold.read.format(name).options(queue="in", **harness.connection.options())
        assert "payload" in rows.load().columns
    register(untold)  # and may be told all the same


def test_a_refusal_shows_its_one_sentence_without_a_traceback(
    spark: SparkSession, harness: PipelineHarness
) -> None:
    register(spark)
    options = {"queue": "mial", **harness.connection.options()}
    rows = spark.createDataFrame([("t", "l")], "id string, lease string")
    stream = spark.readStream.format("headrace").options(**options).load().writeStream

    with pytest.raises(AnalysisException) as read:
        spark.read.format("headrace").options(**options).load().count()
    with pytest.raises(AnalysisException) as written:
        rows.write.format("headrace").mode("append").options(**options).save()
    streamed = drained(stream.format("noop").trigger(availableNow=True).start)

    for error in (read.value, written.value, streamed):
        assert "Traceback" not in str(error)
        first, _, _ = str(error).partition("\n")
        assert first.endswith(
            "headrace.NotFound: headrace: option queue: there is no queue mial."
            " Create it with: headrace queue create mial"
        )


@pytest.mark.versions
@pytest.mark.gate
def test_spark_reads_and_settles_a_queue_by_its_format(
    spark: SparkSession, harness: PipelineHarness
) -> None:
    register(spark)
    harness.queue("in")
    harness.queue("out")
    harness.fill("in", 50)
    options = harness.connection.options()

    tasks = spark.read.format("headrace").options(queue="in", max_rows="40", **options).load()
    even = f.get_json_object("payload", "$.n").cast("int") % 2 == 0
    made = tasks.withColumn("action", f.when(even, "move").otherwise("succeed"))
    for _ in range(2):  # the second time the same tasks
        made.write.format("headrace").mode("append").options(queue="in", to="out", **options).save()

    states = Counter(harness.states("in"))
    given = 40 if spark.version >= "4.1" else 50  # before, each action is planned as another read
    assert states["SUCCEEDED"] + harness.states("out")["ENQUEUED"] == given
    assert states["ENQUEUED"] == 50 - given
    assert all(n % 2 == 0 for n in harness.numbers("out"))


@pytest.mark.versions
@pytest.mark.gate
@pytest.mark.smoke
def test_a_stream_settles_all_that_is_due_and_holds_nothing_when_it_ends(
    spark: SparkSession, harness: PipelineHarness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    register(spark)
    harness.queue("in", retry=AT_ONCE)
    harness.queue("out")
    harness.fill("in", 50)
    options = harness.connection.options()

    tasks = spark.readStream.format("headrace").options(queue="in", max_rows="30", **options).load()
    options = {"checkpointLocation": str(tmp_path_factory.mktemp("c")), "to": "out", **options}
    whole = spark.version >= "4.2"  # before, the trigger takes one micro-batch
    for _ in range(1 if whole else 2):
        writing = (
            tasks.where(f.get_json_object("payload", "$.n") != "13")
            .writeStream.format("headrace")
            .options(queue="in", **options)
            .trigger(availableNow=True)
        )
        assert drained(writing.start) is None

    assert harness.numbers("out") == [n for n in range(50) if n != 13]
    if whole:  # before, nobody tells it that the last batch was whole either
        assert "INFLIGHT" not in harness.states("in")
        assert harness.tasks("in")[0].errors[0].type == "Dropped"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "option queue must be given"),
        ({"queue": "q", "max_rows": "0"}, "max_rows must be a whole number from 1 to 1000000"),
        ({"queue": "q", "rate": "nan"}, "rate must be a number from 0.001 to 1000000"),
        (
            {"queue": "q", "speed": "9"},
            "option speed is no option of headrace; its options are queue, ",
        ),
    ],
)
@pytest.mark.gate
def test_a_wrong_option_is_named_with_its_limit(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        QueueReading.of(given)

    assert text in str(refused.value)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now)


def test_a_pace_is_never_exceeded_not_even_at_the_beginning() -> None:
    clock = Clock()
    limiter = RateLimiter(100.0, now=clock.time, sleep=clock.sleep)

    passed = [limiter.next(500) for _ in range(8)]

    assert sum(passed) / clock.now == pytest.approx(100.0)
    assert passed[0] / 100.0 <= clock.now
    assert RateLimiter(None).next(500) == 500


def test_throttling_is_waited_out_with_growing_random_pauses() -> None:
    waited: list[float] = []

    class Throttled:
        calls = 0

        def count(self, number: int) -> int:
            self.calls += 1
            if self.calls < 5:
                raise Unavailable("throttled")
            return number

    patient = RetryingStore(Throttled(), waited.append, lambda low, high: high)

    assert patient.count(7) == 7
    assert waited == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize(("off", "put_right"), [(5, 0), (-90, -90), (None, 0)])
def test_a_clock_that_is_off_is_put_right_by_that_of_the_tables(
    off: int | None, put_right: int, caplog: pytest.LogCaptureFixture
) -> None:
    ours = datetime(2030, 1, 1, tzinfo=UTC)
    theirs = None if off is None else ours + timedelta(seconds=off)

    clock = clock_by(lambda: theirs, lambda: ours)

    assert clock() - ours == timedelta(seconds=put_right)
    assert bool(caplog.records) == bool(put_right)
