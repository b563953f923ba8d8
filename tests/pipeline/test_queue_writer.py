"""Writes of the format ``headrace``: refused before they begin, and telling what went amiss."""

import logging
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.queue_settings import PrioritySettings, QueueSettings
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.spark import register
from headrace.spark.sources.leasing import LeaseRequest, leased
from headrace.spark.sources.queue import QueueSource
from headrace.spark.sources.rows import SettlingRow, rows_of
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import settle
from tests.pipeline.harness import AT_ONCE, PipelineHarness

COLUMNS = StructType().add("id", "string").add("lease", "string")


def taken(harness: PipelineHarness, number: int) -> list[SettlingRow]:
    """Lease so many tasks of the queue `in`, which is made for it."""
    harness.queue("in", shards=1, retry=AT_ONCE)
    harness.queue("out", shards=1)
    harness.fill("in", number)
    group = harness.uses.leases.open(None, keepalive=60)
    return list(
        rows_of(
            leased(LeaseRequest(harness.connection, "in", group.id, "tester", (number,)), 0), ""
        )
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "nope"}, "headrace: option to: there is no queue nope"),
        (
            {"queue": "gone", "to": "nope"},
            "option queue: there is no queue gone; option to: there is no queue nope",
        ),
    ],
)
def test_a_write_to_a_queue_that_is_missing_is_refused_before_it_begins(
    harness: PipelineHarness, given: dict[str, str], message: str
) -> None:
    harness.queue("in")
    harness.queue("out")
    options = {"queue": "in", "to": "out", **harness.connection.options()}
    QueueSource(options).writer(COLUMNS, overwrite=False)

    wrong = QueueSource({**options, **given})
    with pytest.raises(NotFound, match=message) as refused:
        wrong.writer(COLUMNS, overwrite=False)
    with pytest.raises(NotFound, match=message):
        wrong.streamWriter(COLUMNS, overwrite=False)

    assert {one.field for one in refused.value.errors} == set(given)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("ranked", ("high", None, "ENQUEUED")),
        ("line", (None, "acme", "ENQUEUED")),
        ("out", (None, None, "ENQUEUED")),  # as a task that is moved there
    ],
)
def test_a_child_has_the_priority_and_the_group_of_its_row_where_its_queue_has_any(
    harness: PipelineHarness, to: str, expected: tuple[str | None, str | None, str]
) -> None:
    (row,) = taken(harness, 1)
    for name, settings in (
        ("ranked", QueueSettings(priority=PrioritySettings())),
        ("line", QueueSettings(groups=GroupSettings(GroupMode.STRICT))),
    ):
        harness.uses.queues.create(name, settings)
    child = replace(
        row, action="spawn", to_queue=to, payload="1", priority="high", group_key="acme"
    )

    done = settle(SettleTarget(harness.connection, "in"), [child])

    assert done.counts == {"succeeded": 1, "spawned": 1}
    (made,) = harness.tasks(to)
    assert (made.priority, made.group_key, str(made.state)) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("to queue", "column to queue is no column; say to_queue, or drop it"),
        ("delay_in_seconds", "column delay_in_seconds is no column; say delay_seconds"),
        ("LEASE", "column LEASE and lease are both lease: drop one"),
    ],
)
def test_a_name_that_is_nearly_a_columns_is_refused_and_not_ignored(
    harness: PipelineHarness, name: str, message: str
) -> None:
    harness.queue("in")
    schema = StructType().add("id", "string").add("lease", "string").add(name, "string")
    source = QueueSource({"queue": "in", **harness.connection.options()})

    with pytest.raises(InvalidRequest, match=message):
        source.writer(schema, overwrite=False)


def test_columns_are_found_in_whatever_case(harness: PipelineHarness) -> None:
    held = taken(harness, 2)
    options = {"queue": "in", **harness.connection.options()}
    schema = StructType().add("ID", "string").add("Lease", "string").add("Action", "string")
    batch = pa.RecordBatch.from_pydict(
        {"ID": [held[0].id], "Lease": [held[0].lease], "Action": ["fail"]}
    )
    source = QueueSource(options)

    source.writer(schema, overwrite=False).write(iter([batch]))
    rows_ = iter([SparkRow(ID=held[1].id, Lease=held[1].lease, Action="fail")])
    source.streamWriter(schema, overwrite=False).write(rows_)

    assert harness.states("in") == {"DEAD": 2}


@pytest.mark.versions
@pytest.mark.gate
def test_spark_names_the_option_whose_queue_is_missing_and_settles_nothing(
    spark: SparkSession, harness: PipelineHarness
) -> None:
    register(spark)
    harness.queue("in")
    harness.fill("in", 3)
    options = {"queue": "in", **harness.connection.options()}
    tasks = spark.read.format("headrace").options(**options).load()

    with pytest.raises(AnalysisException, match="option to: there is no queue nope"):
        tasks.write.format("headrace").mode("append").options(to="nope", **options).save()

    assert harness.states("in") == {"ENQUEUED": 3}


@pytest.mark.versions
@pytest.mark.gate
def test_a_commit_warns_once_of_tasks_that_were_not_settled_as_their_rows_say(
    harness: PipelineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    held = taken(harness, 9)
    harness.queue("other")
    options = harness.connection.options()
    actions = ["move", "retry", "fail", "move", "move", "explode", "release", "succeed", "move"]
    queues = [None, None, None, "nowhere", "nowhere", None, None, None, None]
    whole = pa.RecordBatch.from_pydict(
        {
            "id": [row.id for row in held],
            "lease": [row.lease for row in held],
            "action": actions,
            "to_queue": pa.array(queues, pa.string()),
        }
    )

    def written(queue: str) -> list[str]:
        """Write all of it in two partitions; return the warnings of the commit."""
        source = QueueSource({"queue": queue, "to": "out", **options})
        writer = source.writer(COLUMNS, overwrite=False)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "headrace.spark"):
            writer.commit([writer.write(iter([part])) for part in (whole[:5], whole[5:])])
        return [record.getMessage() for record in caplog.records]

    (elsewhere,) = written("other")
    (warned,) = written("in")

    assert "queue other: some tasks were not settled as their rows say, about: 9 lost" in elsewhere
    assert warned.endswith(
        "queue in: some tasks were not settled as their rows say, about:"
        " 1 dead (such as: action must be one of move, succeed, fail, retry, release, spawn, not"
        " 'explode'); 2 retried (such as: to_queue: there is no queue nowhere)"
    )
    (again,) = written("in")
    assert again.endswith("; 2 lost (such as: another report has settled this lease)")


@pytest.mark.parametrize(
    ("policy", "queue", "state", "attempts"),
    [
        ("drop", "in", "ENQUEUED", 1),
        ("dead:out", "out", "ENQUEUED", 0),
        ("fail", "in", "INFLIGHT", 1),
    ],
)
@pytest.mark.gate
def test_the_task_of_a_bad_row_becomes_what_the_option_says(
    harness: PipelineHarness, policy: str, queue: str, state: str, attempts: int
) -> None:
    good, bad = taken(harness, 2)
    options = {"queue": "in", "bad_rows": policy, **harness.connection.options()}
    writer = QueueSource(options).writer(COLUMNS, overwrite=False)
    batch = pa.RecordBatch.from_pydict(
        {
            "id": [good.id, bad.id],
            "lease": [good.lease, bad.lease],
            "action": ["succeed", "explode"],
        }
    )

    told = writer.write(iter([batch]))
    if policy == "fail":
        with pytest.raises(InvalidRequest, match="1 rows cannot be carried out, the others are"):
            writer.commit([told])
    else:
        writer.commit([told])

    done, left = harness.read(good.id, bad.id)
    assert done.state == "SUCCEEDED"
    assert (left.queue, left.state, left.attempts) == (queue, state, attempts)
