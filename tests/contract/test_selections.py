"""Sets of tasks that are looked at first and acted on after: what is touched is what was seen."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from headrace.domain.change import Change
from headrace.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Actor
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.local.tables import TableNames
from headrace.ops.delivery.reports import ReportStatus, TaskReport, WorkerError
from headrace.ops.operators.action_work import CLAIMED_FOR
from headrace.ops.shared.audit import AuditFilter
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Done, Outcome
from headrace.store.dynamo import DynamoStore
from headrace.store.dynamo.raw_client import RawClient
from headrace.store.records.actions import ActionRun
from headrace.store.records.selections import KEPT, TaskSelection
from tests.contract.conftest import World, lease_name

DEAD = TaskFilter(states=("DEAD",))


def kill(world: World, queue: str, count: int, kind: str = "Timeout") -> list[str]:
    """Enqueue tasks where none is ready, and let them die."""
    ids = world.put(queue, *["{}"] * count)
    while tasks := world.take(queue, 25):
        for task in tasks:
            world.say(task, "FAILED", error=WorkerError(kind, "no", ""), retryable=False)
    return ids


def all_of(world: World, found: TaskSelection) -> TaskSelection:
    while found.looking:
        found = world.use.selections.go_on(found.name)
    return found


def act(world: World, found: TaskSelection, at: int = 0, **more: Any) -> ActionRun:
    """Begin an action on a set, have the service do it, and return how it ended."""
    run = world.use.actions.begin(found.name, at=at, **more)
    world.use.action_work.run()
    return world.use.actions.get(run.id)


def look(world: World, queue: str, where: TaskFilter = DEAD, **more: Any) -> TaskSelection:
    call = {"action": BulkAction.RESTART, "by": "ada", **more}
    return all_of(world, world.use.selections.look(queues=[queue], where=where, **call))


def test_what_was_seen_is_restarted_and_counted(world: World) -> None:
    queue = world.queue()
    ids = kill(world, queue, 7)
    found = look(world, queue)

    assert (found.count, found.at, found.begun) == (7, 0, False)
    assert len(found.samples) == 5
    done = act(world, found)
    assert (done.status, done.changed, done.left) == ("DONE", 7, {})
    assert {world.see(task).state for task in ids} == {State.ENQUEUED}


def test_a_few_come_first_and_the_rest_when_asked(world: World) -> None:
    queue = world.queue()
    kill(world, queue, 12)
    found = look(world, queue)
    few = world.use.actions.begin(found.name, at=0, most=5)
    world.use.action_work.run()
    few = world.use.actions.get(few.id)
    assert (few.status, few.changed, few.total) == ("DONE", 5, 5)
    assert world.use.selections.get(found.name).rest == 7
    with pytest.raises(Conflict):  # sent twice
        world.use.actions.begin(found.name, at=0, most=5)
    assert act(world, found, at=5).changed == 7
    with pytest.raises(Conflict):
        world.use.actions.begin(found.name, at=12)


def test_what_comes_after_the_look_is_never_touched(world: World) -> None:
    queue = world.queue()
    kill(world, queue, 3)
    found = look(world, queue)
    later = kill(world, queue, 4)
    act(world, found)

    assert {world.see(task).state for task in later} == {State.DEAD}


def test_a_task_that_left_and_came_back_is_left_alone(world: World) -> None:
    queue = world.queue()
    [task] = kill(world, queue, 1)
    found = look(world, queue)
    world.use.bulk.by_ids(queue, BulkAction.RESTART, [task])
    kill(world, queue, 0)  # it dies again
    assert world.see(task).state is State.DEAD
    done = act(world, found)

    assert (done.changed, done.left) == (0, {"the task has changed meanwhile": 1})
    assert world.see(task).state is State.DEAD


def test_what_is_gone_or_elsewhere_is_told(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    gone, moved = kill(world, queue, 2)
    found = look(world, queue)
    world.use.tasks.delete(gone)
    world.use.bulk.by_ids(queue, BulkAction.MOVE, [moved], to_queue=other)
    world.clock.forward(0.001)  # no two actions are of one microsecond
    done = act(world, found)

    assert (done.changed, done.left) == (0, {"NOT_FOUND": 2})


def test_a_heartbeat_does_not_hide_a_task_from_its_deletion(world: World) -> None:
    queue = world.queue()
    world.put(queue, "{}", "{}")
    task = world.one(queue)
    found = look(world, queue, TaskFilter(states=("INFLIGHT",)), action=BulkAction.DELETE)
    world.say(task, "INFLIGHT", progress='{"done": 1}')
    done = act(world, found)

    assert (done.total, done.changed) == (1, 1)


def unfinished(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a queue of which a call does not look at all tasks."""
    monkeypatch.setattr("headrace.ops.operators.selections._LOOKS", 20)
    queue = world.queue()
    world.put(queue, *["{}"] * 25, delay_in_seconds=600)
    return queue


def test_what_comes_while_it_looks_is_not_taken_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = unfinished(world, monkeypatch)
    where = TaskFilter(states=("ENQUEUED", "DEAD"))
    found = world.use.selections.look(BulkAction.DELETE, [queue], where, by="ada")
    assert found.looking
    [later] = kill(world, queue, 1)
    found = all_of(world, found)
    act(world, found)

    assert (found.count, found.looked_at) == (25, 26)
    assert world.see(later).state is State.DEAD


def test_a_move_takes_its_target_once(world: World) -> None:
    queue, other = world.queue(), world.queue("other")
    ids = kill(world, queue, 6)
    found = look(world, queue, action=BulkAction.MOVE)

    for target in (None, "", queue):
        with pytest.raises(InvalidRequest) as refused:
            world.use.actions.begin(found.name, at=0, to_queue=target)
        assert refused.value.errors[0].field == "to_queue"
    with pytest.raises(NotFound):
        world.use.actions.begin(found.name, at=0, to_queue="nowhere")
    act(world, found, most=5, to_queue=other)
    act(world, found, at=5, to_queue="nowhere")
    assert {world.see(task).queue for task in ids} == {other}


def test_a_set_is_checked_each_time_it_is_read_and_with_the_target_it_is_to_have(
    world: World,
) -> None:
    queue, target = world.queue("from"), world.queue("to")
    kill(world, queue, 3)
    found = look(world, queue, action=BulkAction.MOVE)
    requested: list[tuple[str, ...]] = []

    def check(seen: TaskSelection) -> None:
        requested.append(seen.touches)
        if target in seen.touches:
            raise Forbidden("not there")

    sets, begin = world.use.selections, world.use.actions.begin
    with pytest.raises(Forbidden):
        begin(found.name, at=0, most=1, to_queue=target, check=check)
    assert requested == [(queue,), (queue, target)]
    assert not sets.get(found.name).begun
    begin(found.name, at=0, most=1, to_queue=target)
    for step in (sets.get, sets.go_on, partial(begin, at=1)):
        with pytest.raises(Forbidden):
            step(found.name, check=check)
    assert sets.get(found.name).at == 1


def test_a_set_of_several_queues_is_one_set(world: World) -> None:
    one, two = world.queue("one"), world.queue("two")
    kill(world, one, 3)
    kill(world, two, 4)
    found = world.use.selections.look(BulkAction.DELETE, [one, two], DEAD, by="ada")
    done = act(world, found)

    assert (found.count, done.changed) == (7, 7)
    [entry] = world.use.audit.list(AuditFilter(action="delete")).shown
    assert (entry.queue, entry.matched, entry.changed, entry.run) == (None, 7, 7, done.id)
    assert entry.filter is not None
    assert (entry.filter["set"], entry.filter["queues"]) == (found.name, f"{one},{two}")


def test_a_table_that_is_away_for_a_while_only_delays_an_action(world: World) -> None:
    queue = world.queue()
    ids = kill(world, queue, 8)
    found = look(world, queue)
    sound = world.use.bulk.store
    world.use.bulk.store = FailingStore(sound)  # type: ignore[assignment]  # a part of one
    run = world.use.actions.begin(found.name, at=0)
    with pytest.raises(Unavailable):
        world.use.action_work.run()

    world.use.bulk.store = sound
    assert world.use.action_work.run() == 0  # whoever began that part may be at it still
    world.clock.forward(CLAIMED_FOR.total_seconds())
    assert world.use.action_work.run() == 8
    assert world.use.actions.get(run.id).changed == 8
    assert {world.see(task).state for task in ids} == {State.ENQUEUED}


def test_a_look_that_somebody_is_at_is_left_to_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = unfinished(world, monkeypatch)
    found = world.use.selections.look(BulkAction.DELETE, [queue], TaskFilter(), by="ada")
    busy = replace(found, busy_until=world.clock() + timedelta(seconds=30))
    assert world.use.selections._put(busy)  # noqa: SLF001  as a call that is under way, or was cut off

    assert world.use.selections.go_on(found.name).looked_at == found.looked_at
    world.clock.forward(30)
    assert world.use.selections.go_on(found.name).looked_at == 25


def test_a_set_is_kept_for_a_week(world: World) -> None:
    found = look(world, world.queue())
    world.clock.forward(KEPT.total_seconds())

    assert found.handed_over
    with pytest.raises(NotFound):
        world.use.selections.get(found.name)


@dataclass
class FailingStore:
    """A store whose table takes no changes."""

    store: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def commit(self, _changes: Sequence[Change]) -> list[Outcome]:
        message = "the table is away"
        raise Unavailable(message)


# -- while workers change the queue ----------------------------------------------------------------

WORKERS = 8
TASKS = 100
RETRIES = RetryStrategy(Backoff.FIXED, max_retries=1, base_seconds=0, jitter=0)


class WatchedStore(DynamoStore):
    """The real store; notes what operators change."""

    touched: list[str]

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        outcomes = super().commit(changes, **how)
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.rule.actor is Actor.OPERATOR and isinstance(outcome, Done):
                self.touched.append(change.task_id)
        return outcomes


@dataclass
class Factory:
    """Workers that take, fail, finish and enqueue tasks until told to stop."""

    use: UseCases
    over: threading.Event = field(default_factory=threading.Event)

    def work(self, number: int) -> int:
        handled = 0
        while not self.over.wait(0.02):  # they share one process with the operator
            tasks = self.use.deliveries.dequeue("race", batch_size=5, worker=f"w:{number}").tasks
            reports = [
                TaskReport(
                    task.id,
                    str(lease_name(task)),
                    ReportStatus.FAILED if place % 3 else ReportStatus.SUCCEEDED,
                    retryable=place % 2 == 0,
                )
                for place, task in enumerate(tasks)
            ]
            if reports:
                self.use.reports.report("race", reports)
            self.use.tasks.enqueue("race", [TaskSpec("{}")] * 4)
            handled += len(tasks)
        return handled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "states"),
    [(BulkAction.RESTART, ("DEAD",)), (BulkAction.DELETE, ("pending", "DEAD"))],
)
def test_the_set_touched_is_the_set_seen_while_eight_workers_change_the_queue(
    raw_dynamodb: RawClient,
    tables: TableNames,
    action: BulkAction,
    states: tuple[str, ...],
) -> None:
    settings = Settings(admin_key="test", poll_after_seconds=0)
    named: Any = {"tasks_table": tables.tasks, "control_table": tables.control}
    theirs = DynamoStore(raw_dynamodb, **named)
    factory = Factory(build(settings, theirs))
    store = WatchedStore(raw_dynamodb, **named)
    store.touched = []
    operator = build(settings, store)
    queue = "race"
    operator.queues.create(queue, QueueSettings(retry_strategy=RETRIES))
    for _ in range(TASKS // 25):
        operator.tasks.enqueue(queue, [TaskSpec("{}")] * 25)

    with ThreadPoolExecutor(WORKERS) as pool:
        working = [pool.submit(factory.work, number) for number in range(WORKERS)]
        try:
            while operator.inspect.count(queue, DEAD).count < TASKS // 4:
                pass
            found = operator.selections.look(action, [queue], TaskFilter(states=states), by="ada")
            while found.looking:
                found = operator.selections.go_on(found.name)
            seen = kept_ids(store, found)
            before = sum(operator.inspect.count(queue, DEAD).by_state.values())
            runs = [operator.actions.begin(found.name, at=0, most=5)]
            operator.action_work.run()
            few = list(store.touched)
            runs.append(operator.actions.begin(found.name, at=5))
            operator.action_work.run()
        finally:
            factory.over.set()
        handled = sum(each.result() for each in working)

    assert before > 0
    assert handled > TASKS / 4
    runs = [operator.actions.get(run.id) for run in runs]
    changed = sum(run.changed for run in runs)
    assert len(seen) == found.count > TASKS // 8
    assert {run.status for run in runs} == {"DONE"}
    assert set(few) <= set(seen[:5])
    assert len(store.touched) == len(set(store.touched)) == changed
    assert set(store.touched) <= set(seen)
    assert found.count - changed == sum(sum(run.left.values()) for run in runs)
    if action is BulkAction.RESTART:  # nobody else restarts: what was seen dead was dead
        assert set(store.touched) == set(seen)


def kept_ids(store: DynamoStore, found: TaskSelection) -> list[str]:
    """Return the ids that the dry run has shown, in order."""
    return [
        task_id
        for number in range(len(found.chunks))
        if (record := store.record("sightings", f"{found.name}:{number:06}"))
        for task_id, _ in record.body["tasks"]
    ]
