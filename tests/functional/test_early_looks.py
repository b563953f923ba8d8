"""Who waits in the process that writes leases a task within the commit that brings it.

Wherever that commit fails, nothing is leased that is not there, and nothing is lost; faults that
this must catch are planted at the end.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.domain.errors import HeadraceError, NotFound, Unavailable
from headrace.domain.fairness import GroupMode, GroupSettings
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DequeuingSettings, QueueSettings
from headrace.domain.repeat import KeyedRequest
from headrace.domain.task import State, Task
from headrace.ops.delivery.dequeue import DequeueResult, _EarlyLook
from headrace.ops.tasks.enqueue import EnqueueResult
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.database import Database
from tests.property.stores import everything

LONG: Final = 20.0  # seconds: nobody who is woken waits so long


@dataclass
class Service:
    """A process that answers over a file, and those who wait in it."""

    path: Path
    store: SqliteStore = field(init=False)
    use: UseCases = field(init=False)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __post_init__(self) -> None:
        self.store = SqliteStore(str(self.path))
        self.use = build(Settings(admin_key="test", poll_after_seconds=LONG), self.store)

    @property
    def database(self) -> Database:
        return self.store._db  # noqa: SLF001  nothing else shows commits

    def enqueue(self, *ids: str, queue: str = "mail", **more: Any) -> list[EnqueueResult]:
        return self.use.tasks.enqueue(queue, [TaskSpec("1", id=each, **more) for each in ids])

    def waits(
        self, queue: str | list[str] = "mail", *, seconds: float | None = None, **call: Any
    ) -> "Waiting":
        """Begin to wait for tasks, and return once that is so."""
        before = self.waiters
        call = {"wait_seconds": LONG if seconds is None else seconds, "worker": "ada:1", **call}
        begun = self.pool.submit(self.use.deliveries.dequeue, queue, **call)
        deadline = time.monotonic() + LONG
        while self.waiters == before and not begun.done():
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        return Waiting(begun)

    @property
    def waiters(self) -> int:
        return len(self.store.arrivals._waiters)  # noqa: SLF001  nothing else shows it

    def gathered(self, count: int) -> None:
        """Wait until so many callers are in line."""
        deadline = time.monotonic() + LONG
        while self.database._jobs.qsize() < count:  # noqa: SLF001  nothing else shows it
            assert time.monotonic() < deadline
            time.sleep(0.0005)

    def tasks(self) -> dict[str, Task]:
        return {task.id: task for task in everything(self.store)}

    @contextmanager
    def commits(self) -> Iterator[list[str]]:
        """Note what is committed in the block."""
        seen: list[str] = []
        writer = self.database._writing()  # noqa: SLF001  likewise
        writer.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
        yield seen
        writer.set_trace_callback(None)

    def close(self) -> None:
        self.pool.shutdown()
        self.store.close()


@dataclass
class Waiting:
    """A dequeue that waits, or has waited."""

    begun: Future[DequeueResult]

    def ids(self) -> list[str]:
        return [task.id for task in self.begun.result(2 * LONG).tasks]

    def one(self) -> Task:
        (task,) = self.begun.result(2 * LONG).tasks
        return task

    def tasks(self) -> Sequence[Task]:
        """Return what it leased: nothing if it heard that the file could not be used."""
        try:
            return self.begun.result(2 * LONG).tasks
        except Unavailable:
            return ()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "headrace.db")
    made.use.queues.create("mail", QueueSettings())
    yield made
    made.close()


# -- what it is for --------------------------------------------------------------------------------


def test_a_task_is_leased_by_the_commit_that_brings_it(service: Service) -> None:
    waiting = service.waits()

    with service.commits() as commits:
        service.enqueue("a")
        assert waiting.ids() == ["a"]

    assert commits == ["COMMIT"]
    task = service.tasks()["a"]
    assert (task.state, task.worker, task.attempts) == (State.INFLIGHT, "ada:1", 1)
    (leased,) = waiting.begun.result().tasks
    assert leased.lease_id == task.lease_id


def test_its_history_is_that_of_any_other(service: Service) -> None:
    waiting = service.waits()
    service.enqueue("a")
    waiting.ids()

    writes = service.store.writes(after=0, limit=10)
    states = [[side and side.spot and side.spot[1] for side in (w.before, w.after)] for w in writes]
    assert states == [[None, State.ENQUEUED], [State.ENQUEUED, State.INFLIGHT]]


def test_who_has_waited_longest_is_first_and_nobody_else_is_disturbed(service: Service) -> None:
    first, second = service.waits(), service.waits()
    numbers = service.store.arrivals.numbers(["mail"])

    service.enqueue("a")

    assert first.ids() == ["a"]
    assert service.store.arrivals.numbers(["mail"]) == numbers
    assert not second.begun.done()
    service.enqueue("b")
    assert second.ids() == ["b"]


def test_what_one_leaves_is_for_the_others(service: Service) -> None:
    waiting = [service.waits(batch_size=2) for _ in range(3)]

    service.enqueue("a", "b", "c", "d", "e")

    assert sorted(chain.from_iterable(each.ids() for each in waiting)) == ["a", "b", "c", "d", "e"]


def test_of_several_enqueues_in_one_commit_each_has_its_waiter(service: Service) -> None:
    waiting = [service.waits() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(service.enqueue, "abcd"))

    assert sorted(chain.from_iterable(each.ids() for each in waiting)) == ["a", "b", "c", "d"]


def test_who_waits_for_several_queues_has_the_one_that_comes(service: Service) -> None:
    service.use.queues.create("news", QueueSettings())
    waiting = service.waits(["news", "mail"])
    service.enqueue("a")

    assert waiting.ids() == ["a"]


def test_a_repeat_under_the_key_has_the_same_task(service: Service) -> None:
    request = KeyedRequest("key_1", "k", "f")

    def batch() -> Any:
        return service.use.batches.of(request, within=timedelta(seconds=60))

    waiting = service.waits(batch=batch())
    with service.commits() as commits:
        service.enqueue("a")
        (first,) = waiting.begun.result(2 * LONG).tasks
    again = service.use.deliveries.dequeue("mail", worker="ada:1", batch=batch())

    assert commits == ["COMMIT"]
    assert [task.lease_id for task in again.tasks] == [first.lease_id]


def test_a_task_that_is_due_later_is_waited_for(service: Service) -> None:
    waiting = service.waits()
    service.enqueue("a", scheduled_at=service.use.now() + timedelta(seconds=0.2))

    assert waiting.ids() == ["a"]
    assert service.tasks()["a"].due_at <= service.use.now()


LIMIT: Final = DequeuingSettings(max_inflight_tasks=1)


@pytest.mark.parametrize("more", ["groups", "a limit", "a lease of many"])
def test_where_more_is_to_be_looked_at_it_is_leased_behind_the_commit(
    more: str, service: Service
) -> None:
    groups = GroupSettings(GroupMode.FAIR) if more == "groups" else None
    limit = LIMIT if more == "a limit" else DequeuingSettings()
    service.use.queues.create("other", QueueSettings(groups=groups, dequeuing_settings=limit))
    lease = service.use.leases.open(None, keepalive=30).id if more == "a lease of many" else None
    waiting = service.pool.submit(
        service.use.deliveries.dequeue, "other", wait_seconds=LONG, worker="ada:1", lease_id=lease
    )
    time.sleep(0.05)
    assert service.waiters == 0
    service.enqueue("a", queue="other")

    assert Waiting(waiting).ids() == ["a"]


def test_so_it_is_where_a_limit_is_set_meanwhile(service: Service) -> None:
    waiting = service.waits()
    service.use.queues.replace("mail", QueueSettings(dequeuing_settings=LIMIT))
    with service.commits() as commits:
        service.enqueue("a")
        assert waiting.ids() == ["a"]

    assert len(commits) > 1


def test_a_queue_that_was_paused_or_deleted_meanwhile_gives_nothing(service: Service) -> None:
    waiting = service.waits(seconds=0.5)
    service.use.queues.pause("mail")
    service.enqueue("a")
    assert waiting.ids() == []

    service.use.queues.resume("mail")
    assert service.waits().ids() == ["a"]
    waiting = service.waits()
    service.store.drop_record("queue", "mail")
    service.use.queues._cache.clear()  # noqa: SLF001  as it is some seconds later
    with pytest.raises(NotFound):
        service.enqueue("b")
    assert service.waiters == 1 or waiting.begun.done()
    service.use.queues.create("mail", QueueSettings())
    service.enqueue("c")
    assert waiting.ids() == ["c"]


# -- where the commit fails ------------------------------------------------------------------------


class _BrokenOff:
    """Breaks off the n-th step of what the thread that writes does from now on.

    The commit itself is left alone: what breaks off there may have happened.
    """

    def __init__(self, database: Database, step: int) -> None:
        self._writer = database._writing()  # noqa: SLF001  its own
        self._left = step
        self.happened = False
        self._writer.set_progress_handler(self._step, 1)  # at each step of SQLite's machine
        self._writer.set_trace_callback(lambda text: self.over() if text == "COMMIT" else None)

    def _step(self) -> int:
        self._left -= 1
        self.happened = self.happened or self._left == 0
        return self._left == 0

    def over(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # it was closed, and another opened
            self._writer.set_progress_handler(None, 1)


STEPS: Final = range(1, 10_000)  # more than there are


def broken_off(
    path: Path, once: Callable[[Service, int], _BrokenOff], every: int, **queues: QueueSettings
) -> int:
    """Do *once* with a fault at *every* n-th step in turn; return how many steps there are."""
    service = Service(path)
    for name, settings in queues.items():
        service.use.queues.create(name, settings)
    try:
        for step in STEPS[::every]:
            fault = once(service, step)
            service.database.write(lambda db: db.execute("DELETE FROM tasks"))
            if not fault.happened:
                return step
    finally:
        service.close()
    raise AssertionError("it never came to an end")


def broken_off_everywhere(path: Path, every: int = 1) -> int:
    """Break off the commit of an enqueue that somebody waits for."""

    def once(service: Service, step: int) -> _BrokenOff:
        waiting = service.waits()
        fault = _BrokenOff(service.database, step)
        expected = {"one", "two"}
        try:
            service.enqueue("one", "two")  # of which one is left, so that others are to know
        except Unavailable:
            assert service.tasks() == {}
            fault.over()
            expected = {"one", "two"} if step % 2 else {"another", "two"}
            service.enqueue(*sorted(expected))
        fault.over()
        leased = [*waiting.tasks()]
        while len(leased) < len(expected):  # who waited may have heard of it
            leased.append(service.waits().one())
        assert {task.id for task in leased} == expected == set(service.tasks())
        for task in leased:
            stored = service.tasks()[task.id]
            assert (stored.state, stored.attempts) == (State.INFLIGHT, 1)
            assert stored.lease_id == task.lease_id
        return fault

    return broken_off(path, once, every, mail=QueueSettings())


def broken_off_in_the_second_lease(path: Path, every: int = 1) -> int:
    """Do so where a look leases from two shards and another queue, one write after the other."""

    def once(service: Service, step: int) -> _BrokenOff:
        service.use.queues.pause("news")
        service.enqueue("news", queue="news")
        waiting = service.waits(["mail", "news"], batch_size=9)
        service.use.queues.resume("news")  # which wakes nobody
        fault = _BrokenOff(service.database, step)
        with suppress(Unavailable):
            service.enqueue("a", "b", "c", "d")  # of both shards
        fault.over()
        service.enqueue("last", queue="mail")
        leased = {task.id for task in waiting.tasks()}
        assert leased == {
            id for id, task in service.tasks().items() if task.state is State.INFLIGHT
        }
        return fault

    return broken_off(path, once, every, mail=QueueSettings(shards=2), news=QueueSettings())


def test_a_commit_that_is_broken_off_leaves_nobody_with_what_is_not_there(tmp_path: Path) -> None:
    assert broken_off_everywhere(tmp_path / "headrace.db", every=7) > 200


@pytest.mark.slow
def test_wherever_it_is_broken_off(tmp_path: Path) -> None:
    assert broken_off_everywhere(tmp_path / "headrace.db") > 200


@pytest.mark.slow
def test_nothing_is_leased_by_what_comes_behind_a_write_that_has_undone_all(tmp_path: Path) -> None:
    assert broken_off_in_the_second_lease(tmp_path / "headrace.db", every=11) > 200


def fails_beside_it(service: Service) -> None:
    """Enqueue in one transaction with work that raises; each is done by itself then."""
    waiting = service.waits()
    go, begun = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        begun.set()
        go.wait(LONG)

    def fail(_: sqlite3.Connection) -> None:
        raise HeadraceError("no")

    holding = service.pool.submit(service.database.write, hold)
    begun.wait(LONG)
    enqueued = service.pool.submit(service.enqueue, "a")
    service.gathered(1)
    failing = service.pool.submit(service.database.write, fail)
    service.gathered(2)
    go.set()

    holding.result(LONG)
    assert isinstance(failing.exception(LONG), HeadraceError)
    assert enqueued.result(LONG)[0].id == "a"
    assert waiting.ids() == ["a"]
    assert service.tasks()["a"].attempts == 1


def test_what_fails_beside_it_undoes_it_and_it_is_leased_all_the_same(service: Service) -> None:
    fails_beside_it(service)


def test_who_waits_hears_of_what_is_wrong_and_who_enqueues_does_not(service: Service) -> None:
    allowed = [True]

    def still_may() -> None:
        if not allowed[0]:
            raise HeadraceError("the key is not known any more")

    waiting = service.waits(still_may=still_may)
    allowed[0] = False
    service.enqueue("a")

    with pytest.raises(HeadraceError, match="not known any more"):
        waiting.ids()
    assert service.tasks()["a"].state is State.ENQUEUED
    assert service.waits().ids() == ["a"]


def test_who_meets_an_error_while_it_is_looked_for_has_what_was_taken(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, failed = threading.Event(), threading.Event()

    def numbers(self: ArrivalNumbers, queues: Any) -> Any:
        if fails.is_set() and threading.current_thread().name.startswith("ThreadPool"):
            failed.set()
            deadline = time.monotonic() + LONG
            while not self._waiters[0].looking and time.monotonic() < deadline:
                time.sleep(0.0005)
            raise Unavailable("no file can be opened")
        return right(self, queues)

    right = ArrivalNumbers.numbers
    waiting = service.waits()
    monkeypatch.setattr(ArrivalNumbers, "numbers", numbers)
    fails.set()
    service.store.arrivals.ring()
    failed.wait(LONG)
    enqueued = threading.Thread(target=service.enqueue, args=["a"])
    enqueued.start()

    assert waiting.ids() == ["a"]
    enqueued.join()


def test_who_was_interrupted_while_it_waited_is_looked_for_no_more_in_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = service.waits(seconds=0.2)
    monkeypatch.setattr(ArrivalNumbers, "_leave", lambda *_: None)  # it never came so far
    assert waiting.ids() == []
    monkeypatch.undo()
    assert service.waiters == 1

    next_one = service.pool.submit(service.use.deliveries.dequeue, "mail", wait_seconds=LONG)
    deadline = time.monotonic() + LONG
    while not service.store.arrivals._waiters[-1].waits:  # noqa: SLF001  nothing else shows it
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    service.enqueue("a")
    assert Waiting(next_one).ids() == ["a"]
    assert service.waiters == 0


def test_who_gives_up_waiting_at_that_moment_has_the_task_or_leaves_it(service: Service) -> None:
    for number in range(60):
        name = f"t-{number}"
        waiting = service.waits(seconds=0.004)
        time.sleep(0.0001 * (number % 50))
        service.enqueue(name)
        had = waiting.ids()
        assert had == [name] or service.waits().ids() == [name]
        assert service.tasks()[name].attempts == 1


# -- planted faults --------------------------------------------------------------------------------


FOUND: Final = (AssertionError, ValueError, TimeoutError)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let whoever waits in vain do so for a second."""
    monkeypatch.setattr("tests.functional.test_early_looks.LONG", 1.0)
    return monkeypatch


@pytest.mark.slow
def test_who_forgets_to_undo_is_found(service: Service, impatient: pytest.MonkeyPatch) -> None:
    impatient.setattr(_EarlyLook, "undo", lambda _: None)
    with pytest.raises(FOUND):
        fails_beside_it(service)


@pytest.mark.slow
def test_who_answers_before_the_commit_is_found(
    tmp_path: Path, impatient: pytest.MonkeyPatch
) -> None:
    impatient.setattr(Database, "when_over", lambda _, tell: tell(stands=True))
    with pytest.raises(FOUND):
        broken_off_everywhere(tmp_path / "headrace.db", every=7)


@pytest.mark.slow
def test_who_does_not_see_that_all_is_undone_is_found(
    tmp_path: Path, impatient: pytest.MonkeyPatch
) -> None:
    impatient.setattr(Database, "_check_under_way", lambda *_: None)
    with pytest.raises(FOUND):
        broken_off_in_the_second_lease(tmp_path / "headrace.db", every=11)
