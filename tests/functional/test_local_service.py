"""The local service as people run it: a process with a data folder, a port and signals."""

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace import Client
from headrace.local.launch import Launched, LaunchFailed, launched
from tests.processes import HOST, processes

KEY = "hr_test-key-of-the-local-service"
TWO_ANSWER = {"HEADRACE_PROCESSES": "2"}


class KeptConnection:
    """One kept connection to a service."""

    def __init__(self, service: Launched) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
        self._key = service.admin_key

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, headers)
        response = self._connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else None

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client(service: Launched) -> Iterator[KeptConnection]:
    client = KeptConnection(service)
    yield client
    client.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Launched]:
    with launched(admin_key=KEY) as running:
        yield running


def health(service: Launched) -> int:
    client = KeptConnection(service)
    status, _ = client.call("GET", "/v1/health")
    client.close()
    return status


class TestRunning:
    def test_it_is_healthy_and_has_the_key_it_was_given(
        self, service: Launched, client: KeptConnection
    ) -> None:
        assert service.admin_key == KEY
        assert client.call("GET", "/v1/health")[0] == 200
        assert client.call("POST", "/v1/queues", {"name": "running"})[0] == 201
        assert client.call("GET", "/v1/queues/running")[0] == 200


def test_however_many_wait_for_tasks_others_are_answered_and_each_gets_its_own(
    service: Launched, client: KeptConnection
) -> None:
    client.call("POST", "/v1/queues", {"name": "awaited"})
    port = urlsplit(service.url).port
    silent = [socket.create_connection((HOST, port)) for _ in range(300)]
    waiting = [KeptConnection(service) for _ in range(64)]
    with ThreadPoolExecutor(len(waiting)) as pool:
        dequeue = ("POST", "/v1/queues/awaited/dequeue", {"wait_seconds": 20})
        polls = [pool.submit(each.call, *dequeue) for each in waiting]
        assert health(service) == 200
        for count in (25, 25, 14):
            body = {"tasks": [{"payload": number} for number in range(count)]}
            assert client.call("POST", "/v1/queues/awaited/tasks", body)[0] == 200
        answers = [poll.result() for poll in polls]
    for each in waiting:
        each.close()
    for connection in silent:
        connection.close()

    ids = [task["id"] for _, answer in answers for task in answer["tasks"]]
    assert len(ids) == len(set(ids)) == 64


@pytest.mark.slow
class TestSeveralProcesses:
    def test_of_one_that_is_killed_nothing_acknowledged_is_lost_and_another_begins(
        self, tmp_path: Path
    ) -> None:
        acknowledged: list[str] = []
        with launched(data_dir=tmp_path, environment=TWO_ANSWER) as service:
            with Client(service.url, service.admin_key) as client:
                client.create_queue("kept")
                begun = children(service, 2)
                for _ in range(2):
                    acknowledged += [str(client.enqueue("kept", 1).id) for _ in range(50)]
                    for pid in begun:
                        os.kill(pid, signal.SIGKILL)
                    acknowledged += [str(client.enqueue("kept", 1).id) for _ in range(50)]
                    while {*children(service, 2)} & {*begun} or len(children(service)) < 2:
                        time.sleep(0.05)
                    begun = children(service, 2)

                assert {client.get_task(each).state for each in acknowledged} == {"ENQUEUED"}
                assert client.count_tasks("kept").count == len(acknowledged)
            assert "The process for requests ended with -9; another begins" in output(service)


@pytest.mark.slow
class TestStopping:
    @pytest.mark.parametrize(
        ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)]
    )
    def test_a_signal_ends_it_and_its_children(
        self, number: signal.Signals, code: int, tmp_path: Path
    ) -> None:
        with launched(data_dir=tmp_path, environment=TWO_ANSWER) as service:
            timers_and_another = children(service, 2)
            service.process.send_signal(number)

            assert service.process.wait(10) == code
            until = time.monotonic() + 20
            for pid in timers_and_another:
                while Path(f"/proc/{pid}").exists():
                    assert time.monotonic() < until
            assert service.errors() == ""

    def test_a_long_poll_does_not_hold_it_up(self) -> None:
        with launched() as service:
            client = KeptConnection(service)
            client.call("POST", "/v1/queues", {"name": "waiting"})
            poll = threading.Thread(target=poll_until_gone, args=(client, "waiting"))
            poll.start()

            assert service.stop() == 0
            poll.join()
            client.close()

    def test_a_task_acknowledged_before_sigkill_is_there_after_the_next_start(
        self, tmp_path: Path
    ) -> None:
        acknowledged: list[str] = []
        enough = threading.Event()
        with launched(data_dir=tmp_path) as service:
            client = KeptConnection(service)
            client.call("POST", "/v1/queues", {"name": "kept"})
            producer = threading.Thread(target=enqueue, args=(client, acknowledged, enough))
            producer.start()
            assert enough.wait(30)
            service.kill()
            producer.join()
            client.close()

        with launched(data_dir=tmp_path) as service:
            client = KeptConnection(service)
            states = {client.call("GET", f"/v1/tasks/{name}")[1]["state"] for name in acknowledged}
            assert states == {"ENQUEUED"}
            # The one under way may have been written without its answer having come back.
            _, counted = client.call("GET", "/v1/queues/kept/count")
            assert len(acknowledged) <= counted["count"] <= len(acknowledged) + 5
            client.close()


def children(service: Launched, count: int = 1) -> list[int]:
    """Return the process ids of a service's children, once it has *count*."""
    found: list[int] = []
    while len(found) < count:
        running = processes()
        found = [pid for pid, process in running.items() if process.parent == service.pid]
    return found


def output(service: Launched) -> str:
    """Return what a service has said so far."""
    return (service.output / "stdout").read_text(encoding="utf-8")


def poll_until_gone(client: KeptConnection, queue: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            client.call("POST", f"/v1/queues/{queue}/dequeue", {"wait_seconds": 20})


def enqueue(client: KeptConnection, acknowledged: list[str], enough: threading.Event) -> None:
    """Enqueue five at a time until the service is gone."""
    body = {"tasks": [{"payload": number} for number in range(5)]}
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            _, answer = client.call("POST", "/v1/queues/kept/tasks", body)
            acknowledged += [result["id"] for result in answer["results"]]
            if len(acknowledged) > 100:
                enough.set()


@pytest.mark.slow
class TestDataFolder:
    def test_the_key_it_makes_is_private_and_stays(self, tmp_path: Path) -> None:
        folder = tmp_path / "data"
        with launched(data_dir=folder) as service:
            first = service.admin_key

        with launched(data_dir=folder) as service:
            assert service.admin_key == first
        assert first.startswith("hr_")
        assert stat.S_IMODE((folder / "admin.key").stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_a_second_service_is_refused_and_the_first_goes_on(self, tmp_path: Path) -> None:
        with launched(data_dir=tmp_path) as first:
            line = refused(data_dir=tmp_path)

            assert f"process {first.pid}" in line
            assert str(tmp_path) in line
            assert health(first) == 200

    def test_a_file_of_something_else_is_named_and_left_alone(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "headrace.db") as other:
            other.execute("CREATE TABLE recipes (name TEXT)")
        other.close()
        before = (tmp_path / "headrace.db").read_bytes()

        line = refused(6, data_dir=tmp_path)

        assert f"{tmp_path}/headrace.db" in line
        assert "another program's database" in line
        assert (tmp_path / "headrace.db").read_bytes() == before

    def test_a_program_beside_it_uses_the_same_queue(self, tmp_path: Path) -> None:
        with (
            launched(data_dir=tmp_path) as service,
            Client(service.file_url) as near,
            Client(service.url, service.admin_key) as far,
        ):
            far.create_queue("mail")
            near.enqueue("mail", {"to": "ada"})
            (task,) = far.dequeue("mail", wait_seconds=10).tasks

        assert task.payload == {"to": "ada"}

    @pytest.mark.parametrize("content", [b"short\n", b"\xff" * 40])
    def test_a_broken_key_is_named(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "admin.key").write_bytes(content)

        assert str(tmp_path / "admin.key") in refused(6, data_dir=tmp_path)


@pytest.mark.slow
class TestRefusals:
    def test_a_port_in_use_is_named(self) -> None:
        with socket.socket() as taken:
            taken.bind((HOST, 0))
            taken.listen()
            port = taken.getsockname()[1]

            assert f"Port {port}" in refused(port=port)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("HEADRACE_ADMIN_KEY", "short"),
            ("HEADRACE_DYNAMODB_URL", "localhost:8000"),
        ],
    )
    def test_a_setting_that_cannot_be_used_is_named(self, name: str, value: str) -> None:
        assert name in refused(environment={name: value})


def refused(exit_code: int = 2, **arguments: Any) -> str:
    """Return the one line with which the service refuses to start."""
    with pytest.raises(LaunchFailed) as failure, launched(**arguments):
        pass
    assert failure.value.exit_code == exit_code
    (line,) = str(failure.value).splitlines()
    return line


@pytest.mark.slow
def test_a_service_that_others_may_reach_says_what_that_means(service: Launched) -> None:
    with launched(environment={"HEADRACE_HOST": "0.0.0.0"}) as open_to_all:  # noqa: S104
        assert open_to_all.url.startswith("http://127.0.0.1:")
        warned = open_to_all.errors()

    assert warned.startswith("warning: it listens on 0.0.0.0, and http carries keys")
    assert "it listens on" not in service.errors()
