"""Large texts that are kept outside the tables: a client sees no difference."""

import pytest

from headrace.runtime.wiring import Settings, build
from headrace.store.objects import MemoryObjects
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, Service
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

LARGE = {"text": "é" * 3_000, "end": "of-the-payload"}
RESULT = {"text": "r" * 3_000, "end": "of-the-result"}
PROGRESS = {"text": "p" * 3_000, "end": "of-the-progress"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tables(clock: ManualClock) -> Streamed:
    return Streamed(SqliteStore(":memory:"), clock)


@pytest.fixture
def call(tables: Streamed, clock: ManualClock) -> Service:
    """Return a service that keeps what is over 1 KiB outside the tables."""
    settings = Settings(admin_key=KEY, settings_ttl_seconds=1, payload_offload_bytes=1024)
    use = build(settings, tables.store, now=clock, objects=MemoryObjects())
    return Service(clock, use)


def test_every_answer_that_shows_a_text_shows_it_whole(call: Service, tables: Streamed) -> None:
    queue = call.queue()
    assert call("POST", "/v1/batches", {"id": "all", "total": 1}).status == 201
    (task_id,) = call.put(queue, LARGE, batches=["all"])

    listed = call("GET", f"{queue}/tasks", query={"payload": "true"}).json["tasks"]
    (task,) = call.take(queue)
    assert call.say(task, "INFLIGHT", progress=PROGRESS)["outcome"] == "OK"
    running = call.see(task_id)
    assert call.say(task, "SUCCEEDED", result=RESULT)["outcome"] == "OK"
    waited = call("GET", f"/v1/tasks/{task_id}", query={"wait_seconds": "1"}).json
    call.use.recording.record(SHARD, tables.taken())
    call.use.counters.post_left()
    members = call("GET", "/v1/batches/all/results").json["results"]

    assert [one["payload"] for one in (*listed, task, running, waited)] == [LARGE] * 4
    assert (running["progress"], waited["result"]) == (PROGRESS, RESULT)
    assert [one["result"] for one in members] == [RESULT]
    without = call("GET", f"/v1/tasks/{task_id}", query={"payload": "false"}).json
    assert "payload" not in without
    assert without["result"] == RESULT
