"""A call that waits is woken by the commit that it waits for, in whatever process, every time."""

import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import FINISHED
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.arrivals import TouchWatch, touch
from tests.forked import in_children
from tests.waiting import until

LONG = 20.0  # seconds: a call that is woken never waits so long
EVERYWHERE = pytest.mark.parametrize("by", ["here", "there"])
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Process:
    """The file as a process has it."""

    def __init__(self, path: str) -> None:
        self.store = SqliteStore(path)
        self.use = build(Settings(admin_key="test"), self.store)

    def put(self, queue: str = "mail", *, after: float = 0) -> str:
        time.sleep(after)
        return str(self.use.tasks.enqueue(queue, [TaskSpec("{}")])[0].id)

    def end(self, task_id: str, *, after: float = 0) -> None:
        time.sleep(after)
        self.use.cancelling.cancel(task_id)

    def seconds_until_leased(self) -> float:
        """Dequeue one task with a long poll; return how long that took."""
        begun = time.monotonic()
        assert self.use.deliveries.dequeue("mail", wait_seconds=LONG).tasks
        return time.monotonic() - begun


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


@EVERYWHERE
def test_every_end_wakes_whoever_waits_whenever_it_comes(
    by: str, here: Process, there: Process
) -> None:
    """The task ends while a call begins to wait, while it looks, and while other calls wait."""
    chance, other = random.Random(7), here if by == "here" else there
    stop = threading.Event()

    def waits_now_and_then() -> None:
        task_id = here.put()
        while not stop.is_set():
            with here.store.task_ends.notify_on_end(task_id, lambda: None):
                stop.wait(chance.uniform(0, 0.01))

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(waits_now_and_then) for _ in range(3)]
        for _ in range(60):
            task_id = here.put()
            pause = chance.choice([0, 0, 0.001, 0.002, 0.003, 0.01])
            ending = pool.submit(other.end, task_id, after=pause)
            begun, woken = time.monotonic(), threading.Event()
            with here.store.task_ends.notify_on_end(task_id, woken.set):
                while here.use.tasks.get(task_id).state not in FINISHED:
                    assert woken.wait(LONG)
                    woken.clear()
            assert time.monotonic() - begun < LONG / 4
            ending.result()
        stop.set()
        for one in others:
            one.result()


@EVERYWHERE
def test_a_task_that_is_deleted_or_not_kept_has_ended(
    by: str, here: Process, there: Process
) -> None:
    other = here if by == "here" else there
    here.use.queues.create("brief", QueueSettings(history_retention_in_seconds=0))
    deleted, brief = here.put(), here.put("brief")

    woken = [threading.Event(), threading.Event()]
    ends = here.store.task_ends
    with ends.notify_on_end(deleted, woken[0].set), ends.notify_on_end(brief, woken[1].set):
        other.use.tasks.delete(deleted)
        other.use.tasks.delete(brief)
        assert all(one.wait(LONG) for one in woken)


@EVERYWHERE
def test_every_task_wakes_a_long_poll_whenever_it_comes(
    by: str, here: Process, there: Process
) -> None:
    chance, other = random.Random(7), here if by == "here" else there
    with ThreadPoolExecutor(1) as pool:
        for _ in range(60):
            pause = chance.choice([0, 0, 0.0005, 0.001, 0.002, 0.003, 0.01])
            arriving = pool.submit(other.put, after=pause)
            assert here.seconds_until_leased() < LONG / 4
            arriving.result()


def test_a_task_goes_to_a_call_that_does_not_poll_and_wakes_no_other(here: Process) -> None:
    arrivals = here.store.arrivals
    with ThreadPoolExecutor(2) as pool:
        polling = pool.submit(here.seconds_until_leased)
        until(lambda: arrivals._poller is not None)  # noqa: SLF001  nothing else shows it
        second = pool.submit(here.seconds_until_leased)
        until(lambda: len(arrivals._calls) == 2)  # noqa: SLF001  likewise
        here.put()
        assert second.result() < LONG / 4
        assert arrivals._poller is not None  # noqa: SLF001  likewise
        here.put()
        assert polling.result() < LONG / 4


def test_a_forked_child_is_woken_although_its_parent_waits_too(
    here: Process, there: Process
) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.seconds_until_leased)
        arriving = [threading.Timer(0.3, there.put), threading.Timer(0.3, there.put)]
        for timer in arriving:
            timer.start()
        (seconds,) = in_children(1, lambda _: here.seconds_until_leased())
        assert seconds < LONG / 4
        assert waiting.result() < LONG / 4


def test_closing_the_store_wakes_whoever_waits(here: Process) -> None:
    """The waiter looks then, and answers with the store's error."""
    woken = threading.Event()
    with here.store.task_ends.notify_on_end(here.put(), woken.set):
        here.store.close()
        assert woken.wait(LONG)


def test_without_notices_of_the_system_a_long_poll_asks_for_tasks_of_other_processes(
    here: Process, there: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "sunos")
    with ThreadPoolExecutor(1) as pool:
        arriving = pool.submit(there.put, after=0.05)
        assert here.seconds_until_leased() < LONG / 4
        arriving.result()


def test_a_file_that_does_not_exist_is_touched_in_vain_and_cannot_be_watched(
    tmp_path: Path,
) -> None:
    touch(tmp_path / "none")
    with pytest.raises(OSError, match="No such file"):
        TouchWatch(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_long_poll_ends_with_an_error_once_the_store_is_closed(here: Process) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.seconds_until_leased)
        threading.Timer(0.1, here.store.close).start()
        with pytest.raises(Unavailable):
            waiting.result()
