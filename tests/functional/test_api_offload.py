"""Large texts in S3, by the API: whoever may see a task sees no difference."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from headrace.runtime.wiring import Settings, build
from headrace.store.objects import objects_at
from headrace.store.sqlite import SqliteStore
from headrace.testing.stores import SHARD, Streamed
from tests.functional.conftest import KEY, Answer, Service
from tests.functional.roles import OPERATOR, PRODUCER, VIEWER, WORKER, keyed
from tests.manual_clock import ManualClock

LARGE = {"text": "é" * 3_000, "end": "of-the-payload"}
RESULT = {"text": "r" * 3_000, "end": "of-the-result"}
PROGRESS = {"text": "p" * 3_000, "end": "of-the-progress"}
BUCKET = "payloads-of-tests"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give S3 with a bucket in it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        yield s3


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tables(clock: ManualClock) -> Streamed:
    return Streamed(SqliteStore(":memory:"), clock)


def service(tables: Streamed, clock: ManualClock) -> Service:
    """Return a service that keeps what is over 1 KiB in S3, wherever that now is."""
    settings = Settings(admin_key=KEY, settings_ttl_seconds=1, payload_offload_bytes=1024)
    objects = objects_at(f"s3://{BUCKET}/of/tests")
    return Service(clock, build(settings, tables.store, now=clock, objects=objects))


@pytest.fixture
def call(aws: Any, tables: Streamed, clock: ManualClock) -> Service:
    return service(tables, clock)


def objects(aws: Any) -> int:
    return int(aws.list_objects_v2(Bucket=BUCKET)["KeyCount"])


def test_every_answer_that_shows_a_text_shows_it_whole(
    call: Service, aws: Any, tables: Streamed
) -> None:
    queue = call.queue()
    assert call("POST", "/v1/batches", {"id": "all", "total": 1}).status == 201
    (task_id,) = call.put(queue, LARGE, batches=["all"])
    assert objects(aws) == 1

    listed = call("GET", f"{queue}/tasks", query={"payload": "true"}).json["tasks"]
    (task,) = call.take(queue)
    assert call.say(task, "INFLIGHT", progress=PROGRESS)["outcome"] == "OK"
    running = call.see(task_id)
    assert call.say(task, "SUCCEEDED", result=RESULT)["outcome"] == "OK"
    waited = call("GET", f"/v1/tasks/{task_id}", query={"wait_seconds": "1"}).json
    call.use.recording.record(SHARD, tables.taken())
    call.use.recording.counters.post_left()
    members = call("GET", "/v1/batches/all/results").json["results"]

    assert objects(aws) == 3
    assert [one["payload"] for one in (*listed, task, running, waited)] == [LARGE] * 4
    assert (running["progress"], waited["result"]) == (PROGRESS, RESULT)
    assert [one["result"] for one in members] == [RESULT]
    without = call("GET", f"/v1/tasks/{task_id}", query={"payload": "false"}).json
    assert "payload" not in without
    assert without["result"] == RESULT


def test_each_role_sees_what_it_sees_of_small_ones(call: Service) -> None:
    queue = call.queue()
    (task_id,) = call.put(queue, LARGE)
    path = f"/v1/tasks/{task_id}"

    for role in (OPERATOR, PRODUCER, WORKER):
        assert keyed(call, role)("GET", path).json["payload"] == LARGE
    viewer = keyed(call, VIEWER)
    for seen in (viewer("GET", path), viewer("GET", f"{queue}/tasks")):
        assert seen.status == 200
        assert "of-the-payload" not in seen.body
        assert "_ref" not in seen.body
        assert "sha256" not in seen.body
    assert viewer("GET", path, query={"payload": "true"}).status == 403


def unavailable(answer: Answer) -> bool:
    return (
        (answer.status, answer.json["code"]) == (503, "unavailable")
        and "retry-after" in answer.headers
        and "Traceback" not in answer.body
    )


def test_without_s3_what_is_large_is_503_and_all_else_goes_on(
    call: Service, tables: Streamed, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = call.queue()
    (large,) = call.put(queue, LARGE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    call = service(tables, clock)  # another process, over the same tables

    assert unavailable(call("POST", f"{queue}/tasks", {"tasks": [{"payload": LARGE}]}))
    assert unavailable(call("GET", f"/v1/tasks/{large}"))
    assert unavailable(call("POST", f"{queue}/dequeue", {"batch_size": 1}))
    waits = call("GET", f"/v1/tasks/{large}", query={"payload": "false"}).json
    assert (waits["state"], waits["attempts"]) == ("ENQUEUED", 0)
    call.put(queue, {"small": True})
    assert [task["payload"] for task in call.take(queue, 2)] == [{"small": True}]
