"""A relative `file:` URL names one file, whatever folder the process changes to later."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headrace import AsyncClient, Client
from headrace.domain.errors import NotFound

SHOP = """
import os
from headrace import App

app = App(queue="mail")
app.queue("later")

@app.task
def first():
    os.chdir("elsewhere")
    os.environ["HEADRACE_URL"] = "file:wrong.db"
    second.enqueue()

@app.task(queue="later")
def second():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a program, and the folder that its handler changes to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def run(folder: Path, *command: str) -> None:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    environment = {**os.environ, "HEADRACE_URL": "file:tasks.db", "PYTHONPATH": path}
    subprocess.run([sys.executable, *command], cwd=folder, env=environment, check=True, timeout=60)


def waiting(folder: Path) -> int:
    """Return how many tasks the handlers have enqueued in the first file."""
    assert not list(folder.rglob("wrong.db"))
    assert [path.relative_to(folder) for path in folder.rglob("tasks.db")] == [Path("tasks.db")]
    with Client(f"file:{folder}/tasks.db") as client:
        return client.count_tasks("later").count


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--isolate"], []], ids=["children", "threads"])
def test_a_handler_that_changes_folder_enqueues_into_the_workers_file(
    folder: Path, options: list[str]
) -> None:
    enqueue = "import shop; shop.app.ensure_queues(); shop.first.enqueue()"
    run(folder, "-c", textwrap.dedent(enqueue))

    run(folder, "-m", "headrace", "work", "shop:app", "--burst", "--queues", "mail", *options)

    assert waiting(folder) == 1


# -- calls over a file -----------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file:{tmp_path}/headrace.db"


def test_any_request_reaches_the_service_as_over_http(url: str) -> None:
    with Client(url) as client:
        client.create_queue("mail")
        for number in range(3):
            client.enqueue("mail", number)

        assert len(client.call("GET", "/v1/queues/mail/tasks?limit=2#top")["tasks"]) == 2
        assert len(client.call("GET", "/v1/queues/mail/tasks", params={"limit": "1"})["tasks"]) == 1
        with pytest.raises(NotFound, match="größe"):
            client.call("GET", "/v1/queues/größe")
        with pytest.raises(NotFound, match=r"no queue a b"):
            client.call("GET", "/v1/queues/a%20b")


def test_an_event_loop_goes_on_while_a_call_waits(url: str) -> None:
    async def story() -> object:
        async with AsyncClient(url) as client:
            await client.create_queue("mail")
            waiting = asyncio.ensure_future(client.dequeue("mail", wait_seconds=10))
            await client.get_queue("mail")
            assert not waiting.done()
            await client.enqueue("mail", "now")
            (task,) = (await waiting).tasks
            return task.payload

    assert asyncio.run(story()) == "now"
