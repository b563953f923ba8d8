"""A station beside one process without Spark: the same two writes per task, lease and move.

That process is measured before and after the station, because others use the machine.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.bare import PAYLOAD
from benchmarks.results import Bar
from benchmarks.spark.figures import Figure, Measured
from headrace.client.client import Client
from headrace.client.sending import NewTask as Sent
from headrace.client.sending import Report
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.runtime.service import Service
from headrace.spark import Station
from headrace.spark.sources.claims import GroupClaims
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.leasing import LeaseRequest, leased, sweep
from headrace.spark.sources.reading import even_rooms
from headrace.spark.sources.rows import rows_of
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import settle
from headrace.store.call_scope import metered
from headrace.store.sqlite import SqliteStore
from infra.launch import launched

SHARDS = 2
THREADS = 4
BATCH = 25
LEAST_SHARE = 75  # percent, of a station that has run for a while, as they do
MOST_UNITS = 8.2
_WARM_UP = 10_000


def measured(spark: SparkSession, folder: str, tasks: int) -> Iterator[Measured]:
    """Measure a process without Spark, station, that process again, and an SDK loop."""
    with file_in(folder, "in", "out") as (connection, uses):
        _fill(uses, "in", _WARM_UP)
        _drained(spark, connection, _WARM_UP)
        before = _alone(uses, tasks)
        _fill(uses, "in", tasks)
        rate, batches = _drained(spark, connection, tasks)
        after = _alone(uses, tasks)
    limit = (before + after) / 2
    yield f"one process without Spark: {before:,.0f} and {after:,.0f} tasks/s leased and moved"
    yield Figure(f"station, {batches} batches", rate, "tasks/s")
    yield Figure("one process without Spark, the same writes", limit, "tasks/s", ours=False)
    yield Bar("station, share of that", rate / limit * 100, LEAST_SHARE, at_most=False)
    units = life_units(folder, min(tasks, 5_000))
    yield Bar("write units of a life in a station", units, MOST_UNITS, at_most=True)
    sdk = _sdk(min(tasks, 2_000))
    yield Figure("one SDK loop, 25 at a time over HTTP", sdk, "tasks/s", ours=False)


def life_units(folder: str, number: int) -> float:
    """Return what a task costs from its enqueue to its end in one batch of so many.

    By the cost model over a file, as one process does what the jobs of a station do.
    """
    with file_in(folder, "in") as (connection, uses), metered() as meter:
        _fill(uses, "in", number)
        group = uses.leases.open(None, keepalive=60).id
        rooms = even_rooms(number, SHARDS, group)
        request = LeaseRequest(connection, "in", group, "bench:1", rooms)
        for shard in range(SHARDS):
            settle(SettleTarget(connection, "in"), rows_of(leased(request, shard), "succeed"))
        assert sweep(connection, "in", group) == 0
        uses.leases.close(group)
        GroupClaims(store(connection), group).forget()
        return meter.write / number


def transform(tasks: DataFrame) -> DataFrame:
    """Do what a station does at the least: read a value, and write one."""
    values = f.from_json("payload", "sensor string, values array<int>")
    made = values.withField("total", f.aggregate(values["values"], f.lit(0), lambda a, b: a + b))
    return tasks.withColumn("payload", made)


@contextmanager
def file_in(folder: str, *queues: str) -> Iterator[tuple[StoreConnection, Service]]:
    """Make a file in *folder* with some empty *queues*."""
    with TemporaryDirectory(dir=folder) as own:
        path = Path(own, "headrace.db")
        SqliteStore(str(path)).close()
        connection = StoreConnection.of({"url": path.as_uri()})
        uses = opened(connection)
        for queue in queues:
            uses.queues.create(queue, QueueSettings(shards=SHARDS))
        yield connection, uses


def _fill(uses: Service, queue: str, number: int) -> None:
    payload = json.dumps(PAYLOAD)
    for start in range(0, number, 1000):
        uses.tasks.enqueue(queue, [TaskSpec(payload)] * min(1000, number - start))


def _drained(spark: SparkSession, connection: StoreConnection, number: int) -> tuple[float, int]:
    station = Station(queue="in", to="out", transform=transform, max_rows=5_000)
    begin = time.monotonic()
    run = station.run(spark, drain=True, connection=connection)
    assert run.counts == {"moved": number}, run.counts
    return number / (time.monotonic() - begin), run.batches


def _alone(uses: Service, number: int) -> float:
    """Move tasks on by threads of this process, BATCH at a time."""
    _fill(uses, "in", number)

    def work() -> None:
        while tasks := uses.deliveries.dequeue("in", batch_size=BATCH, worker="bench:1").tasks:
            moves = [
                TaskReport(
                    task.id,
                    task.lease_id or "",
                    ReportStatus.MOVED,
                    to_queue="out",
                    payload=task.payload,
                )
                for task in tasks
            ]
            uses.reports.report("in", moves)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return number / (time.monotonic() - begin)


def _sdk(number: int) -> float:
    with launched() as service, Client(service.url, service.admin_key) as client:
        for queue in ("in", "out"):
            client.create_queue(queue)
        client.enqueue_many("in", [Sent(payload=PAYLOAD) for _ in range(number)])
        begin, done = time.monotonic(), 0
        while tasks := client.dequeue("in", batch_size=BATCH, worker="bench:1").tasks:
            moves = [
                Report(
                    task_id=task.id,
                    lease_id=task.lease.id,
                    status="MOVED",
                    to_queue="out",
                    payload={**task.payload, "total": sum(task.payload["values"])},
                )
                for task in tasks
            ]
            client.report("in", moves)
            done += len(tasks)
        return done / (time.monotonic() - begin)
