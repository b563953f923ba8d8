"""The worker and the real local service."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.client import Client
from headrace.client.worker.worker import Worker
from headrace.domain.errors import LeaseLost
from headrace.domain.task import State
from infra import PROJECT_ROOT
from infra.launch import Launched, launched
from tests.waiting import until

SOON = 20.0


@pytest.fixture(scope="module")
def service() -> Iterator[Launched]:
    with launched() as running:
        yield running


@pytest.fixture
def client(service: Launched) -> Iterator[Client]:
    with Client(service.url, service.admin_key) as client:
        yield client


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name[:100].translate(str.maketrans("[]", ".."))
    client.create_queue(name, retry_strategy={"kind": "fixed", "base_seconds": 0})
    return name


@contextlib.contextmanager
def working(app: App, **settings: Any) -> Iterator[Worker]:
    """Run a worker for the length of a with block."""
    worker = Worker(app, **settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(SOON)
        assert not thread.is_alive()


def test_a_handler_whose_task_was_deleted_is_stopped(client: Client, queue: str) -> None:
    app = App(client)
    begun = threading.Event()
    ends: list[bool] = []

    def handler(ctx: Context) -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.005)
        except LeaseLost:
            ends.append(ctx.lost)
            raise

    app.handler(queue=queue)(handler)
    task = client.enqueue(queue, keepalive_timeout_in_seconds=1).id
    assert task is not None
    with working(app):
        assert begun.wait(SOON)

        client.delete_task(task)

        until(lambda: ends == [True], SOON)


def test_what_cannot_be_read_is_dead_and_what_came_with_it_is_not(
    client: Client, service: Launched, queue: str
) -> None:
    app = App(client)
    app.handler(queue=queue)(lambda payload: payload)
    client.enqueue(queue, 1)
    client.enqueue(queue, 10**4200)
    client.enqueue(queue, 2)
    with_huge = f'{{"tasks":[{{"payload":{"9" * 5000}}}]}}'
    send_raw(service, queue, with_huge)

    Worker(app).run(burst=True)

    assert client.count_tasks(queue).by_state == {
        State.ENQUEUED: 0,
        State.INFLIGHT: 0,
        State.SUCCEEDED: 3,
        State.DEAD: 1,
    }
    (dead,) = client.list_tasks(queue, state="DEAD")
    assert (dead.dead_reason, dead.errors[0].type) == ("rejected", "Unreadable")


@pytest.mark.slow
def test_a_second_signal_gives_back_at_once_what_runs(
    client: Client, service: Launched, queue: str
) -> None:
    task = client.enqueue(queue).id
    assert task is not None
    environment = {
        **os.environ,
        "HEADRACE_URL": service.url,
        "HEADRACE_KEY": service.admin_key,
        "PYTHONPATH": os.pathsep.join([str(PROJECT_ROOT / "functions"), str(PROJECT_ROOT)]),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.functional.workers.waiting", queue],
        cwd=PROJECT_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"begun\n"

        worker.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(0.5)
        worker.send_signal(signal.SIGINT)

        assert worker.wait(SOON) == 0
    found = client.get_task(task)
    assert (found.state, found.attempts, found.errors) == (State.ENQUEUED, 0, [])


def send_raw(service: Launched, queue: str, body: str) -> None:
    answer = httpx2.post(
        f"{service.url}/v1/queues/{queue}/tasks",
        content=body,
        headers={
            "Authorization": f"Bearer {service.admin_key}",
            "Content-Type": "application/json",
        },
    )
    assert answer.status_code == 200, answer.text
