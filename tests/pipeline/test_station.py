"""Stations: every task takes effect once, whatever its transform, its neighbours and Spark do.

Long, because it is a list of promises, a test for each, and of what settings refuse.
"""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.domain.errors import InvalidRequest
from headrace.domain.ids import shard_of
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.domain.worker import Command
from headrace.spark import Station
from headrace.spark.sources.claims import KIND
from headrace.spark.sources.connect import store
from headrace.spark.stations.figures import Batch, Run
from headrace.spark.stations.jobs import StationFailed
from headrace.spark.stations.station import StationHeartbeat
from tests.pipeline import transforms
from tests.pipeline.harness import AT_ONCE, PipelineHarness


@pytest.fixture
def pipeline(harness: PipelineHarness) -> PipelineHarness:
    """Give the queues `in` and `out`; a failed attempt in `in` may be tried again at once."""
    harness.queue("in", retry=AT_ONCE)
    harness.queue("out")
    return harness


def run(spark: SparkSession, harness: PipelineHarness, transform: Any, **settings: Any) -> Run:
    station = Station(**{"queue": "in", "to": "out", "transform": transform, **settings})
    return station.run(spark, drain=True, connection=harness.connection, on_batch=lambda _: None)


@pytest.mark.versions
@pytest.mark.gate
@pytest.mark.smoke
def test_a_drain_moves_all_that_is_due_batch_by_batch(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    pipeline.fill("in", 100)
    reported: list[Batch] = []
    station = Station(queue="in", to="out", transform=transforms.as_struct, max_rows=60)

    done = station.run(spark, drain=True, connection=pipeline.connection, on_batch=reported.append)

    assert (done.why, done.counts) == ("drained", Counter(moved=100))
    assert sum(batch.tasks for batch in reported) == 100
    assert len(reported) == done.batches >= 2
    assert pipeline.numbers("out") == [n * 10 for n in range(100)]
    moved = pipeline.tasks("out")
    assert {(task.version, task.attempts) for task in moved} == {(3, 0)}
    assert {task.worker for task in moved} == {station.worker}
    assert pipeline.tasks("in") == []


def test_a_task_that_the_transform_drops_is_dead_in_the_end_so_a_drain_ends(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    pipeline.fill("in", 9)

    done = run(spark, pipeline, transforms.without_some)

    assert done.counts == Counter(moved=3, dropped=6 * 4)
    assert pipeline.states("in") == {"DEAD": 6}
    ended = pipeline.tasks("in")[0]
    assert [error.type for error in ended.errors] == ["Dropped"] * 4
    assert ended.dead_reason == "exhausted"


@pytest.mark.versions
def test_a_task_that_makes_the_transform_fail_is_found_and_spares_the_others(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    pipeline.fill("in", 4, start=11)

    done = run(spark, pipeline, transforms.poisoned)

    assert (done.counts["poison"], done.counts["dead"]) == (1, 1)
    assert pipeline.numbers("out") == [11, 12, 14]
    (poison,) = pipeline.tasks("in")
    assert (poison.state, poison.attempts, poison.dead_reason) == (State.DEAD, 1, "rejected")
    assert (poison.errors[0].type, poison.errors[0].message) == (
        "ValueError",
        "13 cannot be worked on",
    )


def counted(transform: Any, calls: list[int]) -> Any:
    """Return *transform*, noting each of its calls: one for each plan that a batch makes."""

    def call(tasks: Any) -> Any:
        calls.append(1)
        return transform(tasks)

    return call


@pytest.mark.gate
def test_many_tasks_that_make_the_transform_fail_are_found_with_few_plans(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    """Each plan takes seconds on a busy machine: to halve five hundred tasks took a hundred."""
    pipeline.fill("in", 500)
    calls: list[int] = []

    done = run(spark, pipeline, counted(transforms.poisoned_often, calls))

    assert (done.counts["poison"], done.batches) == (10, 1)
    assert (pipeline.states("in"), pipeline.states("out")) == ({"DEAD": 10}, {"ENQUEUED": 490})
    assert len(calls) <= 1 + 2  # to look at it, for the batch, and for the search


@pytest.mark.gate
def test_a_transform_that_always_fails_is_given_up_after_a_few_tries(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    pipeline.fill("in", 400)
    calls: list[int] = []

    with pytest.raises(StationFailed, match="more than 20 tasks of one batch: KeyError"):
        run(spark, pipeline, counted(transforms.always_failing, calls))

    assert len(calls) <= 1 + 2
    assert pipeline.states("in") == {"ENQUEUED": 400}
    assert {task.attempts for task in pipeline.tasks("in")} == {0}


@pytest.mark.gate
def test_a_guarded_function_does_with_each_task_what_it_says(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    ids = pipeline.fill("in", 9)
    retried_at_once, dropped = ids[4], ids[6]

    run(spark, pipeline, transforms.by_number)

    assert pipeline.numbers("out") == [7, 100, 107]
    tasks = dict(zip(range(9), pipeline.read(*ids), strict=True))
    assert {n: str(task.state) for n, task in tasks.items()} == {
        0: "ENQUEUED",
        1: "SUCCEEDED",
        2: "DEAD",
        3: "ENQUEUED",
        4: "DEAD",
        5: "DEAD",
        6: "DEAD",
        7: "ENQUEUED",
        8: "ENQUEUED",
    }
    assert (tasks[2].errors[0].type, tasks[5].errors[0].type) == ("Refused", "ZeroDivisionError")
    assert (tasks[3].attempts, tasks[8].attempts) == (1, 0)
    for spent in pipeline.read(retried_at_once, dropped):
        assert (len(spent.errors), spent.dead_reason) == (4, "exhausted")


@pytest.mark.versions
def test_branches_that_are_united_see_the_same_tasks(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    """All tasks are in one shard, slowly leased, so that both branches look at it at a time."""
    names = [name for name in map("task-{}".format, range(200)) if shard_of(name, 2) == 0][:25]
    pipeline.uses.tasks.enqueue("in", [TaskSpec("{}", id=name) for name in names])

    done = run(spark, pipeline, transforms.fan_out, rate=30.0)

    assert done.counts == Counter(succeeded=25, spawned=50)
    assert pipeline.numbers("out") == [1] * 25 + [2] * 25


def test_a_station_of_a_strict_queue_is_refused(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    strict = QueueSettings(groups=GroupSettings(GroupMode.STRICT))
    pipeline.uses.queues.create("line", strict)

    with pytest.raises(InvalidRequest, match="queue must not be strict"):
        run(spark, pipeline, transforms.same, queue="line")


@pytest.mark.versions
def test_a_transform_may_combine_tasks(spark: SparkSession, pipeline: PipelineHarness) -> None:
    pipeline.fill("in", 20)

    done = run(spark, pipeline, transforms.summed)

    assert done.counts == Counter(moved=2, succeeded=18)
    assert pipeline.numbers("out") == [sum(range(0, 20, 2)), sum(range(1, 20, 2))]
    assert not store(pipeline.connection).records(KIND, limit=9)[0]


@pytest.mark.versions
def test_a_worker_process_that_dies_costs_no_task(
    spark: SparkSession, pipeline: PipelineHarness, tmp_path: Path
) -> None:
    pipeline.fill("in", 60)
    mark = tmp_path / "die"
    mark.touch()

    run(spark, pipeline, transforms.dying_once(str(mark)))

    assert not mark.exists()
    assert pipeline.numbers("out") == list(range(60))
    assert {task.version for task in pipeline.tasks("out")} == {3}


@pytest.mark.versions
def test_asked_to_stop_it_gives_back_what_it_cannot_finish_in_time(
    spark: SparkSession, pipeline: PipelineHarness
) -> None:
    pipeline.fill("in", 10)
    stop = threading.Event()
    station = Station(queue="in", to="out", transform=transforms.slow(60), grace_seconds=0.2)

    def stop_once_it_holds_all_it_can() -> None:
        before: dict[str, int] = {}
        while "INFLIGHT" not in before or pipeline.states("in") != before:
            before = pipeline.states("in")
            time.sleep(0.5)  # longer than from one page of what it leases to the next
        stop.set()

    threading.Thread(target=stop_once_it_holds_all_it_can, daemon=True).start()
    done = station.run(spark, connection=pipeline.connection, stop=stop)

    assert done.why == "stopped"
    assert pipeline.states("in") == {"ENQUEUED": 10}
    assert {task.attempts for task in pipeline.tasks("in")} == {0}


def test_operators_see_it_among_the_workers_and_may_quiet_and_stop_it(
    harness: PipelineHarness,
) -> None:
    station = Station(queue="in", transform=transforms.same, name="air")
    stopping = threading.Event()
    heartbeat = StationHeartbeat(station, harness.uses, stopping, ["in"])

    heartbeat.sign()
    (seen,) = harness.uses.workers.list().shown
    harness.uses.workers.ask(station.worker, Command.QUIET)
    heartbeat.sign()
    assert (heartbeat.quiet, stopping.is_set()) == (True, False)
    harness.uses.workers.ask(station.worker, Command.STOP)
    heartbeat.sign()

    assert seen.heartbeat.name.startswith("air@")
    assert seen.heartbeat.queues == ("in",)
    assert stopping.is_set()


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (lambda tasks: tasks.drop("lease"), "column lease is missing"),
        (lambda _: None, "the transform: must return a DataFrame, not NoneType$"),
        (transforms.mistaken, r"^the transform: KeyError: 'nix' \(.*transforms.py, line \d+\)$"),
    ],
)
def test_a_frame_that_settles_nothing_is_refused_before_a_task_is_leased(
    spark: SparkSession, pipeline: PipelineHarness, transform: Any, text: str
) -> None:
    pipeline.fill("in", 1)

    with pytest.raises(InvalidRequest, match=text):
        run(spark, pipeline, transform)

    assert pipeline.tasks("in")[0].version == 1


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"to": "in"}, "to must be another queue than queue"),
        ({"queue": None}, "queue must be given, or queues or queue_pattern"),
        ({"queue": None, "queues": ["a", "b"], "to": "b"}, "to must not be among queues"),
        ({"queue": None, "queue_pattern": "a*", "to": "ab"}, "to must not be like queue_pattern"),
        ({"max_rows": 0}, "max_rows must be a whole number from 1 to 1000000"),
        ({"rate": 0}, "rate must be a number from 0.001"),
        ({"transform": 4}, "transform must be a function of a DataFrame"),
        ({"lease_seconds": "60"}, "lease_seconds must be a number from 1 to 43200, not '60'"),
    ],
)
@pytest.mark.gate
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        Station(**{"queue": "in", "transform": transforms.same, **wrong})
