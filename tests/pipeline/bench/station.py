"""A station beside what the engine can do: the same two writes per task, lease and move.

The engine's own figure is taken before and after the station's, because others use the machine.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.client.client import Client
from headrace.client.sending import NewTask as Sent
from headrace.client.sending import Report
from headrace.domain import settle
from headrace.domain.instants import micros_of
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.settle import Held
from headrace.local.engine import Engine, running_engine
from headrace.local.environment import applied, dynamodb_client, function_environment
from headrace.local.folder import temporary_folder
from headrace.local.launch import launched
from headrace.local.stream import add_index
from headrace.local.tables import TableNames, create_tables, load_template
from headrace.runtime.wiring import UseCases
from headrace.spark import Station
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.store.statements import statement
from tests.bench.bare import PAYLOAD, BareClient
from tests.bench.results import Bar
from tests.pipeline.bench.figures import Figure, Measured

SHARDS = 2
THREADS = 4
BATCH = 25
LEAST_SHARE = 75  # percent
_TABLES = TableNames()
_WARM_UP = 3_000


class BareMover(BareClient):
    """The bare client, moving what it has leased to the queue `out`."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(url, queue)
        now = datetime.now(UTC)
        held = Held("@TASK@", queue, "@LEASE@", 1, "bench:1")
        target = Queue("out", QueueSettings(), now, now)
        move = settle.move(
            held, target, now=now, delay=None, payload=json.dumps(PAYLOAD), tags=None
        )
        text = json.dumps(statement(move, _TABLES.tasks))
        self._move = text.replace(str(micros_of(now)), self._writes.now)

    def move(self, ids: list[str]) -> None:
        """Move leased tasks on."""
        self._execute(self._move, ids)


def measured(spark: SparkSession, folder: str, tasks: int) -> Iterator[Measured]:
    """Measure engine, station, engine, and an SDK loop; yield what was found."""
    del folder
    with engine_with("in", "out") as (engine, uses):
        connection = StoreConnection(dynamodb_url=engine.url)
        _fill(uses, _WARM_UP)
        _drained(spark, connection, _WARM_UP)
        before = _bare(engine, tasks)
        _fill(uses, tasks)
        rate, batches = _drained(spark, connection, tasks)
        after = _bare(engine, tasks)
    limit = (before + after) / 2
    yield f"the engine itself: {before:,.0f} and {after:,.0f} tasks/s leased and moved"
    yield Figure(f"station, {batches} batches", rate, "tasks/s")
    yield Figure("the engine itself, the same writes", limit, "tasks/s", ours=False)
    yield Bar("station, share of the engine's own", rate / limit * 100, LEAST_SHARE, at_most=False)
    sdk = _sdk(min(tasks, 2_000))
    yield Figure("one SDK loop, 25 at a time over HTTP", sdk, "tasks/s", ours=False)


def transform(tasks: DataFrame) -> DataFrame:
    """Do what a station does at the least: read a value, and write one."""
    values = f.from_json("payload", "sensor string, values array<int>")
    made = values.withField("total", f.aggregate(values["values"], f.lit(0), lambda a, b: a + b))
    return tasks.withColumn("payload", made)


@contextmanager
def engine_with(*queues: str) -> Iterator[tuple[Engine, UseCases]]:
    """Run an engine of its own with some empty *queues*."""
    with temporary_folder() as folder, running_engine(folder) as engine:
        add_index(engine.database)
        variables = {
            **function_environment(url=engine.url, names=_TABLES, admin_key="bench-bench-bench"),
            "HEADRACE_SENDER": "together",
        }
        with applied(variables):
            create_tables(dynamodb_client(engine.url), load_template(), _TABLES)
            uses = opened(StoreConnection(dynamodb_url=engine.url))
            for queue in queues:
                uses.queues.create(queue, QueueSettings(shards=SHARDS))
            yield engine, uses


def _fill(uses: UseCases, number: int) -> None:
    payload = json.dumps(PAYLOAD)
    for start in range(0, number, 1000):
        uses.tasks.enqueue("in", [TaskSpec(payload)] * min(1000, number - start))


def _drained(spark: SparkSession, connection: StoreConnection, number: int) -> tuple[float, int]:
    station = Station(queue="in", to="out", transform=transform, max_rows=5_000)
    begin = time.monotonic()
    run = station.run(spark, drain=True, connection=connection)
    assert run.counts == {"moved": number}, run.counts
    return number / (time.monotonic() - begin), run.batches


def _bare(engine: Engine, number: int) -> float:
    with BareMover(engine.url, "bare") as client:
        parts = [client.insert(BATCH) for _ in range(number // BATCH)]

    def work(mine: list[list[str]]) -> None:
        with BareMover(engine.url, "bare") as client:
            for part in mine:
                client.lease(part)
                client.move(part)

    threads = [
        threading.Thread(target=work, args=(parts[place::THREADS],)) for place in range(THREADS)
    ]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(parts) * BATCH / (time.monotonic() - begin)


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
