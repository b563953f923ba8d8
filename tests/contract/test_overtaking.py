"""On a real store, few tasks are delivered before one whose turn it is, however many processes ask.

Each service has a memory of its own.  ``tests/unit/ops/test_overtaking.py`` has more cases, on a
clock of its own.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from headrace.domain.fairness import GroupMode, GroupSettings
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import PrioritySettings, QueueSettings
from headrace.domain.task import Priority, Task
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.runtime.wiring import UseCases, utc_now
from tests.contract.conftest import lease_name
from tests.contract.test_race import Engine, On, on_engine, together

__all__ = ["on_engine"]

BUSY = 1500
NEWCOMERS = 8
RELEASED = 0.1
WAITS = 30.0  # seconds, until the test gives up


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask one, three and six services over a file, or two over tables."""
    if "sizes" in metafunc.fixturenames:
        over_file = [(25,), (10, 10, 10), (1, 10, 25), (1, 3, 10, 25, 1, 3)]
        on_tables = metafunc.config.getoption("--engine") == "dynamodb"
        metafunc.parametrize("sizes", [(10, 10), (3, 25)] if on_tables else over_file)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["fair", "priority"])
def test_a_newcomer_is_not_behind_a_busy_group(
    request: pytest.FixtureRequest,
    on_engine: Engine,
    sizes: Sequence[int],
    kind: str,
    *,
    named: bool,
) -> None:
    on: On = "batch" if request.config.getoption("--engine") == "dynamodb" else "file"
    services = [on_engine.service(on) for _ in (*sizes, "producer")]
    settings: dict[str, Any] = (
        {"groups": GroupSettings(GroupMode.FAIR)}
        if kind == "fair"
        else {"priority": PrioritySettings(300)}
    )
    near = services[-1]
    near.queues.create("race", QueueSettings(**settings))
    busy = TaskSpec("{}", group_key="busy" if kind == "fair" else None)
    for _ in range(BUSY // 25):
        near.tasks.enqueue("race", [busy] * 25)
    if named:
        for number in range(len(sizes)):
            near.workers.alive(BOOTSTRAP, WorkerHeartbeat(f"worker-{number}", ("race",), utc_now()))
    delivered: list[Task] = []  # by all services; started_at orders them
    over = threading.Event()
    acts = [
        worker(use, f"worker-{number}" if named else "", size, delivered, over)
        for number, (use, size) in enumerate(zip(services, sizes, strict=False))
    ]
    newcomers: dict[str, datetime] = {}  # when their enqueues were answered
    acts.append(producer(near, kind, newcomers, delivered, over))

    together(len(acts), lambda number: acts[number]())

    waits = [tasks_before(name, since, delivered) for name, since in newcomers.items()]
    assert len(waits) >= 3
    assert max(waits) <= 3 + 25 + 2 * sum(sizes), waits


def worker(
    use: UseCases, name: str, size: int, delivered: list[Task], over: threading.Event
) -> Callable[[], None]:
    """Return what takes tasks and reports on them, some as RELEASED, until it is *over*."""
    chance = random.Random(name)

    def act() -> None:
        while not over.is_set():
            tasks = use.deliveries.dequeue("race", batch_size=size, worker=name).tasks
            delivered.extend(tasks)
            reports = [
                TaskReport(
                    task.id,
                    lease_name(task),
                    ReportStatus.RELEASED if chance.random() < RELEASED else ReportStatus.SUCCEEDED,
                )
                for task in tasks
            ]
            if reports:
                use.reports.report("race", reports)

    return act


def producer(
    use: UseCases,
    kind: str,
    newcomers: dict[str, datetime],
    delivered: list[Task],
    over: threading.Event,
) -> Callable[[], None]:
    """Return what enqueues newcomers, each when the one before it was delivered."""

    def act() -> None:
        try:
            until(lambda: len(delivered) > BUSY / 10)
            while len(newcomers) < NEWCOMERS and len(delivered) < 0.7 * BUSY:
                number = len(newcomers)
                spec = (
                    TaskSpec("{}", group_key=f"new-{number}")
                    if kind == "fair"
                    else TaskSpec("{}", priority=Priority.HIGH)
                )
                (result,) = use.tasks.enqueue("race", [spec])
                name = str(result.id)
                newcomers[name] = utc_now()
                until(partial(delivers, name, delivered))
        finally:
            over.set()

    return act


def until(true: Callable[[], bool]) -> None:
    """Wait until something is *true*."""
    gives_up = time.monotonic() + WAITS
    while not true():
        assert time.monotonic() < gives_up
        time.sleep(0.002)


def delivers(name: str, delivered: Sequence[Task]) -> bool:
    return name in [task.id for task in list(delivered)]


def tasks_before(name: str, since: datetime, delivered: Sequence[Task]) -> int:
    """Return how many tasks were delivered *since* a time and before task *name*."""
    newcomer = next(task for task in delivered if task.id == name)
    return sum(
        since < task.started_at < newcomer.started_at
        for task in delivered
        if task.started_at is not None and newcomer.started_at is not None
    )
