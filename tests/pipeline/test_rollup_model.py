"""The rollup against plain Python: the lines that it read, and exact percentiles."""

import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.history.tally import Histogram, bucket_of
from headrace.spark.lake import queue_minutes
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import ATTEMPTS, QUEUE_MINUTES, TASKS
from tests.pipeline.stories import QUEUES, SECOND, START, Story, true_history, write

DAY_AFTER = date(2026, 11, 23)
LIVE = ("ENQUEUED", "INFLIGHT")


def lines_of(lake: LakeFrames) -> Iterator[dict[str, Any]]:
    for file in lake.files.list("raw/"):
        for line in gzip.decompress(lake.files.get(file.name) or b"").splitlines():
            yield json.loads(line)


def delivered(line: dict[str, Any]) -> bool:
    return line.get("state_from") == "INFLIGHT" and line.get("state_to") != "INFLIGHT"


def left(line: dict[str, Any]) -> bool:
    """Whether the task's life in its queue is over, in other words than the rollup's."""
    if line.get("state_from") not in LIVE:
        return False
    same_queue = line.get("queue_to") == line["queue_from"]
    return not (line.get("state_to") in LIVE and same_queue and line["move"] != "move")


@pytest.mark.parametrize("seed", [1, 2])
def test_any_history_is_rolled_up_as_plain_python_would(lake: LakeFrames, seed: int) -> None:
    service = true_history(lake.files, seed=seed, rounds=30)
    rollup(lake, today=DAY_AFTER)

    minutes = {(row["queue"], row["minute"]): row for row in lake.read(QUEUE_MINUTES).collect()}
    lines = list(lines_of(lake))
    attempts = {(row["task_id"], row["version"]) for row in lake.read(ATTEMPTS).collect()}
    lives = {(row["task_id"], row["version"]) for row in lake.read(TASKS).collect()}

    for queue in QUEUES:
        last = max((place for place in minutes if place[0] == queue), default=None)
        waiting = [one for one in service.store.everything() if one.queue == queue]
        states = Counter(str(task.state) for task in waiting)
        if last is not None:
            levels = (minutes[last]["backlog"], minutes[last]["inflight"])
            assert levels == tuple(states[state] for state in LIVE)
    assert attempts == {(line["task_id"], line["version"]) for line in lines if delivered(line)}
    assert lives == {(line["task_id"], line["version"]) for line in lines if left(line)}


def exact(durations: list[int], share: float) -> float:
    return sorted(durations)[max(1, math.ceil(share * len(durations))) - 1] / SECOND


def test_percentiles_from_the_lake_are_within_two_and_a_half_percent(lake: LakeFrames) -> None:
    chance = random.Random(3)
    story, waits, runs = Story(), [], []
    for number in range(2000):
        waits.append(int(chance.lognormvariate(12, 3)) + 1)
        runs.append(int(chance.lognormvariate(14, 1)) + 1)
        story.now = START + number * SECOND
        due = story.enqueue(f"t{number}")["at"]
        story.now = due + waits[-1]
        story.dequeue(f"t{number}")
        story.now = due + waits[-1] + runs[-1]
        story.report(f"t{number}", "succeed", "SUCCEEDED")
    write(lake.files, sorted(story.lines, key=lambda line: line["recorded_at"]))
    rollup(lake, today=DAY_AFTER)

    wait, run = Histogram(), Histogram()
    for row in lake.read(QUEUE_MINUTES).collect():
        wait.merge(Histogram(row["wait"]))
        run.merge(Histogram(row["run"]))
    for share in (0.5, 0.99):
        assert wait.percentile(share) == pytest.approx(exact(waits, share), rel=0.025)
        assert run.percentile(share) == pytest.approx(exact(runs, share), rel=0.025)


def test_buckets_are_those_of_the_recorder(spark: SparkSession) -> None:
    chance = random.Random(5)
    durations = [-5, 0, 1, 2, 3, *(int(10 ** chance.uniform(0, 13)) for _ in range(5000))]
    frame = spark.createDataFrame([(one,) for one in durations], "micros bigint")
    rows = frame.select("micros", queue_minutes.bucket_of(f.col("micros")).alias("bucket"))

    assert {row.micros: row.bucket for row in rows.collect()} == {
        micros: bucket_of(micros) for micros in durations
    }
