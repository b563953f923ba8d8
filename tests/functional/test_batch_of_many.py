"""Very many members over a file: counted exactly, told once, and soon.

`make test-slow` takes ten thousand of them.  For a hundred thousand (two minutes):
HEADRACE_MEMBERS=100000 make test-slow ARGS=tests/functional/test_batch_of_many.py
"""

import os
import time
from pathlib import Path

import pytest

from headrace import Client
from headrace.client.sending import NewTask, Report, SpawnedTask
from headrace.embedded.service import service_on
from headrace.embedded.timers import EmbeddedTimers
from headrace.runtime.wiring import Settings
from headrace.store.call_scope import metered

MEMBERS = int(os.environ.get("HEADRACE_MEMBERS", "10000"))


def test_many_members_are_told_once_and_soon(tmp_path: Path) -> None:
    _many(tmp_path, 1_000)


@pytest.mark.slow
def test_very_many_members_are_told_once_and_soon(tmp_path: Path) -> None:
    _many(tmp_path, MEMBERS)


def _many(folder: Path, members: int) -> None:
    file = folder / "headrace.db"
    embedded = service_on(str(file), Settings(admin_key="test"))
    use = embedded.use
    with Client(f"file:{file}") as client, EmbeddedTimers(embedded, now=use.now):
        client.create_queue("work")
        client.create_queue("told")
        told = SpawnedTask(queue="told", payload="done")
        client.create_batch(id="b", total=members, on_ended=told)
        tasks = (NewTask(payload=number, batches=["b"]) for number in range(members))
        assert sum(1 for _ in client.enqueue_each("work", tasks)) == members
        done = 0
        while leased := client.dequeue("work", batch_size=25).tasks:
            client.report("work", [Report.on(task, "SUCCEEDED") for task in leased])
            done += len(leased)
        ended = time.monotonic()
        assert done == members
        assert client.dequeue("told", wait_seconds=20).tasks
        took = time.monotonic() - ended
        batch = client.get_batch("b")
        assert not client.dequeue("told", wait_seconds=2).tasks
    assert (batch.created, batch.succeeded, batch.live) == (members, members, 0)
    assert took < 5
    with metered() as cost:
        use.task_batches.get("b")
    assert cost.read <= 1  # however many there are
    embedded.close()
