"""Priorities and Spark: leased by turns, shown by the table, taken from a column."""

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue import PrioritySettings, QueueSettings
from headrace.domain.task import Priority
from headrace.spark.sources.enqueue import Sending, enqueued
from headrace.spark.sources.leasing import Intake, leased
from headrace.spark.sources.newrows import Identity
from tests.pipeline.harness import PipelineHarness

LEVELS = [Priority.LOW, Priority.NORMAL, Priority.HIGH]


@pytest.fixture
def ranked(harness: PipelineHarness) -> PipelineHarness:
    """Give a queue with priorities, and tasks of each, the low ones first."""
    settings = QueueSettings(shards=2, priority=PrioritySettings())
    harness.uses.queues.create("in", settings)
    for level in LEVELS:
        harness.uses.tasks.enqueue("in", [TaskSpec("1", priority=level) for _ in range(20)])
    return harness


def test_a_shard_is_leased_by_turns(ranked: PipelineHarness) -> None:
    group = ranked.uses.leases.open(None, keepalive=60)
    intake = Intake(ranked.connection, "in", group.id, "tester", 1000, shards=2)

    found = [
        [row["priority"] for batch in leased(intake, shard) for row in batch.to_pylist()]
        for shard in range(2)
    ]

    assert sum(map(len, found)) == 60
    for levels in found:
        assert levels == sorted(levels, key=[*reversed(LEVELS)].index)


def test_a_column_says_the_priority(ranked: PipelineHarness) -> None:
    sending = Sending(ranked.connection, Identity(id_from=("n",)), "in")
    rows = [
        {"n": 1, "payload": "1", "priority": "high"},
        {"n": 2, "payload": "1", "priority": None},
        {"n": 3, "payload": "1", "priority": "urgent"},
    ]

    summary = enqueued(sending, rows)

    assert (summary.counts["created"], summary.counts["bad"]) == (2, 1)
    assert "priority must be one of high, normal, low" in summary.bad[0]
    made = [task.priority for task in ranked.tasks("in") if task.id.startswith("row-")]
    assert sorted(made, key=str) == [Priority.HIGH, Priority.NORMAL]
