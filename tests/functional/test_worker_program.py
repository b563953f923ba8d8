"""Programs that are their own workers, with child processes: scripts, modules and packages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.client.client import Client
from infra import PROJECT_ROOT
from infra.launch import Launched

pytestmark = pytest.mark.slow

PROGRAM = """
import logging

from headrace import App, Worker

app = App()


@app.task(queue="{queue}", max_retries=0)
def hi(name: str) -> str:
    logging.getLogger("shop").warning("hello %s", name)
    if name == "eve":
        raise ValueError("no such name")
    return f"hi {{name}}"


if __name__ == "__main__":
    hi.enqueue("ada")
    hi.enqueue("eve")
    Worker(app, isolate=True, concurrency=1, log_format="json", {settings}).run(burst=True)
"""


def run(
    service: Launched, folder: Path, *program: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in *folder*."""
    return subprocess.run(
        [sys.executable, *program],
        cwd=folder,
        env={
            **os.environ,
            "HEADRACE_URL": service.url,
            "HEADRACE_KEY": service.admin_key,
            "PYTHONPATH": os.pathsep.join([str(PROJECT_ROOT / "functions"), str(folder)]),
        },
        check=check,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("file", "program", "name"),
    [
        ("iso.py", ["iso.py"], "iso.hi"),
        ("shop/work.py", ["-m", "shop.work"], "shop.work.hi"),
        ("shop/__main__.py", ["-m", "shop"], "shop.hi"),
    ],
)
def test_a_program_with_isolation_runs_what_it_has_enqueued(
    service: Launched, tmp_path: Path, file: str, program: list[str], name: str
) -> None:
    queue = name
    source = tmp_path / file
    source.parent.mkdir(exist_ok=True)
    source.write_text(PROGRAM.format(queue=queue, settings=""))

    ended = run(service, tmp_path, *program)

    with Client(service.url, service.admin_key) as client:
        tasks = {
            task.payload["args"]["name"]: client.get_task(task.id)
            for task in client.list_tasks(queue, payload=True)
        }
    assert tasks["ada"].payload["task"] == name
    assert tasks["ada"].result == "hi ada", tasks["ada"].errors
    assert tasks["eve"].errors[0].type == "ValueError"
    lines = [json.loads(line) for line in ended.stderr.splitlines()]  # the child's among them
    assert {line["message"] for line in lines} >= {"hello ada", "hello eve", f"{name} failed"}
    for line in lines:  # the handler's own lines say whose they are
        if line["message"].startswith("hello"):
            assert (line["queue"], line["attempt"], line["task_name"]) == (queue, 1, name)
            assert line["task_id"] == tasks[line["message"].removeprefix("hello ")].id
    (dead,) = [line for line in lines if "is dead" in line["message"]]
    assert dead["message"].endswith("s and is dead: no retries left")
    (ready,) = [line for line in lines if "takes tasks of" in line["message"]]
    assert ready["message"].endswith(f"takes tasks of {queue} at {service.url}, 1 at a time")
