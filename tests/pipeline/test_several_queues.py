"""The format ``headrace`` over several queues: under one lease, each task settled in its own."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.push import Target
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.spark import Station
from headrace.spark.sources.leasing import SCHEMA, leased
from headrace.spark.sources.reading import QueuePartition, QueueReading
from headrace.spark.sources.stream import QueueStream
from tests.pipeline import transforms
from tests.pipeline.harness import AT_ONCE, PipelineHarness

Row = dict[str, Any]


@pytest.fixture
def several(harness: PipelineHarness) -> PipelineHarness:
    """Give three queues of tenants, one of them empty, one with a target, and another queue."""
    for name, shards, number in (("t-a", 1, 30), ("t-b", 2, 4), ("t-c", 1, 0), ("other", 1, 5)):
        harness.queue(name, shards=shards, retry=AT_ONCE)
        harness.fill(name, number)
    harness.uses.queues.create("t-hooks", QueueSettings(target=Target(url="https://example.com/")))
    return harness


def reading(harness: PipelineHarness, **options: str) -> QueueReading:
    return QueueReading.of({**options, **harness.connection.options()})


def streamed(harness: PipelineHarness, **options: str) -> QueueStream:
    given = {**options, **harness.connection.options()}
    return QueueStream(QueueReading.of(given, stream=True))


def read(shares: Sequence[QueuePartition]) -> list[Row]:
    batches = (batch for share in shares for batch in leased(share.request, share.shard))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("naming", [{"queues": "t-a, t-b"}, {"queue_pattern": "t-?"}])
def test_a_read_of_several_queues_is_under_one_lease_and_has_max_rows(
    several: PipelineHarness, naming: dict[str, str]
) -> None:
    shares = reading(several, max_rows="12", **naming).open()

    rows = read(shares)

    assert len({share.request.group for share in shares}) == 1
    assert len(rows) == 12
    assert {row["queue"] for row in rows} == {"t-a", "t-b"}
    assert rows == read(shares)


def test_a_stream_of_several_queues_settles_them_on_commit_and_reads_those_that_come_later(
    several: PipelineHarness,
) -> None:
    stream = streamed(several, queue_pattern="t-*", on_commit="move:other")
    start = stream.initialOffset()
    end = stream.latestOffset(start)
    first = read(stream.partitions(start, end))
    several.queue("t-new", shards=1)
    several.fill("t-new", 3)
    later = stream.latestOffset(end)
    second = read(stream.partitions(end, later))
    stream.latestOffset(later)
    stream.stop()

    assert end["shards"] == {"t-a": 1, "t-b": 2}
    assert len(first) == 34
    assert [row["queue"] for row in second] == ["t-new"] * 3
    assert several.states("other") == {"ENQUEUED": 5 + 37}
    assert all(not several.states(name) for name in ("t-a", "t-b", "t-new"))


def test_a_station_of_several_queues_settles_each_task_in_its_own(
    spark: SparkSession, several: PipelineHarness
) -> None:
    """Of which some make the transform fail, and are found among those of all queues."""
    naming: dict[str, Any] = {"queues": ["t-b", "t-c"], "to": "other"}
    given: dict[str, Any] = {"drain": True, "connection": several.connection}
    several.fill("t-b", 1, start=113)
    several.fill("t-c", 4, start=10)

    first = Station(**naming, transform=transforms.poisoned).run(spark, **given)
    several.fill("t-b", 1, start=0)
    several.fill("t-c", 2, start=1)
    then = Station(**naming, transform=transforms.by_number).run(spark, **given)

    assert first.counts["dead"] == first.counts["poison"] == 2
    assert then.counts == {"moved": 1, "succeeded": 1, "dead": 1}
    assert several.states("t-b") == {"DEAD": 1}
    assert several.states("t-c") == {"SUCCEEDED": 1, "DEAD": 2}
    assert several.states("other") == {"ENQUEUED": 5 + 8}


def test_a_station_of_several_queues_leaves_strict_ones_and_says_what_its_transform_lacks(
    spark: SparkSession, several: PipelineHarness
) -> None:
    groups = GroupSettings(mode=GroupMode.STRICT)
    several.uses.queues.create("t-s", QueueSettings(groups=groups))
    given: dict[str, Any] = {"drain": True, "connection": several.connection}

    with pytest.raises(InvalidRequest, match="queue_pattern must not be strict"):
        Station(queue_pattern="t-*", transform=transforms.same).run(spark, **given)
    with pytest.raises(NotFound, match="no queue is like x"):
        Station(queue_pattern="x*", transform=transforms.same).run(spark, **given)
    with pytest.raises(InvalidRequest, match="column queue is missing: a transform keeps"):
        Station(queues=["t-a", "t-b"], transform=transforms.unnamed).run(spark, **given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "option queue must be given, or queues or queue_pattern"),
        ({"queue": "a", "queues": "b"}, "option queues has no meaning beside queue"),
        ({"queues": "a,b,a"}, "option queues must not name a queue twice"),
        ({"queue_pattern": "a b*"}, "option queue_pattern must be the name of queues with"),
    ],
)
def test_what_names_no_queues_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        QueueReading.of(given)

    assert text in str(refused.value)


def test_a_queue_that_is_missing_is_told_and_so_is_a_pattern_without_any(
    several: PipelineHarness,
) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        reading(several, queues="t-a,nowhere").open()
    with pytest.raises(NotFound, match="option queue_pattern: no queue is like x\\*"):
        reading(several, queue_pattern="x*").check(SCHEMA)


def test_a_checkpoint_of_one_queue_is_refused_where_several_are_read(
    several: PipelineHarness,
) -> None:
    stream = streamed(several, queue_pattern="t-*")
    end = {"epoch": 7, "group": "lsg_gone", "shards": 1, "rows": 9}

    with pytest.raises(InvalidRequest, match="this checkpoint is of one queue"):
        stream.partitions(stream.initialOffset(), end)
