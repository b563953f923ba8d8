"""Single enqueues of many threads, gathered into batches."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from headrace import Client
from headrace.domain.errors import InvalidRequest, NotFound
from tests.unit.sdk.wire import Reply, Wire, enqueued, problem


def client_on(reply: Reply) -> tuple[Client, Wire]:
    wire = Wire([reply])
    return Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep), wire


def test_enqueues_go_out_together_and_each_hears_of_its_own() -> None:
    client, wire = client_on(enqueued)
    with client.batcher(linger_seconds=60) as batcher:
        futures = [batcher.enqueue("mail", n, id=f"t{n}") for n in range(60)]
        batcher.enqueue("other", 1)
    assert [future.result().id for future in futures] == [f"t{n}" for n in range(60)]
    sizes = sorted(len(wire.body(place)["tasks"]) for place in range(len(wire.requests)))
    assert sum(sizes) == 61
    assert len(sizes) <= 6


def test_a_full_batch_does_not_wait() -> None:
    client, _ = client_on(enqueued)
    with client.batcher(linger_seconds=60) as batcher:
        futures = [batcher.enqueue("mail", n) for n in range(26)]
        assert futures[0].result(timeout=10).outcome == "CREATED"


def test_flush_waits_for_the_answers() -> None:
    client, _ = client_on(enqueued)
    with client.batcher(linger_seconds=60) as batcher:
        future = batcher.enqueue("mail", 1)
        batcher.flush()
        assert future.done()
        batcher.flush()


def test_a_lonely_enqueue_goes_out_after_a_moment() -> None:
    client, _ = client_on(enqueued)
    with client.batcher(linger_seconds=0.001) as batcher:
        assert batcher.enqueue("mail", 1).result(timeout=10).outcome == "CREATED"


def test_a_refused_batch_is_heard_of_by_all_of_it_and_the_next_goes_on() -> None:
    wire = Wire([problem(404, "not_found"), enqueued])
    client = Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep)
    with client.batcher(linger_seconds=60) as batcher:
        lost = [batcher.enqueue("mail", n) for n in range(3)]
        batcher.flush()
        kept = batcher.enqueue("mail", 4)
    for future in lost:
        with pytest.raises(NotFound):
            future.result()
    assert kept.result().outcome == "CREATED"


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    client, wire = client_on(enqueued)
    with client.batcher() as batcher, pytest.raises(InvalidRequest, match=r"task.payload"):
        batcher.enqueue("mail", object())
    assert not wire.requests


def test_a_closed_batcher_takes_nothing() -> None:
    client, _ = client_on(enqueued)
    batcher = client.batcher()
    batcher.close()
    batcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        batcher.enqueue("mail", 1)


def test_threads_that_are_faster_than_the_service_wait_for_it() -> None:
    gate = threading.Event()

    def slowly(request: httpx.Request) -> httpx.Response:
        gate.wait(10)
        return enqueued(request)

    client, wire = client_on(slowly)
    with client.batcher(linger_seconds=0) as batcher, ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(batcher.enqueue, "mail", n) for n in range(11_000)]
        gate.set()
        outcomes = {future.result().result().outcome for future in futures}
    assert outcomes == {"CREATED"}
    assert sum(len(wire.body(place)["tasks"]) for place in range(len(wire.requests))) == 11_000
