"""The page about the architecture shows the path that calls really take."""

import re
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headrace
from headrace import Client, Report

PACKAGE = Path(headrace.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
MODULES = {"Enqueue": 32, "Dequeue": 41, "Report": 36}
"""The most modules of the package that may run in one call, the SDK included."""

Calls = list[tuple[str, str]]


noted: ContextVar[Calls | None] = ContextVar("noted", default=None)
"""What runs in a call; a dequeue's claim runs in another thread, in the context of the call."""


def note(frame: FrameType, event: str, _: Any) -> None:
    calls, path = noted.get(), Path(frame.f_code.co_filename)
    if calls is not None and event == "call" and path.is_relative_to(PACKAGE):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        calls.append((module, frame.f_code.co_qualname))


def traced(call: Callable[[], object]) -> Calls:
    """Return the functions of the package that run in *call*: module and qualified name."""
    calls = Calls()
    token = noted.set(calls)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        noted.reset(token)
    return calls


def modules(calls: Calls) -> int:
    return len({module for module, _ in calls})


def life(client: Client) -> dict[str, Calls]:
    """Return the path of each operation."""
    enqueued = traced(lambda: client.enqueue("mail", {"to": "ada"}))
    dequeued = traced(lambda: client.dequeue("mail", batch_size=1))
    client.enqueue("mail", {"to": "bob"})
    (task,) = client.dequeue("mail", batch_size=1).tasks
    report = Report.on(task, "SUCCEEDED", result={"sent": True})
    reported = traced(lambda: client.report("mail", [report]))
    return {"Enqueue": enqueued, "Dequeue": dequeued, "Report": reported}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Calls]:
    """Return the shortest of several paths: everything is imported, and settings are cached."""
    threading.setprofile(note)  # for the thread that writes to the file
    try:
        with Client(f"file:{tmp_path_factory.mktemp('architecture')}/tasks.db") as client:
            client.create_queue("mail")
            lives = [life(client) for _ in range(10)]
    finally:
        threading.setprofile(None)
    return {name: min((one[name] for one in lives), key=modules) for name in MODULES}


@pytest.mark.parametrize("operation", MODULES)
def test_every_function_of_the_page_runs_in_its_call(
    paths: dict[str, Calls], operation: str
) -> None:
    section = PAGE.read_text().partition(f"### {operation}\n")[2].partition("\n## ")[0]
    row = re.compile(r"^\| `([\w.]+)` \| `([\w.]+)` \|", re.MULTILINE)
    rows = row.findall(section.partition("\n### ")[0])

    assert len(rows) > 10
    for package, function in rows:
        assert any(
            module.startswith(f"{package}.") and name == function
            for module, name in paths[operation]
        ), f"{package}: {function}"


@pytest.mark.parametrize("operation", MODULES)
def test_a_call_runs_in_few_modules(paths: dict[str, Calls], operation: str) -> None:
    assert modules(paths[operation]) <= MODULES[operation], sorted({*paths[operation]})
