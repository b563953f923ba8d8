"""What every store promises operators: act on exactly the filtered set, and know why."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.queue_settings import DeadLetterConfig, DequeuingSettings, RateLimiting
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import WorkerError
from headrace.ops.operators.bulk import BulkAnswer
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.store.call_scope import acting
from tests.contract.conftest import World, hooked

DELETE, RESTART, RUN, MOVE = (
    BulkAction.DELETE,
    BulkAction.RESTART,
    BulkAction.RUN,
    BulkAction.MOVE,
)
EVERY = TaskFilter()


def dead(world: World, queue: str, count: int = 1, *, error: str = "", **fields: Any) -> list[str]:
    """Let *count* tasks die of *error*."""
    ids = world.put(queue, *["{}"] * count, **fields)
    tasks: list[Task] = []
    while len(tasks) < count:
        tasks += world.take(queue, 25)
    for task in tasks:
        world.say(task, "FAILED", retryable=False, error=WorkerError("E", error))
    return ids


def outcomes(answer: BulkAnswer) -> list[tuple[str, str | None]]:
    return [(result.outcome, result.detail) for result in answer.results]


def test_a_restarted_task_begins_again_with_its_errors_kept(world: World) -> None:
    queue = world.queue(expires_in_seconds=600)
    (task_id,) = dead(world, queue, error="boo", tags={"a": "1"})
    world.clock.forward(1000)

    answer = world.use.bulk.by_ids(queue, RESTART, [task_id])

    assert (answer.matched, answer.changed, outcomes(answer)) == (1, 1, [("RESTARTED", None)])
    task = world.see(task_id)
    assert (task.state, task.attempts, len(task.errors)) == (State.ENQUEUED, 0, 1)
    assert task.expires_at == world.clock() + timedelta(seconds=600)
    assert (task.dead_reason, task.finished_at, task.retained_until) == (None, None, None)
    assert world.one(queue).attempts == 1
    again = world.use.bulk.by_ids(queue, RESTART, [task_id])
    assert outcomes(again) == [("SKIPPED", "inflight")]


def test_a_replay_is_a_restart_of_what_succeeded(world: World) -> None:
    queue = world.queue()
    world.put(queue, *["{}"] * 3)
    for task in world.take(queue, 3):
        world.say(task, "SUCCEEDED", result='"done"')

    answer = world.use.bulk.by_filter(queue, RESTART, TaskFilter(("SUCCEEDED",)))

    assert (answer.matched, answer.changed) == (3, 3)
    assert [task.result for task in world.take(queue, 5)] == [None] * 3


def test_each_id_gets_its_own_answer(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    (elsewhere,) = world.put(other)
    world.put(queue)
    flying = world.one(queue).id
    (waiting,) = world.put(queue, delay_in_seconds=60)
    (gone,) = dead(world, queue)
    ids = [gone, waiting, flying, elsewhere, "nothing"]
    not_found = [("NOT_FOUND", None)] * 2

    def act(action: BulkAction, **fields: Any) -> list[tuple[str, str | None]]:
        return outcomes(world.use.bulk.by_ids(queue, action, ids, dry_run=True, **fields))

    assert act(RESTART) == [
        ("RESTARTED", None),
        ("SKIPPED", "not_dead"),
        ("SKIPPED", "inflight"),
        *not_found,
    ]
    assert act(RUN) == [
        ("SKIPPED", "the task is DEAD"),
        ("DUE", None),
        ("SKIPPED", "inflight"),
        *not_found,
    ]
    moved = [("MOVED", None), ("MOVED", None), ("SKIPPED", "inflight"), *not_found]
    assert act(MOVE, to_queue=other) == moved
    assert act(DELETE) == [("DELETED", None)] * 3 + not_found
    assert world.use.inspect.count(queue).count == 3  # nothing was touched


def test_an_operators_move_leaves_a_waiting_task_its_time_and_makes_a_dead_one_due(
    world: World,
) -> None:
    queue = world.queue()
    target = world.queue("target", expires_in_seconds=100)
    (gone,) = dead(world, queue, dedupe_key="d", keepalive=77)
    (waiting,) = world.put(queue, delay_in_seconds=60, dedupe_key="w")
    due = world.see(waiting).due_at

    answer = world.use.bulk.by_filter(queue, MOVE, EVERY, to_queue=target)

    assert (answer.matched, answer.changed) == (2, 2)
    for task_id, due_at in ((gone, world.clock()), (waiting, due)):
        task = world.see(task_id)
        assert (task.queue, task.due_at, task.attempts) == (target, due_at, 0)
        assert task.expires_at == due_at + timedelta(seconds=100)
        assert (task.keepalive, task.dedupe_key) == (None, None)
        assert [hop.queue for hop in task.trail] == [queue]
    with pytest.raises(InvalidRequest, match="to_queue"):
        world.use.bulk.by_filter(queue, MOVE, EVERY, to_queue=queue)
    with pytest.raises(NotFound):
        world.use.bulk.by_filter(queue, MOVE, EVERY, to_queue="nowhere")


@pytest.mark.gate
def test_a_filter_acts_on_exactly_what_its_dry_run_showed(world: World) -> None:
    queue = world.queue(shards=3)
    hit = dead(world, queue, 30, error="Connection REFUSED by host", tags={"s": "x"})
    dead(world, queue, 10, error="other", tags={"s": "x"})
    dead(world, queue, 10, error="connection refused", tags={"s": "y"})
    world.put(queue, *["{}"] * 10, tags={"s": "x"})
    where = TaskFilter(("DEAD",), {"s": "x"}, error="connection refused")

    dry = world.use.bulk.by_filter(queue, RESTART, where, dry_run=True)
    assert (dry.matched, dry.changed) == (30, 0)
    first = world.use.bulk.by_filter(queue, RESTART, where, limit=12)
    assert (first.matched, first.changed, first.cursor is None) == (12, 12, False)
    rest = world.use.bulk.by_filter(queue, RESTART, where, cursor=first.cursor)

    assert (rest.matched, rest.changed, rest.cursor) == (18, 18, None)
    assert {world.see(task_id).state for task_id in hit} == {State.ENQUEUED}
    assert world.use.inspect.count(queue).by_state[State.DEAD] == 20
    with pytest.raises(InvalidRequest, match="cursor"):
        world.use.bulk.by_filter(queue, DELETE, where, cursor=first.cursor)


def test_every_filter_lists_and_counts_the_same(world: World) -> None:
    queue = world.queue()
    dead(world, queue, 3, error="boo", tags={"a": "1", "b": "2"})
    world.put(queue, *["{}"] * 4, tags={"a": "1"})
    world.take(queue, 2, worker="bob:1")
    start = world.clock()
    world.put(queue, *["{}"] * 5, delay_in_seconds=100)
    cases = [
        (TaskFilter(tags={"a": "1"}), 7),
        (TaskFilter(tags={"a": "1", "b": "2"}), 3),
        (TaskFilter(tags={"a": "2"}), 0),
        (TaskFilter(worker="bob:1"), 2),
        (TaskFilter(min_attempts=1), 5),
        (TaskFilter(error="BO"), 3),
        (TaskFilter(("pending",), tags={"a": "1"}), 4),
        (TaskFilter(("ENQUEUED",), scheduled_after=start), 5),
        (TaskFilter(("ENQUEUED",), scheduled_before=start), 2),
        (TaskFilter(scheduled_after=start, scheduled_before=start), 0),
    ]

    for where, count in cases:
        assert world.use.inspect.count(queue, where).count == count, where
        listed, cursor = 0, None
        while True:
            page = world.use.inspect.list(queue, where, limit=2, cursor=cursor)
            listed += len(page.tasks)
            cursor = page.cursor
            if cursor is None:
                break
        assert listed == count, where


def test_a_restart_whose_key_is_taken_is_skipped_but_counted_as_matched(world: World) -> None:
    queue = world.queue()
    (old,) = dead(world, queue, dedupe_key="k")
    (holder,) = world.put(queue, dedupe_key="k")

    for dry_run in (True, False):
        answer = world.use.bulk.by_ids(queue, RESTART, [old], dry_run=dry_run)
        assert outcomes(answer) == [("SKIPPED", "dedupe_conflict")]
        assert (answer.matched, answer.changed) == (1, 0)
    world.use.tasks.delete(holder)
    assert world.use.bulk.by_ids(queue, RESTART, [old]).changed == 1
    assert world.store.key_locks(f"dedupe:{queue}") == {"k": old}


def test_the_oldest_dead_tasks_over_the_limit_are_evicted(world: World) -> None:
    queue = world.queue(dead_letter_queue_config=DeadLetterConfig(max_size=3), shards=2)
    ids = []
    for _ in range(8):
        ids += dead(world, queue)
        world.clock.forward(1)

    assert world.use.reaping.run().evicted == 5

    page = world.use.inspect.list(queue, TaskFilter(("DEAD",)))
    assert [task.id for task in page.tasks] == ids[5:]


def reasons(world: World, task_id: str) -> list[str]:
    return [str(reason.code) for reason in world.use.explain.reasons(world.see(task_id))]


def test_why_a_task_is_not_running(world: World) -> None:
    limits = DequeuingSettings(1, RateLimiting(1, 60))
    queue = world.queue(dequeuing_settings=limits)
    first, second, third = world.put(queue, "1", "2", "3")
    (later,) = world.put(queue, delay_in_seconds=60)
    world.clock.forward(1)
    assert (reasons(world, first), reasons(world, second)) == ([], ["behind"])
    assert reasons(world, later) == ["scheduled"]

    task = world.one(queue)
    assert reasons(world, first) == ["leased"]
    assert reasons(world, third) == ["concurrency_limited", "rate_limited", "behind"]
    world.use.queues.pause(queue, resume_in_seconds=9)
    paused = world.use.explain.reasons(world.see(second))[0]
    assert (paused.code, paused.until) == ("paused", world.clock() + timedelta(seconds=9))
    world.say(task, "SUCCEEDED")
    assert reasons(world, first) == ["finished"]


def test_why_a_retry_waits_names_the_attempt_and_its_error(world: World) -> None:
    queue = world.queue(retry_strategy=RetryStrategy(max_retries=3, base_seconds=60, jitter=0))
    (task_id,) = world.put(queue)
    error = WorkerError("TimeoutError", "no answer from smtp", "Traceback")
    world.say(world.one(queue), "FAILED", error=error)

    (reason,) = world.use.explain.reasons(world.see(task_id))

    assert (reason.code, reason.until) == ("scheduled", world.clock() + timedelta(seconds=60))
    assert reason.detail == (
        "waits for its retry: attempt 1 of 4 failed with TimeoutError: no answer from smtp"
    )


def test_the_audit_is_there_before_the_first_task_is_touched(world: World) -> None:
    queue = world.queue()
    (task_id,) = dead(world, queue)
    seen: list[AuditRecord] = []

    def look() -> None:
        seen.extend(world.use.audit.list(AuditFilter(action="restart")).shown)

    hooked(world, before_commit=look).use.bulk.by_ids(queue, RESTART, [task_id])

    (entry,) = seen
    assert (entry.matched, entry.changed) == (None, None)


def test_audit_pages_and_filters(world: World) -> None:
    for number in range(7):
        world.queue(f"q{number}")
        world.clock.forward(1)
    start = world.clock() - timedelta(seconds=3)

    names: list[str | None] = []
    cursor = None
    while True:
        page = world.use.audit.list(AuditFilter(action="create_queue"), limit=2, cursor=cursor)
        names += [entry.queue for entry in page.shown]
        cursor = page.cursor
        if cursor is None:
            break

    assert names == [f"q{number}" for number in range(6, -1, -1)]
    assert len(world.use.audit.list(AuditFilter(since=start)).shown) == 3
    assert len(world.use.audit.list(AuditFilter(before=start)).shown) == 4
    assert len(world.use.audit.list(AuditFilter(queue="q3")).shown) == 1
    world.clock.forward(91 * 86_400)
    assert world.use.audit.list(AuditFilter()).shown == ()


def test_a_restart_takes_the_key_of_an_expired_holder_and_of_no_living_one(world: World) -> None:
    queue = world.queue()
    (first,) = world.put(queue, dedupe_key="k")
    world.say(world.one(queue), "FAILED", retryable=False)
    soon = world.clock() + timedelta(seconds=10)
    world.put(queue, dedupe_key="k", expires_at=soon)
    by_ids = world.use.bulk.by_ids
    for dry_run in (True, False):
        (held,) = by_ids(queue, BulkAction.RESTART, [first], dry_run=dry_run).results
        assert (held.outcome, held.detail) == ("SKIPPED", "dedupe_conflict")
    world.clock.forward(10)

    foreseen = by_ids(queue, BulkAction.RESTART, [first, first], dry_run=True)
    assert [one.outcome for one in foreseen.results] == ["RESTARTED", "SKIPPED"]
    assert by_ids(queue, BulkAction.RESTART, [first]).changed == 1
    assert world.see(first).state is State.ENQUEUED


def test_a_span_of_the_audit_ends_after_it_begins(world: World) -> None:
    now = world.clock()
    AuditFilter(since=now, before=now + timedelta(seconds=1)).check_span()
    with pytest.raises(InvalidRequest, match="from must be before to"):
        AuditFilter(since=now, before=now).check_span()


def test_a_search_over_queues_continues_where_its_last_step_ended(world: World) -> None:
    for name in ("a", "b", "c"):
        world.queue(name)
        world.put(name, *["1"] * 3, tags={"of": name})
    world.put("a", id="order-1")
    world.put("b", id="order-2")
    step = world.use.search.step

    whole = step(BOOTSTRAP, TaskFilter(id_prefix="order-1"))
    assert ([task.id for task in whole.tasks], whole.cursor) == (["order-1"], None)
    both = step(BOOTSTRAP, TaskFilter(id_prefix="order-"))
    assert {task.id for task in both.tasks} == {"order-1", "order-2"}
    assert step(BOOTSTRAP, TaskFilter(id_prefix="order-", states=("DEAD",))).tasks == ()
    where = TaskFilter(without=(TaskFilter(tags={"of": "b"}),))
    parts = [step(BOOTSTRAP, where, limit=2)]
    while (cursor := parts[-1].cursor) is not None:
        parts.append(step(BOOTSTRAP, where, limit=2, cursor=cursor))
    assert max(len(part.tasks) for part in parts) <= 2
    found = {task.id for part in parts for task in part.tasks}
    last = parts[-1]
    assert (len(found), last.found, last.done, last.queues) == (8, 8, 3, 3)
    with acting(Principal("key_1", "ada", Role.OPERATOR, ("b",))):
        seen = step(BOOTSTRAP, TaskFilter(id_prefix="order-"))
        assert step(BOOTSTRAP, EVERY).queues == 1
    assert "order-2" in {task.id for task in seen.tasks}
