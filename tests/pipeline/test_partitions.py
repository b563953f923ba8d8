"""The format ``headrace`` in partitions: a read is shared out, and rows of a task come together."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.domain.plan import TaskSpec
from headrace.spark import register
from headrace.spark.sources.leasing import LeaseRequest, leased
from headrace.spark.sources.reading import QueueReading, rooms_by
from tests.pipeline.harness import PipelineHarness


def test_a_read_leases_no_more_than_its_rows_however_many_shards_there_are(
    harness: PipelineHarness,
) -> None:
    harness.queue("in", shards=4)
    harness.fill("in", 100)
    reading = QueueReading.of({"queue": "in", "max_rows": "6", **harness.connection.options()})

    parts = [
        batch.num_rows for share in reading.open() for batch in leased(share.request, share.shard)
    ]

    assert sum(parts) == 6
    assert harness.states("in") == {"ENQUEUED": 94, "INFLIGHT": 6}


@pytest.mark.parametrize(("size", "rows"), [(100, 40), (4_000, 10), (50_000, 2)])
def test_a_read_ends_at_its_bytes_but_leases_a_task_of_each_shard(
    harness: PipelineHarness, size: int, rows: int
) -> None:
    harness.queue("in", shards=2)
    texts = [TaskSpec(json.dumps("x" * (size - 2))) for _ in range(40)]
    harness.uses.tasks.enqueue("in", texts)
    given = {"queue": "in", "max_bytes": "40000", **harness.connection.options()}
    shares = QueueReading.of(given).open()

    sizes = [
        len(payload)
        for share in shares
        for batch in leased(share.request, share.shard)
        for payload in batch.column("payload").to_pylist()
    ]

    assert sizes == [size] * rows
    again = [batch.num_rows for one in shares for batch in leased(one.request, one.shard)]
    assert sum(again) == rows


@given(
    due=st.lists(st.integers(0, 40), min_size=1, max_size=7),
    requested=st.integers(1, 100),
    group=st.text(max_size=3),
)
def test_what_a_shard_lacks_the_others_give_and_no_more_than_was_asked_for(
    due: list[int], requested: int, group: str
) -> None:
    rooms = rooms_by(requested, due, group)

    assert sum(rooms) == requested
    leased = sum(min(pair) for pair in zip(rooms, due, strict=True))
    assert leased == min(requested, sum(due))


def test_children_told_of_apart_from_their_parent_fail_the_write_with_the_way_out(
    spark: SparkSession, harness: PipelineHarness
) -> None:
    register(spark)
    harness.queue("in", shards=1)
    harness.queue("out", shards=1)
    harness.fill("in", 2)
    group = harness.uses.leases.open(None, keepalive=60)
    request = LeaseRequest(harness.connection, "in", group.id, "tester", (2,))
    held = [row for batch in leased(request, 0) for row in batch.to_pylist()]
    ends = [(row["id"], row["lease"], "succeed", None) for row in held]
    children = [(row["id"], row["lease"], "spawn", '{"n":1}') for row in held]
    rows = spark.createDataFrame(
        spark.sparkContext.parallelize([*ends, *children], 2),  # ends in one partition
        "id string, lease string, action string, payload string",
    )
    options = {"queue": "in", "to": "out", **harness.connection.options()}

    with pytest.raises(PySparkException, match=r"2 tasks that spawn .*repartition\(\"id\"\)"):
        rows.write.format("headrace").mode("append").options(**options).save()
