"""Writing does not get slower with the number of changes the engine's stream has seen.

The engine alone looks through its whole stream before each write; `headrace.local.stream` gives it
the index that makes an end of that.
"""

import contextlib
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator

import boto3
import pytest

from headrace.local import stream
from headrace.local.engine import Engine, running_engine
from headrace.local.folder import temporary_folder
from headrace.local.tables import DynamoDBClient, TableNames, Template, create_tables

FEW, MANY = 1_000, 20_000
BATCH = 25
TASKS = TableNames().tasks


class Writer:
    """Puts small tasks into one engine, 25 in a request."""

    def __init__(self, engine: Engine, template: Template) -> None:
        self.database = engine.database
        self._client: DynamoDBClient = boto3.client(
            "dynamodb",
            endpoint_url=engine.url,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        create_tables(self._client, template, TableNames())
        self._written = 0

    def put_batch(self) -> float:
        """Write one batch; return how many seconds it took."""
        numbers = range(self._written, self._written + BATCH)
        self._written += BATCH
        requests = [{"PutRequest": {"Item": task(number)}} for number in numbers]
        started = time.perf_counter()
        self._client.batch_write_item(RequestItems={TASKS: requests})
        return time.perf_counter() - started

    def put(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            self.put_batch()


def task(number: int) -> dict[str, dict[str, str]]:
    return {
        "task_id": {"S": f"tsk_{number:08}"},
        "queue#state": {"S": "orders#ENQUEUED#0"},
        "scheduled_at": {"N": str(1_700_000_000_000_000 + number)},
        "payload": {"S": "x" * 200},
    }


@contextlib.contextmanager
def new_engine(template: Template, *, indexed: bool) -> Iterator[Writer]:
    with temporary_folder() as folder, running_engine(folder) as engine:
        if indexed:
            stream.add_index(engine.database)
        yield Writer(engine, template)


def compare(young: Writer, old: Writer, *, rounds: int = 40) -> float:
    """Return the put rate of `old` as a share of that of `young`.

    They take turns, so that whatever else the machine does slows both, and what counts is the
    middle of many rounds.
    """
    return statistics.median(young.put_batch() / old.put_batch() for _ in range(rounds))


@pytest.mark.slow
def test_the_put_rate_after_many_changes_is_that_after_few(template: Template) -> None:
    with new_engine(template, indexed=True) as young, new_engine(template, indexed=True) as old:
        young.put(FEW)
        old.put(MANY)

        # A busy machine may spoil one measurement; a scan spoils all, and leaves a tenth of the
        # rate.  The bar of 0.9 is for a quiet machine: make bench shows it.
        assert any(compare(young, old) >= 0.8 for _ in range(4))


@pytest.mark.slow
def test_without_the_index_it_is_far_below(template: Template) -> None:
    # If this fails, the engine has got better: `headrace.local.stream` needs no index any more.
    with new_engine(template, indexed=False) as young, new_engine(template, indexed=False) as old:
        young.put(FEW)
        old.put(FEW)
        pretend_changes(old, MANY)

        assert compare(young, old, rounds=10) < 0.5


def pretend_changes(writer: Writer, count: int) -> None:
    """Add old records to the stream, where writing that many without the index takes a minute."""
    with contextlib.closing(sqlite3.connect(writer.database)) as connection, connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
            " INSERT INTO _stream_records (table_name, event_name, keys_json, new_image,"
            " sequence_number, shard_id, created_at)"
            " SELECT table_name, event_name, keys_json, new_image,"
            " CAST(1000000 + i AS TEXT), shard_id, created_at"
            " FROM n, (SELECT * FROM _stream_records ORDER BY id DESC LIMIT 1)",
            {"count": count},
        )


def test_trimming_takes_the_old_and_leaves_the_newest(
    dynamodb: DynamoDBClient, engine: Engine, new_tables: Callable[[], TableNames]
) -> None:
    name = new_tables().tasks
    for number in range(3):
        dynamodb.put_item(TableName=name, Item=task(number))

    kept_for_an_hour = stream.trim(engine.database)
    deleted = stream.trim(engine.database, now=time.time() + stream.KEPT_SECONDS + 5)

    dynamodb.put_item(TableName=name, Item=task(3))
    assert kept_for_an_hour == 0
    assert deleted >= 2
    assert sequence_numbers(engine, name) == ["3", "4"]


def sequence_numbers(engine: Engine, table: str) -> list[str]:
    query = "SELECT sequence_number FROM _stream_records WHERE table_name = ? ORDER BY id"
    with contextlib.closing(sqlite3.connect(engine.database)) as connection:
        return [number for (number,) in connection.execute(query, (table,))]
