"""All faults at once: every task still ends, and no success counts twice."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.tasks.enqueue import EnqueueOutcome
from tests.contract.faults.client import Faults
from tests.contract.faults.service import AT_ONCE, FaultyService, insisted, tasks_of


@pytest.mark.parametrize(
    ("sender", "seed"),
    [("batch", 0), ("single", 3)],
    indirect=["sender"],
)
def test_on_a_bad_day_every_task_still_ends_and_no_success_counts_twice(
    new_service: Callable[[], FaultyService], seed: int
) -> None:
    """Callers do what a client does: they repeat a call that was answered with Unavailable."""
    services = [new_service() for _ in range(3)]
    world = services[0].world
    settings = QueueSettings(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    queue = world.use.queues.create("mail", settings).name
    for of in services:
        of.world.use.queues.get(queue)
        of.client.freeze_index(of.tables.tasks)
        of.client.faults = Faults(
            lost=0.2, cut=0.05, away=0.05, throttled=0.05, stale=0.2, chance=random.Random(seed)
        )
    ids = [f"order-{number}" for number in range(20)]
    for start in range(0, 20, 10):
        entries = [TaskSpec("{}", id=task_id) for task_id in ids[start : start + 10]]
        results = insisted(lambda e=entries: world.use.tasks.enqueue(queue, e))  # type: ignore[misc]
        outcomes = {result.outcome for result in results}
        assert outcomes <= {EnqueueOutcome.CREATED, EnqueueOutcome.EXISTING}

    successes: Counter[str] = Counter()
    chance = random.Random(seed)
    for turn in range(400):
        of = services[turn % 3]
        if turn % 7 == 0:
            of.client.freeze_index(of.tables.tasks)
        tasks = tasks_of(lambda w=of.world: w.take(queue, 10))  # type: ignore[misc]
        for task in tasks:
            status = chance.choice(["SUCCEEDED", "SUCCEEDED", "FAILED", "RELEASED", "INFLIGHT"])
            result = insisted(lambda w=of.world, t=task, s=status: w.say(t, s))  # type: ignore[misc]
            if status == "SUCCEEDED" and result.outcome is ReportOutcome.OK:
                successes[task.id] += 1
        of.world.clock.forward(1)
        insisted(of.world.use.reaping.run)
        if len(successes) == len(ids):
            break

    for of in services:
        of.client.faults = Faults()
    assert successes == Counter(ids)
    for task in world.store.read(ids).values():
        assert task.state is State.SUCCEEDED
        assert task.attempts == 1 + len(task.errors) or len(task.errors) == 20
