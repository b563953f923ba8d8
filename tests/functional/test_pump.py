"""The pump feeds the engine's stream to the recorder: all of it, in order, and once."""

import contextlib
import http.client
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from headrace.local import stream
from headrace.local.engine import Engine
from headrace.local.launch import Launched, launched
from headrace.local.pump import Pump, stream_function
from headrace.local.stream import Reader
from headrace.local.tables import DynamoDBClient, Function, TableNames, Template
from headrace.store.stream import SIZES

SOON = 20.0  # seconds until a test gives up
FUNCTION = Function("RecorderFunction", "recorder.handler", 60, 512)


class RecordConsumer:
    """A recorder's double: notes what it is given, and fails when told."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.fails: Callable[[list[int]], int | None] = lambda _: None
        self._changed = threading.Condition()

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in event["Records"]]
        failed = self.fails(numbers)
        with self._changed:
            self.events.append(event)
            self.taken += [number for number in numbers if failed is None or number < failed]
            self._changed.notify_all()
        failures = [] if failed is None else [{"itemIdentifier": str(failed)}]
        return {"batchItemFailures": failures, "state": {}}

    def wait_for(self, count: int) -> list[int]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.taken) >= count, SOON)
            return list(self.taken)


class PumpedTable:
    """A table with a stream, and a pump on it."""

    def __init__(self, client: DynamoDBClient, engine: Engine, name: str) -> None:
        self.name = name
        self.database = engine.database
        self._client = client

    def put(self, *names: str, payload: str = "{}") -> None:
        for name in names:
            item = {
                "task_id": {"S": name},
                "queue#state": {"S": "mail#ENQUEUED#0"},
                "scheduled_at": {"N": "5"},
                "payload": {"S": payload},
            }
            self._client.put_item(TableName=self.name, Item=item)

    def delete(self, name: str) -> None:
        self._client.delete_item(TableName=self.name, Key={"task_id": {"S": name}})

    @contextlib.contextmanager
    def pumped(
        self, consumer: RecordConsumer, *, position: int = -1, busy_seconds: float = 1.0
    ) -> Iterator[Pump]:
        pump = Pump(self.database, self.name, FUNCTION, busy_seconds=busy_seconds)
        pump.start(consumer, lambda _: position)
        try:
            yield pump
        finally:
            pump.stop()


@pytest.fixture
def table(dynamodb: DynamoDBClient, engine: Engine, tables: TableNames) -> PumpedTable:
    return PumpedTable(dynamodb, engine, tables.tasks)


def test_every_change_comes_in_order_as_lambda_sends_it(table: PumpedTable) -> None:
    consumer = RecordConsumer()
    table.put("a")
    with table.pumped(consumer) as pump:
        consumer.wait_for(1)
        table.put("a", payload='"ü"')
        table.delete("a")
        assert consumer.wait_for(3) == [1, 2, 3]

    assert pump.consumed() == {table.name: 3}
    records = [record for event in consumer.events for record in event["Records"]]
    assert [record["eventName"] for record in records] == ["INSERT", "MODIFY", "REMOVE"]
    inserted, modified, removed = (record["dynamodb"] for record in records)
    assert "OldImage" not in inserted
    assert "NewImage" not in removed
    assert modified["NewImage"]["payload"] == {"S": '"ü"'}
    assert modified["Keys"] == {"task_id": {"S": "a"}}
    assert abs(modified["ApproximateCreationDateTime"] - time.time()) < 60
    assert {event["shardId"] for event in consumer.events} == {f"shardId-00000001-{table.name}"}


def test_a_pump_that_starts_again_goes_on_where_it_was(table: PumpedTable) -> None:
    consumer = RecordConsumer()
    table.put("a", "b", "c")

    with table.pumped(consumer, position=2):
        assert consumer.wait_for(1) == [3]


def test_what_failed_comes_again_and_nothing_is_left_out(table: PumpedTable) -> None:
    consumer = RecordConsumer()
    tries: list[int] = []

    def fails(numbers: list[int]) -> int | None:
        tries.append(len(numbers))
        return 2 if len(tries) == 1 else None

    consumer.fails = fails
    table.put("a", "b", "c")
    with table.pumped(consumer, busy_seconds=0.001):
        assert consumer.wait_for(3) == [1, 2, 3]


def test_a_record_that_cannot_be_taken_at_all_is_found_and_left_out(
    table: PumpedTable, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = RecordConsumer()

    def fails(numbers: list[int]) -> int | None:
        if 4 in numbers:
            raise ZeroDivisionError("a defect")
        return None

    consumer.fails = fails
    table.put(*"abcdefgh")
    with table.pumped(consumer, busy_seconds=0.001):
        assert consumer.wait_for(7) == [1, 2, 3, 5, 6, 7, 8]

    assert "Record 4 of the stream is left out" in caplog.text


def test_large_values_that_nobody_counts_are_left_out(table: PumpedTable) -> None:
    consumer = RecordConsumer()
    table.put("small", payload="x" * 100)
    table.put("large", payload="x" * 300_000)
    with table.pumped(consumer):
        consumer.wait_for(2)

    images = [
        record["dynamodb"]["NewImage"] for event in consumer.events for record in event["Records"]
    ]
    assert ["payload" in image for image in images] == [True, False]
    assert images[1]["queue#state"] == {"S": "mail#ENQUEUED#0"}
    assert images[1][SIZES] == {"payload": 300_000, "result": None}


def test_a_lake_that_keeps_payloads_gets_whole_images(table: PumpedTable) -> None:
    table.put("large", payload="x" * 300_000)
    with Reader(table.database, table.name, whole=True) as reader:
        (record,), _ = reader.after(0, 10)

    image = record["dynamodb"]["NewImage"]
    assert len(image["payload"]["S"]) == 300_000
    assert SIZES not in image


def test_a_batch_has_a_bound_in_records_and_bytes(table: PumpedTable) -> None:
    table.put(*(f"t{number}" for number in range(30)))
    with Reader(table.database, table.name) as reader:
        some, more = reader.after(0, 10)
        rest, no_more = reader.after(10, 100)
        few, still_more = reader.after(0, 100, most_bytes=1000)
        one, _ = reader.after(0, 100, most_bytes=1)

    assert (len(some), more, len(rest), no_more) == (10, True, 20, False)
    assert 1 < len(few) < 30
    assert still_more
    assert len(one) == 1


@pytest.mark.slow  # beside other tests: it trims what they have left, in small steps
def test_what_the_pump_has_not_consumed_is_never_trimmed(table: PumpedTable) -> None:
    table.put(*"abcdef")
    later = time.time() + stream.KEPT_SECONDS + 5

    stream.trim(table.database, now=later, consumed={table.name: -1})
    untouched = sequence_numbers(table)
    stream.trim(table.database, now=later, consumed={table.name: 3})

    assert untouched == [1, 2, 3, 4, 5, 6]
    assert sequence_numbers(table) == [4, 5, 6]


def sequence_numbers(table: PumpedTable) -> list[int]:
    query = "SELECT sequence_number FROM _stream_records WHERE table_name = ? ORDER BY id"
    with contextlib.closing(sqlite3.connect(table.database)) as connection:
        return [int(number) for (number,) in connection.execute(query, (table.name,))]


def test_the_template_says_whom_the_stream_goes_to(template: Template) -> None:
    assert stream_function(template) == FUNCTION
    assert stream_function({"Resources": {}}) is None


class StreamConnection:
    """One kept connection to a service."""

    def __init__(self, service: Launched) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        self._key = service.admin_key

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status < 300, answer
        return json.loads(answer) if answer else None

    def work(self, queue: str, count: int) -> None:
        """Enqueue *count* tasks and let them succeed."""
        path = f"/v1/queues/{queue}"
        for _ in range(0, count, 25):
            tasks = [{"payload": number} for number in range(25)]
            self.call("POST", f"{path}/tasks", {"tasks": tasks})
        done = 0
        while done < count:
            leased = self.call("POST", f"{path}/dequeue", {"batch_size": 25})["tasks"]
            reports = [
                {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
                for task in leased
            ]
            if reports:
                self.call("POST", f"{path}/reports", {"reports": reports})
            done += len(reports)

    def recorded(self, queue: str, names: Sequence[str], wanted: Sequence[int]) -> list[int]:
        """Return events of the last hour, once they are as *wanted* or time is up."""
        until = time.monotonic() + SOON
        while True:
            points = self.call("GET", f"/v1/queues/{queue}/metrics")["points"]
            found = [sum(point[name] for point in points) for name in names]
            if found == list(wanted) or time.monotonic() > until:
                return found


EVENTS = ("enqueued", "started", "succeeded", "failed", "dead")


@pytest.mark.slow
def test_the_service_counts_what_happens_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    with launched(data_dir=tmp_path) as service, StreamConnection(service) as client:
        client.call("POST", "/v1/queues", {"name": "mail"})
        client.work("mail", 200)
        assert client.recorded("mail", EVENTS, [200, 200, 200, 0, 0]) == [200, 200, 200, 0, 0]
        client.work("mail", 100)
        service.kill()

    with launched(data_dir=tmp_path) as service, StreamConnection(service) as client:
        client.work("mail", 50)
        assert client.recorded("mail", EVENTS, [350, 350, 350, 0, 0]) == [350, 350, 350, 0, 0]
        stats = client.call("GET", "/v1/queues/mail/stats")
        exact = client.call("GET", "/v1/queues/mail/stats?exact=true")

    assert stats["counts"] == {
        "scheduled": 0,
        "ready": 0,
        "inflight": 0,
        "succeeded": 350,
        "dead": 0,
    }
    assert exact["counts"] == stats["counts"]
    assert stats["staleness_seconds"] < 60
