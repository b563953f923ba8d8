"""What every store promises about leases: at most one valid one, and late reports lose."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import limits
from headrace.domain.access import Principal, Role
from headrace.domain.errors import Forbidden
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import ErrorKind, State
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport, WorkerError
from headrace.store.call_scope import acting
from tests.contract.conftest import World, hooked, lease_name
from tests.contract.test_keys import principal

AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0)
IN_TEN = RetryStrategy(kind=Backoff.FIXED, base_seconds=10, jitter=0, max_retries=2)


@pytest.mark.gate
def test_a_lapsed_lease_is_a_failed_attempt(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5, retry_strategy=IN_TEN)
    world.put(queue)
    task = world.one(queue, worker="gone:9")
    world.clock.forward(5)

    assert world.use.reaping.run().retried == 1

    waiting = world.see(task.id)
    assert (waiting.state, waiting.attempts) == (State.ENQUEUED, 1)
    assert waiting.due_at == world.clock() + timedelta(seconds=10)
    (error,) = waiting.errors
    assert (error.kind, error.worker) == (ErrorKind.LEASE_EXPIRED, "gone:9")
    assert "lease expired" in error.message
    assert "gone:9" in error.message


def test_a_dequeue_that_finds_too_little_reclaims_what_lapsed(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5, retry_strategy=IN_TEN)
    world.put(queue)
    task = world.one(queue)
    world.clock.forward(5)

    assert world.take(queue) == ()  # reclaimed, with its backoff
    assert world.see(task.id).state is State.ENQUEUED
    world.clock.forward(10)
    assert world.one(queue).attempts == 2


@pytest.mark.parametrize("status", ["SUCCEEDED", "INFLIGHT", "MOVED"])
def test_a_late_report_changes_nothing(world: World, status: str) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    world.put(queue)
    old = world.one(queue)
    world.clock.forward(5)
    world.use.reaping.run()
    fields = {"to_queue": queue} if status == "MOVED" else {}

    waiting = world.see(old.id)
    assert world.say(old, status, **fields).outcome is ReportOutcome.NOT_INFLIGHT
    assert world.see(old.id) == waiting
    new = world.one(queue)
    assert world.say(old, status, **fields).outcome is ReportOutcome.STALE_LEASE
    assert world.see(old.id) == new


@pytest.mark.parametrize("status", [ReportStatus.SUCCEEDED, ReportStatus.INFLIGHT])
@pytest.mark.parametrize("lease", ["lse_forged.1.YWRhOjE", "nonsense", "x.1.~~~"])
def test_a_foreign_lease_changes_nothing(world: World, status: ReportStatus, lease: str) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)
    assert world.say(task, status, lease=lease).outcome is ReportOutcome.STALE_LEASE
    assert world.see(task.id) == task


def test_a_late_report_on_a_lease_nobody_took_back_still_counts(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue)
    task = world.one(queue)
    world.clock.forward(60)

    assert world.say(task, "SUCCEEDED").outcome is ReportOutcome.OK


@pytest.mark.gate
def test_heartbeats_keep_a_lease_past_every_reaper(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=10, retry_strategy=AT_ONCE)
    world.put(queue)
    task = world.one(queue)

    for _ in range(5):
        world.clock.forward(8)
        result = world.say(task, "INFLIGHT", progress='{"done": 3}')
        assert result.outcome is ReportOutcome.OK
        assert result.task is not None
        assert result.task.lease_expires_at == world.clock() + timedelta(seconds=10)
        assert world.use.reaping.run().retried == 0
        assert world.take(queue) == ()

    seen = world.see(task.id)
    assert (seen.progress, seen.attempts) == ('{"done": 3}', 1)
    assert seen.scheduled_at == task.scheduled_at  # no index key was touched
    world.clock.forward(10)
    assert world.use.reaping.run().retried == 1


def test_the_next_delivery_has_the_progress_of_the_one_before_as_its_last(world: World) -> None:
    queue = world.queue(retry_strategy=AT_ONCE, keepalive_timeout_in_seconds=30)
    world.put(queue)
    first = world.one(queue)
    assert (first.own_progress, first.last_progress) == (None, None)
    world.say(first, "INFLIGHT", progress="1")
    world.say(first, "FAILED")
    assert (world.see(first.id).own_progress, world.see(first.id).last_progress) == ("1", None)

    second = world.one(queue)
    assert (second.own_progress, second.last_progress) == (None, "1")
    world.say(second, "INFLIGHT", progress="2")
    world.clock.forward(60)  # the lease lapses
    world.use.reaping.run()
    third = world.one(queue)
    assert (third.own_progress, third.last_progress) == (None, "2")


@pytest.mark.parametrize("how", ["restart", "move"])
def test_after_a_restart_or_a_move_there_is_no_last_progress(world: World, how: str) -> None:
    queue, other = world.queue(), world.queue("other")
    world.put(queue)
    task = world.one(queue)
    world.say(task, "INFLIGHT", progress="1")
    if how == "restart":
        world.say(task, "FAILED", retryable=False)
        world.use.bulk.by_ids(queue, BulkAction.RESTART, [task.id])
    else:
        world.say(task, "MOVED", to_queue=other)
    world.clock.forward(1)
    again = world.one(queue if how == "restart" else other)
    assert (again.own_progress, again.last_progress) == (None, None)


def test_keepalive_is_the_calls_else_the_tasks_else_the_queues(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=10)
    for payload, keepalive in (("1", 20), ("2", None), ("3", 20)):
        world.put(queue, payload, keepalive=keepalive)
        world.clock.forward(1)

    leases = [
        (task.payload, (task.lease_expires_at or world.clock()) - world.clock())
        for call in ({}, {}, {"keepalive": 40})
        for task in world.take(queue, **call)
    ]

    seconds = [(payload, length.total_seconds()) for payload, length in leases]
    assert seconds == [("1", 20), ("2", 10), ("3", 40)]


def test_a_heartbeat_asks_for_the_same_length_again_or_for_its_own(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=10)
    world.put(queue)
    task = world.one(queue, keepalive=40)

    for requested, got in ((None, 40), (60, 60), (None, 60), (2, 2)):
        result = world.say(task, "INFLIGHT", keepalive=requested)
        assert result.task is not None
        assert result.task.lease_expires_at == world.clock() + timedelta(seconds=got)

    world.clock.forward(2)  # a lease cut short is found when it ends, not when it would have
    assert world.use.reaping.run().retried == 1


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("SUCCEEDED", {"result": "1"}),
        ("FAILED", {}),
        ("FAILED", {"retryable": False}),
        ("RELEASED", {}),
        ("MOVED", {"to_queue": "other"}),
    ],
)
def test_a_report_that_took_effect_may_be_repeated(
    world: World, status: str, fields: dict[str, object]
) -> None:
    queue = world.queue()
    world.queue("other")
    world.put(queue)
    task = world.one(queue)
    assert world.say(task, status, **fields).outcome is ReportOutcome.OK
    after = world.see(task.id)

    assert world.say(task, status, queue=queue, **fields).outcome is ReportOutcome.OK
    assert world.see(task.id) == after
    other = "RELEASED" if status == "SUCCEEDED" else "SUCCEEDED"
    refused = ReportOutcome.NOT_FOUND if status == "MOVED" else ReportOutcome.STALE_LEASE
    assert world.say(task, other, queue=queue).outcome is refused


CHILD = (("other", TaskSpec("1")),)


@pytest.mark.parametrize(
    ("status", "fields", "others"),
    [
        ("SUCCEEDED", {"result": "1"}, {"result": "2"}),
        ("SUCCEEDED", {"spawn": CHILD}, {"spawn": (("other", TaskSpec("2")),)}),
        ("FAILED", {"error": WorkerError("A")}, {"error": WorkerError("B")}),
        ("MOVED", {"to_queue": "other"}, {"to_queue": "other", "spawn": CHILD}),
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_another_report_on_a_settled_lease_is_stale_and_changes_nothing(
    world: World, status: str, fields: dict[str, Any], others: dict[str, Any], *, grouped: bool
) -> None:
    queue = world.queue()
    world.queue("other")
    world.put(queue)
    group = world.use.leases.open(None, keepalive=60).id if grouped else None
    task = world.one(queue, lease_id=group)
    assert world.say(task, status, lease=group, **fields).outcome is ReportOutcome.OK
    after, children = world.see(task.id), world.use.inspect.count("other").count

    different = world.say(task, status, queue=queue, lease=group, **others)

    assert (different.outcome, different.spawned) == (ReportOutcome.STALE_LEASE, ())
    assert world.see(task.id) == after
    assert world.use.inspect.count("other").count == children
    assert world.say(task, status, queue=queue, lease=group, **fields).outcome is ReportOutcome.OK


def test_another_report_on_a_settled_lease_does_not_touch_the_next_delivery(world: World) -> None:
    queue = world.queue(retry_strategy=AT_ONCE)
    world.put(queue)
    task = world.one(queue)
    world.say(task, "RELEASED")
    now = world.one(queue)
    different = world.say(task, "SUCCEEDED", result="1")
    assert different.outcome is ReportOutcome.STALE_LEASE
    assert world.see(task.id) == now


def test_two_reports_of_one_task_in_one_call_take_effect_in_order(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    task = world.one(queue)
    lease = str(lease_name(task))

    results = world.use.reports.report(
        queue,
        [
            TaskReport(task.id, lease, ReportStatus.INFLIGHT, progress="1"),
            TaskReport(task.id, lease, ReportStatus.SUCCEEDED),
            TaskReport(task.id, lease, ReportStatus.INFLIGHT),
        ],
    )

    assert [result.outcome for result in results] == [
        ReportOutcome.OK,
        ReportOutcome.OK,
        ReportOutcome.NOT_INFLIGHT,
    ]


@pytest.mark.in_process
def test_a_page_of_healthy_long_tasks_does_not_hide_a_dead_one(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5, retry_strategy=AT_ONCE)
    world.put(queue, *["{}"] * 25)
    healthy = list(world.take(queue, 25))
    while len(healthy) < 125:
        world.put(queue, *["{}"] * 25)
        healthy += world.take(queue, 25)
    world.put(queue, '"dead"')
    world.one(queue)
    world.clock.forward(4)
    for task in healthy:
        world.say(task, "INFLIGHT", keepalive=100)
    world.clock.forward(4)

    assert world.one(queue).payload == '"dead"'
    world.clock.forward(5)
    reaped = world.use.reaping.run()
    assert (reaped.retried, reaped.healthy) == (1, 125)


@pytest.mark.gate
def test_a_lease_that_was_renewed_after_it_was_read_is_not_taken_back(world: World) -> None:
    """The reaper decides in the write, not by what it read."""
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue)
    task = world.one(queue)
    world.clock.forward(5)

    reaper = hooked(world, after_read=lambda: world.say(task, "INFLIGHT"))

    assert reaper.use.reaping.run().retried == 0
    assert world.see(task.id).state is State.INFLIGHT


TOO_LARGE = '"' + "x" * limits.RESULT_BYTES + '"'


@pytest.mark.gate
@pytest.mark.parametrize("result", [TOO_LARGE, "NaN", "[" * 100_000])
def test_a_report_whose_result_cannot_be_kept_is_invalid_and_the_lease_stays(
    world: World, result: str
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2", "3")
    tasks = world.take(queue, 3)
    reports = [
        TaskReport(task.id, lease_name(task), ReportStatus.SUCCEEDED, result=kept)
        for task, kept in zip(tasks, ["1", result, '{"n": 2}'], strict=True)
    ]

    outcomes = world.use.reports.report(queue, reports)

    assert [of.outcome for of in outcomes] == [
        ReportOutcome.OK,
        ReportOutcome.INVALID,
        ReportOutcome.OK,
    ]
    assert str(outcomes[1].detail).startswith("result must be ")
    assert world.see(tasks[1].id) == tasks[1]
    assert world.say(tasks[1], "SUCCEEDED", result="9" * 5_000).outcome is ReportOutcome.OK
    assert world.see(tasks[1].id).state is State.SUCCEEDED


def test_a_repeat_about_a_task_that_moved_out_of_sight_tells_nothing_of_it(world: World) -> None:
    queue, hidden = world.queue(), world.queue("hidden")
    world.put(queue)
    task = world.one(queue)
    assert world.say(task, "MOVED", to_queue=hidden).task is not None
    with acting(Principal("key_1", "ada", Role.WORKER, (queue,))):
        again = world.say(task, "MOVED", to_queue=hidden)
    assert (again.outcome, again.task) == (ReportOutcome.OK, None)


# -- what one key may see --------------------------------------------------------------------------


def test_a_task_that_moves_outside_before_it_is_deleted_stays(world: World) -> None:
    inside, outside = world.queue("ngsi.1"), world.queue("mail")
    (task_id,) = world.put(inside)
    by = principal(world, "ngsi.*", role=Role.OPERATOR)

    def move() -> None:
        world.use.bulk.by_ids(inside, BulkAction.MOVE, [task_id], to_queue=outside)

    with acting(by), pytest.raises(Forbidden):
        hooked(world, before_commit=move).use.tasks.delete(task_id)
    assert world.see(task_id).queue == outside
