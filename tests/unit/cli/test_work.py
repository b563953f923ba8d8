"""`headrace work`: finding the app, and what is wrong when there is none."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.session import CliSession
from headrace.testing import MemoryService
from infra import PROJECT_ROOT
from tests.unit.cli.cli_runner import Ran, invoke

APP = """
from headrace import App
app = App()
class tasks:
    app = app
number = 5
@app.task(queue="mail")
def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder with modules; forget them, and how they log, afterwards."""
    known = set(sys.modules)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    (tmp_path / "a_shop.py").write_text(APP)
    (tmp_path / "a_broken.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "a_faulty.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in set(sys.modules) - known:
        if name.startswith("a_"):
            del sys.modules[name]


STOPPING = """
import signal, threading
from headrace import App
app = App(queue="mail")
@app.task
def stop(name: str) -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.Signals[name])
"""


def work(*words: str, service: MemoryService | None = None) -> Ran:
    client = service.client if service else None
    return invoke("work", *words, session=CliSession(given_client=client, env={}))


def test_it_works_until_the_queues_are_empty(headrace_service: MemoryService) -> None:
    headrace_service.client.create_queue("mail")
    payload = {"task": "a_shop.double", "args": {"n": 21}}
    headrace_service.client.enqueue("mail", payload, id="a")
    headrace_service.clock.forward(1)

    ran = work("a_shop:app", "--burst", "--queues", "mail=2", service=headrace_service)

    assert ran.code == 0
    task = headrace_service.client.get_task("a")
    assert (task.status, task.result) == ("SUCCEEDED", 42)


ORDER = """
from headrace import App
app = App()
started = []
@app.task(queue="bulk")
def note(name: str) -> None:
    started.append(name)
app.queue("urgent", work=True)
"""


def test_strict_takes_queues_in_the_order_given(
    headrace_service: MemoryService, folder: Path
) -> None:
    (folder / "a_order.py").write_text(ORDER)
    for queue in ("bulk", "urgent"):
        headrace_service.client.create_queue(queue)
        for n in range(3):
            payload = {"task": "a_order.note", "args": {"name": f"{queue}-{n}"}}
            headrace_service.client.enqueue(queue, payload)
    headrace_service.clock.forward(1)
    words = ("--queues", "urgent,bulk", "--strict", "--concurrency", "1", "--prefetch", "0")

    ran = work("a_order:app", *words, "--burst", service=headrace_service)

    assert ran.code == 0, ran.err
    assert sys.modules["a_order"].started == [
        *("urgent-0", "urgent-1", "urgent-2"),
        *("bulk-0", "bulk-1", "bulk-2"),
    ]


def stopped_by(name: str, service: MemoryService, folder: Path, *words: str) -> Ran:
    """Run a worker whose one task sends it the signal *name*."""
    (folder / "a_stopping.py").write_text(STOPPING)
    service.client.create_queue("mail")
    service.client.enqueue("mail", {"task": "a_stopping.stop", "args": {"name": name}}, id="a")
    service.clock.forward(1)
    return work("a_stopping:app", "--shutdown-timeout", "0.5s", *words, service=service)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_it_ends_in_peace_when_it_is_told_to(
    headrace_service: MemoryService, folder: Path, name: str
) -> None:
    ran = stopped_by(name, headrace_service, folder)

    assert ran.code == 0
    assert headrace_service.client.get_task("a").status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a_shop", "'a_shop' names no app: say module:app"),
        ("a_nothing:app", "there is no module a_nothing in "),
        ("a_shop:ap", "a_shop has no ap; its apps: app"),
        ("a_broken:app", "a_broken needs the module no_such_package_at_all"),
    ],
)
def test_an_app_that_is_not_there_is_one_clear_line(name: str, message: str) -> None:
    ran = work(name)

    assert ran.code in (1, 2)
    assert ran.error.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--queues", "mail=x"), "no queue, nor a queue with its weight"),
        (("--concurrency", "0"), "concurrency must be"),
        (("--queues", "mail=3,news", "--strict"), "--strict takes queues in the order given"),
        (("--prometheus", "70000"), "no place to listen such as 9000"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(
    headrace_service: MemoryService, words: tuple[str, ...], message: str
) -> None:
    ran = work("a_shop:app", *words, service=headrace_service)

    assert ran.code == 2
    assert message in ran.error


LOGGING = """
import logging
logging.basicConfig(
    filename="all.log", level="INFO", format="%(name)s says %(message)s", force=True
)
"""


@pytest.mark.parametrize(
    ("setup", "words", "in_file", "on_stderr"),
    [
        (LOGGING, (), "headrace.worker says Worker w takes", ""),
        ("", (), "", "INFO headrace.worker: Worker w takes tasks of mail"),
    ],
)
def test_the_logging_of_the_program_stays(
    folder: Path, setup: str, words: tuple[str, ...], in_file: str, on_stderr: str
) -> None:
    (folder / "all.log").touch()
    (folder / "a_logging.py").write_text(setup + APP)

    ran = subprocess.run(
        [
            *(sys.executable, "-m", "headrace", "--url", f"file:{folder}/queue.db"),
            *("work", "a_logging:app", "--burst", "--name", "w", *words),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "functions")},
    )

    assert in_file in (folder / "all.log").read_text()
    assert bool((folder / "all.log").read_text()) == bool(in_file)
    assert on_stderr in ran.stderr
    assert bool(ran.stderr) == bool(on_stderr)
