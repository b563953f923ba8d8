"""Many at once on the real engine, and on one file: every race has one winner, counted once.

Long, because each kind of race runs on the threads, services and processes laid out here.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from headrace.domain.change import Change
from headrace.domain.errors import QueueExists
from headrace.domain.lifecycle import Action
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.domain.worker import WorkerHeartbeat
from headrace.local.tables import TableNames
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.runtime.wiring import Settings, UseCases, build, utc_now
from headrace.store.base import Done, Outcome
from headrace.store.dynamo import DynamoStore, Sender
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import lease_name
from tests.forked import in_children
from tests.manual_clock import ManualClock

T = TypeVar("T")
THREADS = 16
TASKS = 300
AT_ONCE = RetryStrategy(Backoff.FIXED, max_retries=9, base_seconds=0, jitter=0)
On = Sender | Literal["file"]
SENDERS: list[On] = ["batch", "single"]
PROCESSES = 8


@dataclass
class Races:
    """How many deliveries were tried, and how many of these writes were lost to somebody else."""

    tried: int = 0
    lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        won = [
            isinstance(outcome, Done)
            for change, outcome in zip(changes, outcomes, strict=True)
            if change.rule.action is Action.DEQUEUE
        ]
        with self._lock:
            self.tried += len(won)
            self.lost += won.count(False)

    @property
    def share(self) -> float:
        return self.lost / self.tried if self.tried else 0.0


class WatchedTable(DynamoStore):
    """The real store; what becomes of deliveries is counted."""

    races: Races

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        outcomes = super().commit(changes, **how)
        self.races.count(changes, outcomes)
        return outcomes


class WatchedFile(SqliteStore):
    """Likewise, on a file."""

    races: Races

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        outcomes = super().commit(changes, **how)
        self.races.count(changes, outcomes)
        return outcomes


@dataclass
class Engine:
    """Makes services on the same tables, or file: one for threads to share, or one each."""

    request: pytest.FixtureRequest
    path: Path
    races: Races = field(default_factory=Races)
    files: list[SqliteStore] = field(default_factory=list)

    def service(self, on: On = "batch", *, now: Callable[[], datetime] = utc_now) -> UseCases:
        store = self._file(now) if on == "file" else self._table(on)
        store.races = self.races
        return build(Settings(admin_key="test", poll_after_seconds=0), store, now=now)

    def _file(self, now: Callable[[], datetime]) -> WatchedFile:
        store = WatchedFile(str(self.path), now=now)
        self.files.append(store)
        return store

    def _table(self, sender: Sender) -> WatchedTable:
        tables: TableNames = self.request.getfixturevalue("tables")
        return WatchedTable(
            self.request.getfixturevalue("raw_dynamodb" if sender == "batch" else "dynamodb"),
            tasks_table=tables.tasks,
            control_table=tables.control,
            sender=sender,
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Race on one file, or on tables with either sender."""
    on_tables = metafunc.config.getoption("--engine") == "dynamodb"
    if "on" in metafunc.fixturenames:
        metafunc.parametrize("on", SENDERS if on_tables else ["file"])
    if "as_wired" in metafunc.fixturenames:
        metafunc.parametrize("as_wired", SENDERS[:1] if on_tables else ["file"])


@pytest.fixture
def on_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    on_engine = Engine(request, tmp_path / "headrace.db")
    yield on_engine
    for file in on_engine.files:
        file.close()


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """Start *work* on *count* threads at the same moment and return what each made of it."""
    ready = threading.Barrier(count)

    def start(number: int) -> T:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def fill(use: UseCases, queue: str, count: int) -> list[str]:
    """Enqueue *count* tasks and return their ids."""
    ids: list[str] = []
    while len(ids) < count:
        batch = [TaskSpec("{}")] * min(25, count - len(ids))
        ids += [str(result.id) for result in use.tasks.enqueue(queue, batch)]
    return ids


def work_off(
    use: UseCases, queue: str, batch_size: int, left: "Left", worker: str = "ada"
) -> list[Task]:
    """Take tasks and report on them until every task was delivered to somebody."""
    mine: list[Task] = []
    while left.any():
        tasks = use.deliveries.dequeue(queue, batch_size=batch_size, worker=worker).tasks
        left.less(len(tasks))
        mine += tasks
        reports = [
            TaskReport(task.id, str(lease_name(task)), ReportStatus.SUCCEEDED) for task in tasks
        ]
        for result in use.reports.report(queue, reports):
            assert result.outcome is ReportOutcome.OK
    return mine


@dataclass
class Left:
    """How many tasks nobody was handed yet; gives up when that does not become less."""

    count: int
    patience_seconds: float = 20.0
    _since: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def less(self, taken: int) -> None:
        with self._lock:
            self.count -= taken
            if taken:
                self._since = time.monotonic()

    def any(self) -> bool:
        waited = time.monotonic() - self._since
        assert waited < self.patience_seconds, f"{self.count} tasks are never delivered"
        return self.count > 0


def assert_each_once(use: UseCases, ids: list[str], delivered: list[list[Task]]) -> None:
    """Check that every task was delivered to one worker, once, and that none is lost."""
    times = Counter(task.id for tasks in delivered for task in tasks)
    assert times == Counter(ids)
    leases = {task.lease_id for tasks in delivered for task in tasks}
    assert len(leases) == len(ids)
    counted = use.inspect.count("race").by_state
    assert counted == {state: len(ids) * (state is State.SUCCEEDED) for state in SHOWN_STATES}
    assert all(use.tasks.store.read([id_])[id_].attempts == 1 for id_ in ids[::50])


@pytest.mark.gate
def test_sixteen_threads_of_one_service_are_handed_each_task_once(
    on_engine: Engine, as_wired: On, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hardly any delivery is lost, so that it is one how the senders tell of it."""
    use = on_engine.service(as_wired)
    use.queues.create("race", QueueSettings())
    ids = fill(use, "race", TASKS)
    left = Left(len(ids))

    delivered = together(
        THREADS, lambda number: work_off(use, "race", (1, 3, 10, 25)[number % 4], left)
    )

    assert_each_once(use, ids, delivered)
    say(capsys, f"one service, {as_wired}", on_engine.races)
    assert on_engine.races.share < 0.05


def test_sixteen_services_are_handed_each_task_once(
    on_engine: Engine, on: On, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in as many Lambda containers: none knows what the others are about to take.

    This race is over while the services still find out how many they are, and nobody works on the
    tasks: about 60 % are lost.  Workers that take 20 to 60 ms for a task lose 10 to 25 %
    (``test_claims_by_membership``).
    """
    services = [on_engine.service(on) for _ in range(THREADS)]
    services[0].queues.create("race", QueueSettings())
    ids = fill(services[0], "race", TASKS)
    left = Left(len(ids))

    delivered = together(
        THREADS,
        lambda number: work_off(services[number], "race", (1, 3, 10, 25)[number % 4], left),
    )

    assert_each_once(services[0], ids, delivered)
    say(capsys, f"a service each, {on}", on_engine.races)
    assert on_engine.races.share < 0.8


def test_sixteen_services_whose_workers_send_heartbeats_are_handed_each_task_once(
    on_engine: Engine, as_wired: On, capsys: pytest.CaptureFixture[str]
) -> None:
    """The race is over in a second, with calls of a tenth of it, and nobody works on the tasks.

    So about half of the claims are lost.  Under 10 % is asserted where handlers take some time, on
    a clock of a test's own (``test_claims_by_membership``).
    """
    services = [on_engine.service(as_wired) for _ in range(THREADS)]
    services[0].queues.create("race", QueueSettings())
    for number in range(THREADS):
        services[0].workers.alive(
            BOOTSTRAP, WorkerHeartbeat(f"worker-{number}", ("race",), utc_now())
        )
    ids = fill(services[0], "race", TASKS)
    left = Left(len(ids))

    delivered = together(
        THREADS,
        lambda number: work_off(
            services[number], "race", (1, 3, 10, 25)[number % 4], left, f"worker-{number}"
        ),
    )

    assert_each_once(services[0], ids, delivered)
    say(capsys, f"a service each, with heartbeats, {as_wired}", on_engine.races)
    assert on_engine.races.share < 0.8


def test_a_worker_alone_loses_nothing(on_engine: Engine, on: On) -> None:
    use = on_engine.service(on)
    use.queues.create("race", QueueSettings())
    ids = fill(use, "race", 100)
    chance = random.Random(7)

    delivered: list[list[Task]] = []
    left = Left(len(ids))
    while left.any():
        delivered.append(work_off_once(use, chance.randint(1, 25), left))

    assert_each_once(use, ids, delivered)
    assert (on_engine.races.tried, on_engine.races.lost) == (100, 0)


def work_off_once(use: UseCases, batch_size: int, left: Left) -> list[Task]:
    tasks = use.deliveries.dequeue("race", batch_size=batch_size, worker="ada").tasks
    left.less(len(tasks))
    reports = [TaskReport(task.id, str(lease_name(task)), ReportStatus.SUCCEEDED) for task in tasks]
    use.reports.report("race", reports)
    return list(tasks)


@pytest.mark.parametrize("status", [ReportStatus.SUCCEEDED, ReportStatus.INFLIGHT])
def test_between_the_reaper_and_a_late_report_one_wins(
    on_engine: Engine, on: On, status: ReportStatus
) -> None:
    clock = ManualClock()
    use = on_engine.service(on, now=clock)
    reapers = [on_engine.service(on, now=clock) for _ in range(3)]
    settings = QueueSettings(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    use.queues.create("race", settings)
    fill(use, "race", 50)
    clock.forward(1)
    held = [task for _ in range(2) for task in use.deliveries.dequeue("race", batch_size=25).tasks]
    clock.forward(5)

    def act(number: int) -> list[tuple[str, ReportOutcome]]:
        if number >= 5:
            reapers[number - 5].reaping.run()
            return []
        reports = [TaskReport(task.id, str(lease_name(task)), status) for task in held[number::5]]
        return [(result.task_id, result.outcome) for result in use.reports.report("race", reports)]

    outcomes = dict(outcome for some in together(8, act) for outcome in some)

    assert len(outcomes) == 50
    stored = use.tasks.store.read(outcomes)
    for task_id, outcome in outcomes.items():
        task = stored[task_id]
        if outcome is ReportOutcome.OK:
            assert task.state in (State.SUCCEEDED, State.INFLIGHT)
            assert task.errors == ()
        else:
            assert outcome is ReportOutcome.NOT_INFLIGHT
            assert task.state is State.ENQUEUED
            assert len(task.errors) == 1
        assert (task.attempts, task.version) == (1, 3)


def test_a_lapsed_lease_that_many_take_back_is_one_failed_attempt(
    on_engine: Engine, on: On
) -> None:
    clock = ManualClock()
    services = [on_engine.service(on, now=clock) for _ in range(8)]
    settings = QueueSettings(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    services[0].queues.create("race", settings)
    ids = fill(services[0], "race", 50)
    clock.forward(1)
    for _ in range(2):
        services[0].deliveries.dequeue("race", batch_size=25, worker="gone")
    clock.forward(5)

    def help_and_take(number: int) -> list[Task]:
        if number == 0:
            services[0].reaping.run()
        return list(services[number].deliveries.dequeue("race", batch_size=25).tasks)

    delivered = together(len(services), help_and_take)

    times = Counter(task.id for tasks in delivered for task in tasks)
    assert set(times.values()) <= {1}
    for task in services[0].tasks.store.read(ids).values():
        assert len(task.errors) == 1  # taken back once, whoever did it
        assert task.attempts == 1 + times[task.id]
        assert task.version == 3 + times[task.id]


@pytest.mark.gate
def test_of_sixteen_that_enqueue_the_same_id_one_creates_it(on_engine: Engine, on: On) -> None:
    services = [on_engine.service(on) for _ in range(THREADS)]
    services[0].queues.create("race", QueueSettings())

    def enqueue(number: int) -> list[EnqueueOutcome]:
        entries = [TaskSpec(str(number), id=f"order-{order}") for order in range(10)]
        return [result.outcome for result in services[number].tasks.enqueue("race", entries)]

    outcomes = together(THREADS, enqueue)

    for of_one_id in zip(*outcomes, strict=True):
        expected = {EnqueueOutcome.CREATED: 1, EnqueueOutcome.EXISTING: THREADS - 1}
        assert Counter(of_one_id) == expected
    assert services[0].inspect.count("race").count == 10


def test_of_sixteen_that_report_the_same_lease_all_see_it_done_once(
    on_engine: Engine, on: On
) -> None:
    services = [on_engine.service(on) for _ in range(THREADS)]
    services[0].queues.create("race", QueueSettings(retry_strategy=AT_ONCE))
    fill(services[0], "race", 1)
    (task,) = services[0].deliveries.dequeue("race").tasks
    report = TaskReport(task.id, str(lease_name(task)), ReportStatus.FAILED)

    results = together(
        THREADS, lambda number: services[number].reports.report("race", [report])[0].outcome
    )

    assert Counter(results) == {ReportOutcome.OK: THREADS}
    assert len(services[0].tasks.get(task.id).errors) == 1


def test_eight_processes_are_handed_each_task_of_a_file_once(tmp_path: Path) -> None:
    path = str(tmp_path / "headrace.db")
    use, store = process(path)
    use.queues.create("race", QueueSettings())
    ids = fill(use, "race", TASKS)

    def works(number: int) -> list[Task]:
        mine, own = process(path)
        tasks: list[Task] = []
        idle = 0
        while idle < 3:
            some = mine.deliveries.dequeue("race", batch_size=(1, 3, 10, 25)[number % 4]).tasks
            idle = 0 if some else idle + 1
            tasks += some
            reports = [
                TaskReport(task.id, str(lease_name(task)), ReportStatus.SUCCEEDED) for task in some
            ]
            for result in mine.reports.report("race", reports):
                assert result.outcome is ReportOutcome.OK
        own.close()
        return tasks

    delivered = in_children(PROCESSES, works)

    assert_each_once(use, ids, delivered)
    assert store.check() == ()
    store.close()


def test_of_eight_processes_that_enqueue_the_same_ids_one_creates_each(tmp_path: Path) -> None:
    """The file, and the queue, are made by all of them at once too."""
    path = str(tmp_path / "headrace.db")

    def enqueues(number: int) -> list[EnqueueOutcome]:
        use, own = process(path)
        with suppress(QueueExists):
            use.queues.create("race", QueueSettings())
        entries = [TaskSpec(str(number), id=f"order-{order}") for order in range(20)]
        outcomes = [result.outcome for result in use.tasks.enqueue("race", entries)]
        own.close()
        return outcomes

    outcomes = in_children(PROCESSES, enqueues)

    for of_one_id in zip(*outcomes, strict=True):
        expected = {EnqueueOutcome.CREATED: 1, EnqueueOutcome.EXISTING: PROCESSES - 1}
        assert Counter(of_one_id) == expected
    store = SqliteStore(path)
    assert store.check() == ()
    store.close()


def process(path: str) -> tuple[UseCases, SqliteStore]:
    """Return a service of its own over the file."""
    store = SqliteStore(path)
    return build(Settings(admin_key="test", poll_after_seconds=0), store), store


def say(capsys: pytest.CaptureFixture[str], what: str, races: Races) -> None:
    """Print the share of lost writes where a person sees it."""
    with capsys.disabled():
        print(f"\n  {what}: {races.lost} of {races.tried} lost ({races.share:.1%})")  # noqa: T201  a figure to read
