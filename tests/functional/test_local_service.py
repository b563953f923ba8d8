"""The local service as people run it: a process with a data folder, a port and signals."""

import contextlib
import signal
import socket
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace import Client
from headrace.domain.errors import HeadraceError
from infra.launch import Launched, LaunchFailed, launched
from tests.processes import HOST, processes
from tests.waiting import until


@contextlib.contextmanager
def running(**arguments: Any) -> Iterator[tuple[Launched, Client]]:
    with launched(**arguments) as service, Client(service.url, service.admin_key) as client:
        yield service, client


def children(service: Launched) -> set[int]:
    return {pid for pid, process in processes().items() if process.parent == service.pid}


@pytest.mark.slow
def test_however_many_wait_for_tasks_others_are_answered_and_each_gets_its_own() -> None:
    with running() as (service, client), ThreadPoolExecutor(64) as pool:
        client.create_queue("mail")
        silent = [socket.create_connection((HOST, urlsplit(service.url).port)) for _ in range(300)]
        polls = [pool.submit(client.dequeue, "mail", wait_seconds=20) for _ in range(64)]
        assert client.health().status == "ok"
        made = {client.enqueue("mail", number).id for number in range(64)}
        found = [task.id for poll in polls for task in poll.result().tasks]
        for connection in silent:
            connection.close()

    assert (len(found), set(found)) == (64, made)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_a_signal_ends_it_and_its_children(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with running(data_dir=tmp_path) as (service, client):
        client.create_queue("mail")
        until(lambda: len(children(service)) == 1)
        begun = children(service)
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(client.dequeue, "mail", wait_seconds=20)
            service.process.send_signal(number)

            assert service.process.wait(10) == code
            poll.exception()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun))
        assert service.errors() == ""


@pytest.mark.slow
def test_a_task_acknowledged_before_sigkill_is_there_after_the_next_start(tmp_path: Path) -> None:
    acknowledged: list[str] = []

    def enqueue(client: Client) -> None:
        with contextlib.suppress(HeadraceError):
            while True:
                acknowledged.append(str(client.enqueue("kept", 1).id))

    with (
        launched(data_dir=tmp_path) as service,
        Client(service.url, service.admin_key, retries=0) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        client.create_queue("kept")
        producer = pool.submit(enqueue, client)
        until(lambda: len(acknowledged) > 100)
        service.kill()
        producer.result()

    with running(data_dir=tmp_path) as (_, client):
        assert {client.get_task(each).state for each in acknowledged} == {"ENQUEUED"}
        # The last one may have been written although its answer did not come back.
        assert client.count_tasks("kept").count - len(acknowledged) in (0, 1)


@pytest.mark.slow
def test_the_key_it_makes_is_private_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with launched(data_dir=folder) as service:
        first = service.admin_key

    with launched(data_dir=folder) as service:
        assert service.admin_key == first
    assert stat.S_IMODE((folder / "admin.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_file_of_something_else_is_named_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "headrace.db") as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    before = (tmp_path / "headrace.db").read_bytes()

    line = refused(6, data_dir=tmp_path)

    assert f"{tmp_path}/headrace.db" in line
    assert "another program's database" in line
    assert (tmp_path / "headrace.db").read_bytes() == before


@pytest.mark.slow
def test_what_it_cannot_use_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "admin.key").write_bytes(b"short\n")
    assert str(tmp_path / "admin.key") in refused(6, data_dir=tmp_path)
    assert "HEADRACE_ADMIN_KEY" in refused(environment={"HEADRACE_ADMIN_KEY": "short"})
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port}" in refused(port=port)


def refused(exit_code: int = 2, **arguments: Any) -> str:
    """Return the one line with which the service refuses to start."""
    with pytest.raises(LaunchFailed) as failure, launched(**arguments):
        pass
    assert failure.value.exit_code == exit_code
    (line,) = str(failure.value).splitlines()
    return line
