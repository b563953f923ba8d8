"""`headrace work`: finding the app, and what is wrong when there is none."""

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

FORGETFUL = f"{APP}@app.periodic(every=60)\ndef report() -> None: ...\n"
TWICE = f"{APP}beat = app.periodic(every=60)\n@beat\n@beat\n@app.task\ndef f() -> None: ...\n"


@pytest.fixture(autouse=True)
def folder(
    logging_as_before: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Work in a folder with modules; forget them afterwards."""
    known = set(sys.modules)
    (tmp_path / "a_shop.py").write_text(APP)
    (tmp_path / "a_broken.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "a_twice.py").write_text(TWICE)
    (tmp_path / "a_forgetful.py").write_text(FORGETFUL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("a_"):
            del sys.modules[name]


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a_broken_app", "there is no module a_broken_app in "),
        (":app", "':app' names no app: say MODULE or MODULE:APP"),
        ("a_nothing:app", "there is no module a_nothing in "),
        ("a_shop:ap", "a_shop has no ap; its apps: app"),
        ("a_broken:app", "a_broken needs the module no_such_package_at_all"),
        ("a_twice", "a_twice cannot be imported: ValueError: two schedules are named a_twice.f"),
        ("a_forgetful", "a_forgetful.report is periodic but no task: add @app.task"),
    ],
)
def test_an_app_that_is_not_there_is_one_clear_line(name: str, message: str) -> None:
    ran = work(name)

    assert ran.code in (1, 2)
    assert ran.error.startswith(f"error: {message}")
    assert "headrace/client" not in ran.error  # a line of the program is named


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--queues", "mail=x"), "no queue, nor a queue with its weight"),
        (("--concurrency", "0"), "concurrency must be"),
        (("--queues", "mail=3,news", "--strict"), "--strict takes queues in the order given"),
        (("--prometheus", "70000"), "must be a port or address, for example 9000"),
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


def test_the_logging_of_the_program_stays(folder: Path) -> None:
    (folder / "a_logging.py").write_text(LOGGING + APP)

    ran = subprocess.run(
        [
            *(sys.executable, "-m", "headrace", "--url", f"file:{folder}/queue.db"),
            *("work", "a_logging:app", "--burst", "--name", "w"),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "functions")},
    )

    assert "headrace.worker says Worker w takes" in (folder / "all.log").read_text()
    assert ran.stderr == ""
