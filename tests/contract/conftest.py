"""The stores that must keep every promise of this folder, and the use cases over each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from headrace.domain.errors import Unavailable
from headrace.domain.ids import shown_lease
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import Task
from headrace.local.tables import TableNames
from headrace.ops.delivery.reports import ReportResult, ReportStatus, TaskReport
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build
from headrace.store.base import Store
from headrace.store.dynamo import DynamoStore
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock
from tests.wrapped_store import WrappedStore


@dataclass
class World:
    """A service over one of the stores, its clock in the test's hand."""

    store: Store
    clock: ManualClock
    use: Service

    def queue(self, name: str = "mail", **settings: Any) -> str:
        self.use.queues.create(name, QueueSettings(**settings))
        return name

    def put(self, queue: str, *payloads: str, **fields: Any) -> list[str]:
        """Enqueue *payloads* and return their ids."""
        entries = [TaskSpec(payload, **fields) for payload in payloads or ("{}",)]
        return [str(result.id) for result in self.use.tasks.enqueue(queue, entries)]

    def take(self, queue: str | list[str], count: int = 1, **call: Any) -> tuple[Task, ...]:
        """Let the microseconds between tasks of one call pass, and dequeue."""
        self.clock.forward(0.001)
        call = {"worker": "ada:1", **call}
        return self.use.deliveries.dequeue(queue, batch_size=count, **call).tasks

    def one(self, queue: str, **call: Any) -> Task:
        (task,) = self.take(queue, **call)
        return task

    def say(self, task: Task, status: str, **fields: Any) -> ReportResult:
        """Report on *task* under the lease it was handed out with."""
        queue = fields.pop("queue", task.queue)
        lease = fields.pop("lease", None) or str(lease_name(task))
        report = TaskReport(task.id, lease, ReportStatus(status), **fields)
        return self.use.reports.report(queue, [report])[0]

    def see(self, task_id: str) -> Task:
        return self.use.tasks.get(task_id)


def lease_name(task: Task) -> str:
    """Return the lease as its worker was told it."""
    return shown_lease(task)


# The senders differ in how a change without a lock goes out, and in what becomes of its losers.
# Each kind of change goes out both ways in tests/dynamodb, lost and throttled ones in `faults`, and
# many at once in `test_race`.  These are about the losers of everyday changes; all else is about
# the control table, the index, or use cases that send the same changes.
_BOTH_SENDERS = frozenset(f"tests.contract.test_{about}" for about in ("dedupe", "leases", "life"))


_STORES: dict[str, tuple[str, ...]] = {
    "none": ("sqlite",),
    "sqlite": ("sqlite",),
    "dynamodb": ("batch", "single"),
}
_TELLING_UNITS: dict[str, tuple[str, ...]] = {
    "none": ("sqlite",),
    "sqlite": ("sqlite",),
    "dynamodb": ("single",),
}
"""Those that say what a call takes: of DynamoDB's, what boto3 reads of its answers."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on SQLite or on DynamoDB Local."""
    if "store" in metafunc.fixturenames:
        engine = metafunc.config.getoption("--engine")
        stores = _STORES[engine]
        if metafunc.definition.get_closest_marker("units"):
            stores = _TELLING_UNITS[engine]
        elif engine == "dynamodb" and metafunc.module.__name__ not in _BOTH_SENDERS:
            stores = stores[:1]
        metafunc.parametrize("store", stores, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """Give the store of this run."""
    if request.param == "sqlite":
        return SqliteStore()
    tables: TableNames = request.getfixturevalue("tables")
    # The one as it is wired, the other over boto3 alone.
    client = request.getfixturevalue("dynamodb" if request.param == "single" else "raw_dynamodb")
    return DynamoStore(
        client,
        tasks_table=tables.tasks,
        control_table=tables.control,
        sender=request.param,
    )


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands still until told."""
    return ManualClock()


@pytest.fixture
def world(store: Store, clock: ManualClock) -> World:
    """Give a service over the store of this run."""
    return new_world(store, clock)


def new_world(store: Store, clock: ManualClock) -> World:
    """Build the use cases so that sleeping moves the clock."""
    use = build(Settings(admin_key="test", poll_after_seconds=0.02), store, now=clock)
    use.sleep = clock.forward
    use.sleep = clock.forward
    use.deliveries.arrivals = None  # who waits for them waits by the real clock
    use.waiting.task_ends = None  # likewise
    return World(store, clock, use)


def hooked(world: World, **hooks: Callable[[], object]) -> World:
    """Return another process on the same store, in which ``before_…`` and ``after_…`` run once."""

    def around(name: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        hooks.pop(f"before_{name}", lambda: None)()
        answer = call(*args, **named)
        hooks.pop(f"after_{name}", lambda: None)()
        return answer

    return new_world(cast("Store", WrappedStore(world.store, around)), world.clock)


def overtaken(world: World, call: str, meanwhile: Callable[[], object]) -> World:
    """Return another process on the same store, where *meanwhile* is done before each *call*."""

    def around(name: str, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if name == call:
            meanwhile()
        return method(*args, **named)

    return new_world(cast("Store", WrappedStore(world.store, around)), world.clock)


def dies() -> None:
    raise Unavailable("the process ends here")
