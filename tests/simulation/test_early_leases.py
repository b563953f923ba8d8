"""A worker that waits is leased a task by the transaction that brings it, or by none.

In the simulation no process waits within another's transaction: that takes real threads.  Each
story is told with its fault planted, too.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State, Task
from headrace.runtime import service
from headrace.runtime.wiring import Settings, build
from headrace.store.sqlite import SqliteStore
from tests.every_task import everything
from tests.simulation.planted import planted
from tests.waiting import until

LONG: Final = 5.0  # seconds
EVERY: Final = 11
"""Every how many steps of SQLite's machine a commit is broken off."""


@dataclass
class Service:
    """A process over a file, and workers that wait in it."""

    path: Path
    queues: dict[str, QueueSettings] = field(default_factory=lambda: {"mail": QueueSettings()})
    store: Any = field(init=False)
    use: service.Service = field(init=False)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __post_init__(self) -> None:
        self.store = SqliteStore(str(self.path))
        self.use = build(Settings(admin_key="test", poll_after_seconds=LONG), self.store)
        for name, settings in self.queues.items():
            self.use.queues.create(name, settings)

    def enqueue(self, *ids: str, queue: str = "mail") -> None:
        self.use.tasks.enqueue(queue, [TaskSpec("1", id=each) for each in ids])

    def waits(self, *queues: str, batch_size: int = 1) -> "Future[Any]":
        """Let a worker begin to wait."""
        before, waiters = len(self.store.arrivals._calls), self.store.arrivals  # noqa: SLF001  nothing else shows it
        begun = self.pool.submit(
            self.use.deliveries.dequeue,
            list(queues) or "mail",
            wait_seconds=LONG,
            batch_size=batch_size,
            worker="ada:1",
        )
        until(lambda: len(waiters._calls) > before or begun.done())  # noqa: SLF001  likewise
        return begun

    def tasks(self) -> dict[str, Task]:
        return {task.id: task for task in everything(self.store)}


def leased(waiting: "Future[Any]") -> Sequence[Task]:
    """Return what the worker was given: nothing if it heard that the file could not be used."""
    try:
        tasks: Sequence[Task] = waiting.result(2 * LONG).tasks
    except Unavailable:
        return ()
    return tasks


def a_write_fails_in_the_same_transaction(path: Path) -> None:
    service = Service(path)
    waiting = service.waits()
    go, begun = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        begun.set()
        go.wait(LONG)

    def fail(_: sqlite3.Connection) -> None:
        raise HeadraceError("no")

    database = service.store._db  # noqa: SLF001  what writes in one transaction
    service.pool.submit(database.write, hold)
    begun.wait(LONG)
    enqueued = service.pool.submit(service.enqueue, "a")
    until(lambda: database._jobs.qsize() >= 1)  # noqa: SLF001  likewise
    failing = service.pool.submit(database.write, fail)
    until(lambda: database._jobs.qsize() >= 2)  # noqa: SLF001  likewise
    go.set()
    assert isinstance(failing.exception(LONG), HeadraceError)
    enqueued.result(LONG)
    (task,) = leased(waiting)
    assert task.lease_id == service.tasks()["a"].lease_id


class BrokenOff:
    """Breaks off the n-th step of the thread that writes; not the commit: it may have happened."""

    def __init__(self, service: Service, step: int) -> None:
        self._writer = service.store._db._writing()  # noqa: SLF001  nothing else shows commits
        self._left = step
        self.happened = False
        self._writer.set_progress_handler(self._step, 1)
        self._writer.set_trace_callback(lambda text: self.over() if text == "COMMIT" else None)

    def _step(self) -> int:
        self._left -= 1
        self.happened = self.happened or self._left == 0
        return self._left == 0

    def over(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # it was closed, and another opened
            self._writer.set_progress_handler(None, 1)


def a_transaction_is_broken_off(path: Path) -> None:
    service = Service(path)
    for step in range(1, 10_000, EVERY):
        waiting = service.waits()
        fault = BrokenOff(service, step)
        try:
            service.enqueue("one", "two")  # of which one is left, for others
        except Unavailable:
            assert service.tasks() == {}
            fault.over()
            service.enqueue("one", "two")
        fault.over()
        found = [*leased(waiting)]
        while len(found) < 2:
            found += leased(service.waits())
        stored = service.tasks()
        assert {task.id: task.lease_id for task in found} == {
            id_: task.lease_id for id_, task in stored.items()
        }
        assert {(task.state, task.attempts) for task in stored.values()} == {(State.INFLIGHT, 1)}
        service.store._db.write(lambda db: db.execute("DELETE FROM tasks"))  # noqa: SLF001  likewise
        if not fault.happened:
            return


def the_second_lease_of_a_transaction_is_broken_off(path: Path) -> None:
    service = Service(path, {"mail": QueueSettings(shards=2), "news": QueueSettings()})
    for step in range(1, 10_000, EVERY):
        service.use.queues.pause("news")
        service.enqueue("news", queue="news")
        waiting = service.waits("mail", "news", batch_size=9)
        service.use.queues.resume("news")  # which wakes no worker
        fault = BrokenOff(service, step)
        with suppress(Unavailable):
            service.enqueue("a", "b", "c", "d")  # of both shards
        fault.over()
        service.enqueue("last")
        inflight = {one for one, task in service.tasks().items() if task.state is State.INFLIGHT}
        found = {task.id for task in leased(waiting)}
        assert found >= inflight
        service.store._db.write(lambda db: db.execute("DELETE FROM tasks"))  # noqa: SLF001  likewise
        if not fault.happened:
            return


STORIES: Final[list[tuple[str, Callable[[Path], None]]]] = [
    (
        "a lease for a waiting worker is not undone with its transaction",
        a_write_fails_in_the_same_transaction,
    ),
    ("a waiting worker is answered before the commit", a_transaction_is_broken_off),
    (
        "a waiting worker does not notice that its transaction is over",
        the_second_lease_of_a_transaction_is_broken_off,
    ),
]


@pytest.mark.parametrize(
    "story",
    [
        a_write_fails_in_the_same_transaction,
        a_transaction_is_broken_off,
        pytest.param(the_second_lease_of_a_transaction_is_broken_off, marks=pytest.mark.slow),
    ],
)
def test_a_worker_has_what_is_committed(tmp_path: Path, story: Callable[[Path], None]) -> None:
    story(tmp_path / "headrace.db")


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "story"), STORIES)
def test_a_planted_fault_is_found(
    tmp_path: Path, fault: str, story: Callable[[Path], None]
) -> None:
    with planted(fault), pytest.raises((AssertionError, ValueError, TimeoutError)):
        story(tmp_path / "headrace.db")
