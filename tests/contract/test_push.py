"""A dispatcher step by step, over every store."""

import random

import pytest

from headrace.domain.push import Target
from headrace.domain.push_messages import TargetAnswer
from headrace.domain.task import State
from headrace.ops.delivery.push import PushRun
from headrace.ops.tasks.explain import ReasonCode
from tests.contract.conftest import World, dies, hooked

TARGET = Target(url="https://a.example/", max_concurrency=10)


@pytest.fixture
def run(world: World) -> PushRun:
    """Give the dispatcher of a queue called hooks."""
    world.queue("hooks", target=TARGET)
    push, start = world.use.push, world.clock()
    push.deliveries.arrivals = None
    world.use.sleep, world.use.random = world.clock.forward, random.Random(1)
    world.use.monotonic = lambda: world.clock().timestamp() - start.timestamp()
    begun = push.begin("hooks")
    assert begun is not None
    return begun


def answered(world: World, run: PushRun, answer: TargetAnswer) -> int:
    """Take what may be sent, and let *answer* be what comes back; return how many that were."""
    world.clock.forward(0.001)
    tasks = run.fetch()
    run.settle([(task, answer, 0.05) for task in tasks])
    run.renew()
    return len(tasks)


def test_answers_are_reports(world: World, run: PushRun) -> None:
    ids = world.put("hooks", "1", "2", "3")
    world.clock.forward(0.001)
    tasks = run.fetch()
    answers = [TargetAnswer(200, b'"done"'), TargetAnswer(422), TargetAnswer(500)]
    run.settle([(task, answer, 0.1) for task, answer in zip(tasks, answers, strict=True)])
    done, rejected, failed = (world.see(task.id) for task in tasks)
    assert {task.id for task in tasks} == set(ids)
    assert (done.state, done.result) == (State.SUCCEEDED, '"done"')
    assert (rejected.state, rejected.dead_reason) == (State.DEAD, "rejected")
    assert (failed.state, failed.errors[0].type) == (State.ENQUEUED, "HTTP 500")
    assert failed.errors[0].worker == "push:hooks:0"


@pytest.mark.gate
def test_one_has_the_seat_and_the_next_one_after_it(world: World, run: PushRun) -> None:
    assert world.use.push.begin("hooks") is None
    assert world.use.push.begin("hooks", 1) is None  # there is one seat for 100 requests
    run.close()
    assert world.use.push.begin("hooks") is not None


def test_what_a_dead_one_held_comes_back_and_the_seat_passes_on(world: World, run: PushRun) -> None:
    (one,) = world.put("hooks")
    world.clock.forward(0.001)
    assert len(run.fetch()) == 1
    world.clock.forward(61)
    assert not run.holds
    assert run.fetch() == ()
    assert world.use.push.begin("hooks") is not None
    world.use.reaping.run()
    assert world.see(one).errors[0].type == "LeaseExpired"


def test_it_keeps_what_it_holds_for_as_long_as_it_lives(world: World, run: PushRun) -> None:
    (one,) = world.put("hooks")
    world.clock.forward(0.001)
    tasks = run.fetch()
    for _ in range(15):
        world.clock.forward(20)
        run.renew()
        world.use.reaping.run()
    run.settle([(task, TargetAnswer(200), 300.0) for task in tasks])
    assert (world.see(one).state, world.see(one).attempts) == (State.SUCCEEDED, 1)


def test_a_target_that_was_away_for_a_minute_is_found_again_within_five_seconds(
    world: World, run: PushRun
) -> None:
    ids = [one for _ in range(6) for one in world.put("hooks", *["1"] * 25)]
    away_for, found_after, asked, at = 60.0, None, 0, 0.0
    while found_after is None:
        away = at < away_for
        sent = answered(world, run, TargetAnswer(503) if away else TargetAnswer(200))
        asked += sent if away else 0
        if sent and not away:
            found_after = at - away_for
        world.clock.forward(0.25)
        at = run.dispatch.service.monotonic()
    assert found_after <= 5
    assert 30 <= asked <= 250
    for task in map(world.see, ids):
        assert (task.attempts, task.errors) == (task.state is State.SUCCEEDED, ())


def test_a_busy_target_is_shown_and_explained(world: World, run: PushRun) -> None:
    world.put("hooks", *["1"] * 20)
    assert answered(world, run, TargetAnswer(503, retry_after="60")) == 10
    world.clock.forward(1)
    run.renew()
    waiting = world.put("hooks")[0]
    world.clock.forward(0.001)
    reasons = world.use.explain.reasons(world.see(waiting))
    assert ReasonCode.TARGET_BACKING_OFF in [reason.code for reason in reasons]
    status = world.use.push_targets.status(world.use.queues.get("hooks"))
    assert status is not None
    assert (status.busy, dict(status.codes), status.p50) == ("503", {"503": 10}, 0.05)
    assert status.allowed < status.most == 10


def test_the_dispatcher_of_a_queue_that_is_deleted_ends(world: World, run: PushRun) -> None:
    world.put("hooks", "1", "2")
    world.clock.forward(0.001)
    tasks = run.fetch()
    world.use.queues.delete("hooks")
    world.clock.forward(60)

    run.settle([(task, TargetAnswer(200), 0.1) for task in tasks])
    assert world.use.push.target_of("hooks") is None
    assert world.use.push.seconds_to_work("hooks") is None
    assert run.fetch() == ()
    assert not run.holds


def test_it_is_known_when_a_queue_that_pushes_has_work(world: World, run: PushRun) -> None:
    work = world.use.push.seconds_to_work
    assert work("hooks") is None
    world.put("hooks", delay_in_seconds=60)
    assert work("hooks") == 60
    world.clock.forward(60)
    assert work("hooks") == 0
    world.use.queues.pause("hooks")
    world.clock.forward(60)
    assert work("hooks") is None


def test_reports_wait_where_the_table_is_away_and_are_made_once_it_is_back(
    world: World, run: PushRun
) -> None:
    (one,) = world.put("hooks")
    world.clock.forward(0.001)
    tasks = run.fetch()
    reports = world.use.reports
    world.use.reports = hooked(world, before_commit=dies).use.reports
    run.settle([(task, TargetAnswer(200), 0.1) for task in tasks])
    assert world.see(one).state is State.INFLIGHT

    world.use.reports = reports
    run.renew()
    assert world.see(one).state is State.SUCCEEDED


def test_dispatchers_are_woken_for_queues_that_push_and_once_a_second(
    world: World, run: PushRun
) -> None:
    world.queue("plain")
    waking = world.use.push_targets
    assert list(waking.for_arrivals(["hooks", "plain", "nowhere"])) == [("hooks", 0)]
    assert list(waking.for_arrivals(["hooks"])) == []
    assert list(waking.for_timer()) == []
    world.put("hooks")
    world.clock.forward(1)
    assert list(waking.for_arrivals(["hooks"])) == [("hooks", 0)]
    assert list(waking.for_timer()) == [("hooks", 0)]
    assert waking.backing_off(["hooks", "plain"]) == 0
    assert run.holds
