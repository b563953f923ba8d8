"""Writes of the format ``headrace``: refused before they begin, and telling what went amiss."""

import logging

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.domain.errors import NotFound
from headrace.spark import register
from headrace.spark.sources.leasing import Intake, leased
from headrace.spark.sources.queue import QueueSource
from headrace.spark.sources.rows import SettlingRow, rows_of
from tests.pipeline.harness import AT_ONCE, PipelineHarness

COLUMNS = StructType().add("id", "string").add("lease", "string")


def taken(harness: PipelineHarness, number: int) -> list[SettlingRow]:
    """Lease so many tasks of the queue `in`, which is made for it."""
    harness.queue("in", shards=1, retry=AT_ONCE)
    harness.queue("out", shards=1)
    harness.fill("in", number)
    group = harness.uses.leases.open(None, keepalive=60)
    return list(
        rows_of(leased(Intake(harness.connection, "in", group.id, "tester", number), 0), "")
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": "nope"}, "headrace: option to: there is no queue nope"),
        ({"queue": "gone"}, "headrace: option queue: there is no queue gone"),
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


@pytest.mark.versions
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

    assert "queue other, about so many were not settled as their rows say: 9 lost" in elsewhere
    assert warned.endswith(
        "of the tasks of queue in, about so many were not settled as their rows say:"
        " 1 dead (such as: action must be one of move, succeed, fail, retry, release, spawn, not"
        " 'explode'); 2 retried (such as: to_queue: there is no queue nowhere)"
    )
    assert written("in") == [warned]


def test_a_commit_of_rows_that_settle_their_tasks_says_nothing(
    harness: PipelineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    held = taken(harness, 4)
    options = {"queue": "in", "to": "out", **harness.connection.options()}
    writer = QueueSource(options).streamWriter(COLUMNS, overwrite=False)
    rows_ = [
        SparkRow(id=row.id, lease=row.lease, action=action)
        for row, action in zip(held, ["move", "retry", "fail", "release"], strict=True)
    ]

    with caplog.at_level(logging.WARNING, "headrace.spark"):
        writer.commit([writer.write(iter(rows_)), None], 0)

    assert caplog.records == []
