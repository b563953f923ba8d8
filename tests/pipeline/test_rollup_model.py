"""The rollup against plain Python: the lines that it read, and exact percentiles."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.history.tally import bucket_of
from headrace.spark.lake import queue_minutes
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import ATTEMPTS, QUEUE_MINUTES, TASKS
from tests.pipeline.stories import QUEUES, true_history

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


def test_buckets_are_those_of_the_recorder(spark: SparkSession) -> None:
    chance = random.Random(5)
    durations = [-5, 0, 1, 2, 3, *(int(10 ** chance.uniform(0, 13)) for _ in range(5000))]
    frame = spark.createDataFrame([(one,) for one in durations], "micros bigint")
    rows = frame.select("micros", queue_minutes.bucket_of(f.col("micros")).alias("bucket"))

    assert {row.micros: row.bucket for row in rows.collect()} == {
        micros: bucket_of(micros) for micros in durations
    }
