"""The local service's own lake: rolled up, proved and replayed, all of it real."""

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.client.client import Client
from headrace.client.sending import Failure, NewTask, Report
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.replay import Replay, looked_at, replayed, selected
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import TASKS
from headrace.spark.sources.connect import FILE_NAME, StoreConnection
from infra.launch import launched

SOON = 30.0  # seconds until a test gives up
NUMBER = 40
SQL = "SELECT task_id, version, payload FROM changes WHERE move = 'enqueue'"


def work(client: Client) -> None:
    """Let a quarter of the tasks fail, the rest succeed; a failed one is dead."""
    for name in ("mail", "again"):
        client.create_queue(name, retry_strategy={"kind": "fixed", "max_retries": 0})
    client.enqueue_many("mail", [NewTask(payload={"n": n, "x": "é"}) for n in range(NUMBER)])
    while tasks := client.dequeue("mail", batch_size=20, worker="w1").tasks:
        ends = [
            Report(task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED")
            if number % 4
            else Report(
                task_id=task.id,
                lease_id=task.lease.id,
                status="FAILED",
                error=Failure("Timeout", f"{task.id}: 30 s"),
            )
            for number, task in enumerate(tasks)
        ]
        client.report("mail", ends)


def until_recorded(file: Path) -> None:
    """Wait until the service's timers have recorded, and dropped, what its file has logged."""
    until = time.monotonic() + SOON
    with closing(sqlite3.connect(file)) as db:
        while db.execute("SELECT count(*) FROM changes").fetchone() != (0,):
            assert time.monotonic() < until


@pytest.mark.slow
def test_what_the_local_service_did_is_rolled_up_proved_and_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = LakeFrames(spark, str(tmp_path / "lake"))
    keep = {"HEADRACE_LAKE_PAYLOADS": "mail"}
    with (
        launched(data_dir=tmp_path, environment=keep) as service,
        Client(service.url, service.admin_key) as client,
    ):
        work(client)
        until_recorded(tmp_path / FILE_NAME)
        rollup(lake, today=datetime.now(UTC).date())
        report = proof(lake)
        replay = Replay("again-1", SQL, queue="again")
        rows = selected(lake, replay)
        file = StoreConnection.of({"url": (tmp_path / FILE_NAME).as_uri()})
        selection = looked_at(rows, replay, file)
        first, second = (
            replayed(rows, replay, selection, file, now=datetime.now(UTC)) for _ in range(2)
        )

    assert (report.tasks, report.changes, report.violations) == (NUMBER, 3 * NUMBER, {})
    outcomes = lake.read(TASKS).groupBy("outcome").agg(f.count(f.lit(1)).alias("n")).collect()
    assert {row["outcome"]: row["n"] for row in outcomes} == {"dead": 10, "succeeded": 30}
    assert (first.added, second.added, second.existing) == (NUMBER, 0, NUMBER)
