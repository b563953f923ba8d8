"""Lists of many tasks, while workers change the queue under them, on the real engine."""

import os
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.task import State, Task
from headrace.local.tables import TableNames
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from tests.contract.conftest import lease_name

STAYING = int(os.environ.get("HEADRACE_BIG_LIST", "500"))  # the bar is 20,000: a minute and more
WORKERS = 16


@pytest.fixture
def use(raw_dynamodb: RawClient, tables: TableNames) -> UseCases:
    """Give a service on the real engine whose queue holds tasks that stay and tasks that go."""
    store = DynamoStore(raw_dynamodb, tasks_table=tables.tasks, control_table=tables.control)
    use = build(Settings(), store)
    use.queues.create("q", QueueSettings(shards=2))
    batch = [TaskSpec("1", delay_in_seconds=3600, tags={"stays": "yes"})] * 25
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda _: use.tasks.enqueue("q", batch), range(STAYING // 25)):
            pass
    use.tasks.enqueue("q", [TaskSpec("2")] * 25)
    return use


def listed(use: UseCases, where: TaskFilter) -> Iterator[Task]:
    cursor = None
    while True:
        page = use.inspect.list("q", where, limit=100, cursor=cursor)
        yield from page.tasks
        cursor = page.cursor
        if cursor is None:
            return


def counted(use: UseCases, where: TaskFilter) -> int:
    number, cursor = 0, None
    while True:
        step = use.inspect.count("q", where, cursor=cursor)
        number, cursor = number + step.count, step.cursor
        if cursor is None:
            return number


def stir(use: UseCases, stop: threading.Event) -> None:
    """Enqueue, take, finish, fail and delete other tasks of the same queue until told to stop."""
    while not stop.wait(0.5):  # they share one process with the list, and must leave it some of it
        (new,) = use.tasks.enqueue("q", [TaskSpec("3", delay_in_seconds=1800)])
        use.tasks.enqueue("q", [TaskSpec("4")])
        for task in use.deliveries.dequeue("q", batch_size=2).tasks:
            fails = len(task.id) % 2 == 0 and task.attempts < 2
            status = ReportStatus.FAILED if fails else ReportStatus.SUCCEEDED
            use.reports.report("q", [TaskReport(task.id, str(lease_name(task)), status)])
        use.tasks.delete(str(new.id))


@pytest.mark.slow
def test_every_task_that_stays_is_listed_once_and_in_order_in_flat_memory(use: UseCases) -> None:
    stop = threading.Event()
    waiting = TaskFilter(("ENQUEUED",))
    with ThreadPoolExecutor(WORKERS) as pool:
        stirring = [pool.submit(stir, use, stop) for _ in range(WORKERS)]
        seen: set[str] = set()
        staying = 0
        last = None
        for task in listed(use, waiting):
            place = (task.due_at, task.id)
            assert last is None or place > last
            last = place
            assert task.id not in seen
            seen.add(task.id)
            staying += "stays" in task.tags
        stop.set()
        for worker in stirring:
            worker.result()

    assert staying == STAYING
    stays = TaskFilter(("pending",), {"stays": "yes"})
    assert counted(use, stays) == STAYING
    by_index = use.inspect.count("q", waiting).by_state[State.ENQUEUED]

    early = peak = 0
    tracemalloc.start()
    for number, _ in enumerate(listed(use, waiting), 1):
        if number == 200:
            early = tracemalloc.get_traced_memory()[1]
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == by_index
    assert peak < 2 * early, (early, peak)  # bytes: many take no more than 200
