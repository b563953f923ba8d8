"""Many callers at once, on one file or on tables: every race has one winner."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import SHOWN_STATES, State, Task
from headrace.local.tables import TableNames
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build, utc_now
from headrace.store.dynamo import DynamoStore, Sender
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import lease_name

T = TypeVar("T")
THREADS = 16
TASKS = 300
BATCH_SIZES = (1, 3, 10, 25)
PATIENCE_SECONDS = 20.0
On = Sender | Literal["file"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Race on one file, or on tables with either sender."""
    if "on" in metafunc.fixturenames:
        on_tables = metafunc.config.getoption("--engine") == "dynamodb"
        metafunc.parametrize("on", ["batch", "single"] if on_tables else ["file"])


@pytest.fixture
def service(
    request: pytest.FixtureRequest, tmp_path: Path, on: On
) -> Iterator[Callable[..., Service]]:
    """Give a function that starts one more service on the same file or tables."""
    files: list[SqliteStore] = []

    def start(now: Callable[[], datetime] = utc_now) -> Service:
        store: SqliteStore | DynamoStore
        if on == "file":
            store = SqliteStore(str(tmp_path / "headrace.db"), now=now)
            files.append(store)
        else:
            tables: TableNames = request.getfixturevalue("tables")
            client = "raw_dynamodb" if on == "batch" else "dynamodb"
            store = DynamoStore(
                request.getfixturevalue(client),
                tasks_table=tables.tasks,
                control_table=tables.control,
                sender=on,
            )
        return build(Settings(admin_key="test", poll_after_seconds=0), store, now=now)

    yield start
    for file in files:
        file.close()


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """Start *work* on *count* threads at the same moment; return the result of each."""
    ready = threading.Barrier(count)

    def start(number: int) -> T:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def fill(use: Service, count: int) -> list[str]:
    """Enqueue *count* tasks and return their ids."""
    ids: list[str] = []
    while len(ids) < count:
        chunk = [TaskSpec("{}")] * min(25, count - len(ids))
        ids += [str(result.id) for result in use.tasks.enqueue("race", chunk)]
    return ids


def report(task: Task, status: ReportStatus = ReportStatus.SUCCEEDED) -> TaskReport:
    return TaskReport(task.id, lease_name(task), status)


@dataclass
class Left:
    """The number of tasks that were not delivered yet; raises if it stops falling."""

    count: int
    since: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def less(self, taken: int) -> None:
        with self.lock:
            self.count -= taken
            if taken:
                self.since = time.monotonic()

    def any(self) -> bool:
        waited = time.monotonic() - self.since
        assert waited < PATIENCE_SECONDS, f"{self.count} tasks are never delivered"
        return self.count > 0


def work_off(use: Service, batch_size: int, left: Left) -> list[Task]:
    """Take tasks and report on them until every task was delivered to some worker."""
    mine: list[Task] = []
    while left.any():
        tasks = use.deliveries.dequeue("race", batch_size=batch_size).tasks
        left.less(len(tasks))
        mine += tasks
        for result in use.reports.report("race", [report(task) for task in tasks]):
            assert result.outcome is ReportOutcome.OK
    return mine


def assert_each_once(use: Service, ids: list[str], delivered: list[list[Task]]) -> None:
    """Check that every task was delivered to one worker, once, and that none is lost."""
    assert Counter(task.id for tasks in delivered for task in tasks) == Counter(ids)
    assert len({task.lease_id for tasks in delivered for task in tasks}) == len(ids)
    counted = use.inspect.count("race").by_state
    assert counted == {state: len(ids) * (state is State.SUCCEEDED) for state in SHOWN_STATES}
    assert {use.tasks.get(task_id).attempts for task_id in ids[::50]} == {1}


@pytest.mark.gate
@pytest.mark.parametrize("services", [1, THREADS])
def test_sixteen_workers_get_each_task_once(service: Callable[..., Service], services: int) -> None:
    """Of one service that they share, or of a service each, as in as many Lambda containers."""
    uses = [service() for _ in range(services)]
    uses[0].queues.create("race", QueueSettings())
    ids = fill(uses[0], TASKS)
    left = Left(len(ids))

    delivered = together(
        THREADS,
        lambda number: work_off(uses[number % services], BATCH_SIZES[number % 4], left),
    )

    assert_each_once(uses[0], ids, delivered)


@pytest.mark.gate
def test_of_sixteen_that_enqueue_the_same_ids_one_creates_each(
    service: Callable[..., Service],
) -> None:
    services = [service() for _ in range(THREADS)]
    services[0].queues.create("race", QueueSettings())

    def enqueue(number: int) -> list[EnqueueOutcome]:
        entries = [TaskSpec(str(number), id=f"order-{order}") for order in range(10)]
        return [result.outcome for result in services[number].tasks.enqueue("race", entries)]

    for outcomes in zip(*together(THREADS, enqueue), strict=True):
        expected = {EnqueueOutcome.CREATED: 1, EnqueueOutcome.EXISTING: THREADS - 1}
        assert Counter(outcomes) == expected
    assert services[0].inspect.count("race").count == 10
