"""Who waits for the end of a task is woken by the commit that ends it, and by no chance missed."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.task import FINISHED
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore

LONG = 20.0  # seconds: nobody who is woken waits so long


class Process:
    """The file as a process has it."""

    def __init__(self, path: str) -> None:
        self.store = SqliteStore(path)
        self.use = build(Settings(admin_key="test"), self.store)

    def put(self, *payloads: str) -> list[str]:
        entries = [TaskSpec(payload) for payload in payloads or ("{}",)]
        return [str(made.id) for made in self.use.tasks.enqueue("mail", entries)]

    def end(self, task_id: str, *, after: float = 0) -> None:
        time.sleep(after)
        self.use.cancelling.cancel(task_id)

    def woken(self, task_id: str, seconds: float) -> bool:
        """Tell whether one is woken within so long, without looking."""
        woken = threading.Event()
        with self.store.ends.told(task_id, woken.set):
            return woken.wait(seconds)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Process]:
    process = Process(str(tmp_path / "headrace.db"))
    process.use.queues.create("mail", QueueSettings())
    yield process
    process.store.close()


@pytest.fixture
def there(here: Process, tmp_path: Path) -> Iterator[Process]:
    process = Process(str(tmp_path / "headrace.db"))
    yield process
    process.store.close()


@pytest.mark.parametrize("by", ["here", "there"])
def test_every_end_wakes_whoever_waits_whenever_it_comes(
    by: str, here: Process, there: Process
) -> None:
    """At moments all around those at which one begins to wait, and looks; others wait too."""
    chance, other = random.Random(7), here if by == "here" else there
    stop = threading.Event()

    def comes_and_goes() -> None:
        (task_id,) = here.put()
        while not stop.is_set():
            here.woken(task_id, chance.uniform(0, 0.01))

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(comes_and_goes) for _ in range(3)]
        for _ in range(60):
            (task_id,) = here.put()
            pause = chance.choice([0, 0, 0.001, 0.002, 0.003, 0.01])
            ending = pool.submit(other.end, task_id, after=pause)
            begun, woken = time.monotonic(), threading.Event()
            with here.store.ends.told(task_id, woken.set):
                while here.use.tasks.get(task_id).state not in FINISHED:
                    assert woken.wait(LONG)
                    woken.clear()
            assert time.monotonic() - begun < LONG / 4
            ending.result()
        stop.set()
        for one in others:
            one.result()


@pytest.mark.parametrize("by", ["here", "there"])
def test_a_task_that_is_deleted_or_not_kept_has_ended(
    by: str, here: Process, there: Process
) -> None:
    other = here if by == "here" else there
    here.use.queues.create("brief", QueueSettings(history_retention_in_seconds=0))
    (deleted,) = here.put()
    brief = str(here.use.tasks.enqueue("brief", [TaskSpec("1")])[0].id)

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(here.woken, task_id, LONG) for task_id in (deleted, brief)]
        time.sleep(0.05)
        other.use.tasks.delete(deleted)
        other.use.tasks.delete(brief)
        assert all(one.result() for one in waiting)


def test_waiters_are_woken_when_the_store_goes_away(here: Process) -> None:
    """Each looks for itself then, and answers with the store's error instead of waiting on."""
    (task_id,) = here.put()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.woken, task_id, LONG)
        time.sleep(0.02)
        here.store.close()
        assert waiting.result()


def test_in_memory_the_commit_alone_tells() -> None:
    here = Process(":memory:")
    here.use.queues.create("mail", QueueSettings())
    (task_id,) = here.put()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.woken, task_id, LONG)
        while not waiting.running():
            time.sleep(0.001)
        time.sleep(0.02)
        here.end(task_id)
        assert waiting.result()
