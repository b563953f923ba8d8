"""`headrace work --processes`: worker processes that are supervised, replaced and stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Client, InvalidRequest, NewTask, Worker
from infra import PROJECT_ROOT
from tests.waiting import until

pytestmark = pytest.mark.slow  # each starts several processes

SOON = 60.0
APP = """
import os
from headrace import App

app = App()
kept = []

@app.handler(queue="mail")
def work(payload):
    if payload == "die":
        os.kill(os.getpid(), 9)
    if payload == "grow":
        kept.append(bytearray(300_000_000))
    return [os.getpid(), os.getppid()]
"""


class Shop:
    """A program with an app over a file, and the command that works on it."""

    def __init__(self, folder: Path) -> None:
        (folder / "shop.py").write_text(APP)
        self.client = Client(f"file:{folder}/queue.db")
        self.client.create_queue("mail", keepalive_timeout_in_seconds=1)
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def work(self, *options: str, app: str = "shop") -> subprocess.Popen[str]:
        url = f"file:{self.folder}/queue.db"
        orphan = ["sh", "-c", 'sleep 1 2> /dev/null & exec "$@"', "sh"]  # as process 1 gets them
        command = [sys.executable, "-m", "headrace", "--url", url, "work", app, *options]
        path = {"PYTHONPATH": str(PROJECT_ROOT / "functions")}
        started = subprocess.Popen(
            orphan + command,
            cwd=self.folder,
            env={**os.environ, **path},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(started)
        return started

    def run(self, payload: Any = None) -> list[int]:
        """Run a task; return the processes of the worker and of its parent."""
        task = str(self.client.enqueue("mail", payload).id)
        found: list[int] = until(lambda: self.client.get_task(task).result, SOON)
        return found

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listed(shop: Shop) -> set[str]:
    return {worker.name for worker in shop.client.list_workers()}


def test_a_worker_process_that_dies_is_replaced_and_a_signal_stops_all(shop: Shop) -> None:
    supervisor = shop.work("--processes", "2", "--name", "web")
    until(lambda: listed(shop) == {"web-1", "web-2"}, SOON)
    pids = until(lambda: pids if len(pids := {shop.run()[0] for _ in range(5)}) > 1 else None, SOON)
    shop.client.enqueue("mail", "die", retry_strategy={"max_retries": 0})
    until(lambda: shop.run()[0] not in pids, SOON)

    supervisor.send_signal(signal.SIGTERM)
    _, log = supervisor.communicate(timeout=SOON)

    assert supervisor.returncode == 0
    assert "was killed by SIGKILL" in log


@pytest.mark.parametrize(("option", "value"), [("--max-tasks", "2"), ("--max-memory", "250")])
def test_a_worker_process_is_replaced_after_its_tasks_or_its_memory(
    shop: Shop, option: str, value: str
) -> None:
    supervisor = shop.work(option, value)
    (first, parent), *_ = shop.run(), shop.run("grow")
    assert parent == supervisor.pid

    assert until(lambda: shop.run()[0] != first, SOON)
    supervisor.send_signal(signal.SIGINT)

    assert supervisor.wait(SOON) == 0


def test_a_worker_takes_no_more_than_its_tasks(shop: Shop) -> None:
    shop.client.enqueue_many("mail", [NewTask(payload=number) for number in range(30)])
    app = App(shop.client)
    app.handler(queue="mail")(lambda payload: payload)
    worker = Worker(app, max_tasks=12)

    worker.run()

    assert worker.recycled
    assert shop.client.count_tasks("mail", state="SUCCEEDED").count == 12
    with pytest.raises(InvalidRequest, match=r"^max_memory must be more than 5 MB: the process"):
        Worker(app, max_memory=5).run()


@pytest.mark.parametrize(
    ("app", "options", "code", "why"),
    [
        ("no_such_module", [], 2, "there is no module no_such_module"),
        ("shop", ["--queues", "nowhere"], 3, "nowhere"),
        ("shop", ["--concurrency", "0"], 2, "concurrency"),
    ],
)
def test_a_mistake_that_every_start_repeats_ends_the_supervisor_at_once(
    shop: Shop, app: str, options: list[str], code: int, why: str
) -> None:
    supervisor = shop.work("--processes", "1", *options, app=app)

    _, log = supervisor.communicate(timeout=SOON)

    assert supervisor.returncode == code
    assert why in log
    assert log.count("Worker process 1 (") == 1
    assert "No worker process can work here" in log


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_workers_stop_when_their_supervisor_is_killed(shop: Shop) -> None:
    supervisor = shop.work("--processes", "1")
    pid, _ = shop.run()

    supervisor.kill()

    until(lambda: not is_alive(pid), SOON)
