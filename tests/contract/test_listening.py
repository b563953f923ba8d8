"""What every store promises about who listens to a queue: who says so, and who takes tasks."""

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.tasks.explain import ReasonCode
from headrace.store.base import Store
from headrace.store.call_scope import acting
from tests.contract.test_recording import Recorder, new_recorder
from tests.manual_clock import ManualClock


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


def beat(it: Recorder, *queues: str, name: str = "ada:1", running: int = 0) -> None:
    ids = tuple(f"tsk_{number}" for number in range(running))
    heartbeat = WorkerHeartbeat(name, queues, it.world.clock(), concurrency=2, running=ids)
    it.world.use.workers.alive(heartbeat)


def codes(it: Recorder, task_id: str) -> list[str]:
    return [str(one.code) for one in it.world.use.explain.reasons(it.world.see(task_id))]


def test_a_task_that_nobody_listens_to_says_so_once_a_worker_would_have_had_it(
    it: Recorder,
) -> None:
    queue = it.world.queue()
    [task_id] = it.world.put(queue)

    assert codes(it, task_id) == []
    it.world.clock.forward(10)
    assert codes(it, task_id) == [ReasonCode.NO_WORKERS]
    beat(it, "another")
    assert codes(it, task_id) == [ReasonCode.NO_WORKERS]
    beat(it, "another", queue)
    assert codes(it, task_id) == []
    it.world.clock.forward(75)  # heartbeats are missing
    assert codes(it, task_id) == [ReasonCode.NO_WORKERS]


def details(it: Recorder, task_id: str) -> list[tuple[str, str]]:
    reasons = it.world.use.explain.reasons(it.world.see(task_id))
    return [(str(one.code), one.detail) for one in reasons]


def test_a_task_whose_workers_are_all_busy_elsewhere_says_so(it: Recorder) -> None:
    queue = it.world.queue()
    first, second = it.world.put(queue, "1", "2")
    it.world.clock.forward(11)
    beat(it, queue, "another", running=2)

    busy = "the only worker (2 slots) is busy with other tasks"
    assert details(it, first) == [("behind", busy)]
    assert details(it, second) == [("behind", f"1 task is due before it; {busy}")]
    beat(it, queue, name="ada:2", running=2)
    both = "all 2 workers (4 slots) are busy with other tasks"
    assert details(it, first) == [("behind", both)]
    beat(it, queue, name="ada:2", running=1)
    assert details(it, first) == []


def test_busy_workers_say_at_what_rate_they_start_tasks_and_how_long_it_takes(
    it: Recorder,
) -> None:
    queue = it.world.queue()
    tasks = it.world.put(queue, *"123456789")
    it.world.clock.forward(60)
    for _ in range(4):
        it.world.one(queue)
    it.record()
    it.world.clock.forward(20)
    beat(it, queue, running=2)

    [(code, detail)] = details(it, tasks[-1])
    assert code == "behind"
    assert "4 tasks are due before it; the only worker (2 slots) is busy at 0.0" in detail
    assert detail.endswith(" min until it starts")


def test_a_pause_says_who_and_why_to_those_who_may_know(it: Recorder) -> None:
    queue = it.world.queue()
    [task_id] = it.world.put(queue)
    with acting(Principal("k1", "ada", Role.OPERATOR, ("*",))):
        it.world.use.queues.pause(queue, reason="deploy")

    assert ("paused", f"queue {queue} is paused by ada: deploy") in details(it, task_id)
    with acting(Principal("k2", "grafana", Role.VIEWER, ("*",))):
        assert ("paused", f"queue {queue} is paused") in details(it, task_id)
