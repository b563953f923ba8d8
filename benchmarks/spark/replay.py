"""A replay into a local service's file: counted before, added, and begun again."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.results import Bar
from benchmarks.spark.figures import Figure, Measured
from benchmarks.spark.rollup import DAY, change_log
from headrace.client.client import Client
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.replay import Replay, looked_at, replayed, selected
from headrace.spark.lake.rollup import rollup
from headrace.spark.sources.connect import FILE_NAME, StoreConnection
from infra.launch import launched

SQL = """
    SELECT task_id, version, concat('{"n": ', version, '}') AS payload, map() AS tags, at
    FROM changes WHERE move = 'enqueue'
"""
_SPEED = 60.0


def measured(spark: SparkSession, folder: str, tasks: int) -> Iterator[Measured]:
    """Measure a dry run and a replay run twice, its time warped; yield what was found."""
    lake = LakeFrames(spark, f"{folder}/replayed")
    change_log(lake, 3 * tasks)
    rollup(lake, today=DAY)
    replay = Replay("again", SQL, queue="again", speed=_SPEED)
    rows = selected(lake, replay)
    begin = time.monotonic()
    found = looked_at(rows, replay)
    yield (
        f"dry run in {time.monotonic() - begin:.1f} s: {found.tasks:,} tasks, "
        f"{found.write_units:,} write units, USD {found.usd:.4f}"
    )
    added = []
    with launched(data_dir=f"{folder}/service") as service:
        with Client(service.url, service.admin_key) as client:
            client.create_queue("again")
        file = StoreConnection.of({"url": Path(folder, "service", FILE_NAME).as_uri()})
        for what in ("a replay", "the same replay once more"):
            begin = time.monotonic()
            done = replayed(rows, replay, found, file, now=datetime.now(UTC))
            yield Figure(what, found.tasks / (time.monotonic() - begin), "tasks/s")
            added.append(done.added)
            assert not done.refused, done.refused
        with Client(service.url, service.admin_key) as client:
            there = client.count_tasks("again").count
    rows.unpersist()
    yield Bar("tasks that a replay adds", added[0], found.tasks, at_most=False)
    yield Bar("tasks that the same replay adds once more", added[1], 0, at_most=True)
    yield Bar("tasks that are there then", there, found.tasks, at_most=True)
