"""Single enqueues of many threads, gathered into batches."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from headrace import Client
from headrace.domain.errors import InvalidRequest, NotEnqueued, NotFound
from tests.unit.client.network import Network, Reply, enqueued, problem, reply


def client_on(reply: Reply) -> tuple[Client, Network]:
    wire = Network([reply])
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


def test_an_entry_that_comes_out_invalid_is_raised_by_its_own_future() -> None:
    outcomes = [
        {"outcome": outcome, "id": "t", "task": None, "detail": "too late"}
        for outcome in ("CREATED", "INVALID")
    ]
    client, _ = client_on(reply(200, {"results": outcomes}))
    with client.batcher(linger_seconds=60) as batcher:
        taken, refused = (batcher.enqueue("mail", n) for n in range(2))
    assert taken.result().outcome == "CREATED"
    with pytest.raises(NotEnqueued, match="too late"):
        refused.result()


def test_a_refused_batch_is_heard_of_by_all_of_it_and_the_next_goes_on() -> None:
    wire = Network([problem(404, "not_found"), enqueued])
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


def test_a_wrong_entry_does_not_keep_the_others_back() -> None:
    wrong = problem(
        400, "invalid_request", errors=[{"field": "tasks[1].dedupe_key", "message": "is empty"}]
    )
    wire = Network([wrong, enqueued])
    client = Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep)
    with client.batcher(linger_seconds=60) as batcher:
        futures = [batcher.enqueue("mail", n, dedupe_key="x" if n != 1 else "") for n in range(4)]
    with pytest.raises(InvalidRequest):
        futures[1].result()
    assert [futures[n].result().outcome for n in (0, 2, 3)] == ["CREATED"] * 3


def test_a_refusal_that_names_no_entry_is_everybodys() -> None:
    client, wire = client_on(problem(400, "invalid_request"))
    with client.batcher(linger_seconds=60) as batcher:
        futures = [batcher.enqueue("mail", n) for n in range(3)]
    assert all(isinstance(future.exception(), InvalidRequest) for future in futures)
    assert len(wire.requests) == 1


def test_a_future_that_was_cancelled_is_not_sent_and_harms_nobody() -> None:
    client, wire = client_on(enqueued)
    with client.batcher(linger_seconds=60) as batcher:
        first, second = (batcher.enqueue("mail", n) for n in range(2))
        assert first.cancel()
    assert second.result().outcome == "CREATED"
    assert len(wire.body()["tasks"]) == 1


def test_whatever_goes_wrong_is_heard_of_and_the_next_goes_on() -> None:
    def broken(_request: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError

    wire = Network([broken, enqueued])
    client = Client("http://queue.test", "hr_secret", transport=wire, sleep=wire.sleep)
    with client.batcher(linger_seconds=60) as batcher:
        lost = batcher.enqueue("mail", 1)
        batcher.flush()
        kept = batcher.enqueue("mail", 2)
    assert isinstance(lost.exception(), ZeroDivisionError)
    assert kept.result().outcome == "CREATED"


PROGRAM = """
import os, sys
import httpx2 as httpx
from headrace import Client

def noted(request):
    with open(sys.argv[1], "ab") as file:
        file.write(b"%d " % os.getpid() + request.read() + b"\\n")
    return httpx.Response(200, content=b'{"results": []}')

client = Client("http://queue.test", "hr_key", transport=httpx.MockTransport(noted))
batcher = client.batcher(linger_seconds=60)
"""


def run(program: str, path: Path) -> list[str]:
    functions = Path(__file__).parents[3] / "functions"
    env = {**os.environ, "PYTHONPATH": str(functions)}
    subprocess.run([sys.executable, "-c", PROGRAM + program, str(path)], env=env, check=True)
    return path.read_text().splitlines()


def test_what_waits_when_the_program_ends_is_sent(tmp_path: Path) -> None:
    (line,) = run("batcher.enqueue('mail', 'last words')", tmp_path / "sent")
    assert "last words" in line


def test_a_fork_sends_its_own_and_leaves_its_parents_to_the_parent(tmp_path: Path) -> None:
    lines = run(
        """
batcher.enqueue('mail', 'of the parent')
if not os.fork():
    batcher.enqueue('mail', 'of the child')
    batcher.close()
    os._exit(0)
os.wait()
""",
        tmp_path / "sent",
    )
    assert ["of the child" in line for line in lines] == [True, False]
    assert ["of the parent" in line for line in lines] == [False, True]
