"""Lost answers: what took effect did so once, and is answered as it was."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from headrace.domain.access import Role
from headrace.domain.errors import Unauthenticated
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.shared.audit import AuditFilter
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.store.dynamo import Sender
from tests.contract.conftest import World
from tests.contract.faults.client import Faults
from tests.contract.faults.service import AT_ONCE, REPORTS, FaultyService
from tests.contract.groups import opened, settle


@pytest.mark.parametrize(
    "fields", [{}, {"id": "order-1"}, {"dedupe_key": "k"}, {"id": "order-1", "dedupe_key": "k"}]
)
def test_an_enqueue_whose_answer_was_lost_created_its_task_once(
    service: FaultyService, world: World, fields: dict[str, str]
) -> None:
    queue = world.queue()

    with service.suffering(lost=1):
        (result,) = world.use.tasks.enqueue(queue, [TaskSpec("1", **fields)])  # type: ignore[arg-type]

    assert result.outcome is EnqueueOutcome.CREATED
    assert service.see(str(result.id)).version == 1
    assert world.use.inspect.count(queue).count == 1


def test_a_batch_of_enqueues_whose_answer_was_lost_is_there_once(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()
    world.put(queue, id="order-3")

    with service.suffering(lost=1):
        results = world.use.tasks.enqueue(
            queue, [TaskSpec(str(number), id=f"order-{number}") for number in range(25)]
        )

    outcomes = Counter(result.outcome for result in results)
    assert outcomes == {EnqueueOutcome.CREATED: 24, EnqueueOutcome.EXISTING: 1}
    assert results[3].outcome is EnqueueOutcome.EXISTING
    assert world.use.inspect.count(queue).count == 25


@pytest.mark.parametrize(
    "fields", [{}, {"id": "order-1"}, {"dedupe_key": "k"}, {"id": "order-1", "dedupe_key": "k"}]
)
def test_an_enqueue_is_not_repeated_when_its_task_was_done_by_then_and_not_kept(
    service: FaultyService,
    world: World,
    new_service: Callable[[], FaultyService],
    fields: dict[str, str],
) -> None:
    """The SDK writes it again, for it has heard nothing of the first time."""
    queue = world.queue(history_retention_in_seconds=0)
    other = new_service().world
    done: list[Task] = []

    def come_and_go() -> None:
        done.append(other.one(queue))
        assert other.say(done[0], "SUCCEEDED").outcome is ReportOutcome.OK

    with service.suffering(lost=1, meanwhile=come_and_go):
        (result,) = world.use.tasks.enqueue(queue, [TaskSpec("1", **fields)])  # type: ignore[arg-type]

    assert result.outcome is EnqueueOutcome.CREATED
    assert result.task is not None
    assert (result.task.state, result.task.payload) == (State.ENQUEUED, "1")
    assert [task.id for task in done] == [result.id]
    assert world.take(queue) == ()


def test_a_dequeue_whose_answer_was_lost_delivers_once(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue()
    ids = world.put(queue, *["{}"] * 25)

    with service.suffering(lost=1):
        tasks = world.take(queue, 25)

    assert [task.id for task in tasks] == ids
    assert {(task.attempts, task.version) for task in tasks} == {(1, 2)}
    assert new_service().world.take(queue, 25) == ()
    assert world.say(tasks[0], "SUCCEEDED").outcome is ReportOutcome.OK


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize(("status", "fields", "state"), REPORTS)
def test_a_report_whose_answer_was_lost_took_effect_once(
    service: FaultyService,
    world: World,
    status: str,
    fields: dict[str, Any],
    state: State,
    *,
    keyed: bool,
) -> None:
    queue, _ = world.queue(retry_strategy=AT_ONCE), world.queue("other")
    world.put(queue, dedupe_key="key" if keyed else None)
    task = world.one(queue)

    with service.suffering(lost=1):
        result = world.say(task, status, **fields)

    assert result.outcome is ReportOutcome.OK
    after = service.see(task.id)
    assert after.state is state
    assert (len(after.errors), len(after.trail)) == (status == "FAILED", status == "MOVED")
    assert after.attempts == (status not in ("RELEASED", "MOVED"))
    repeated = 2 if status == "INFLIGHT" else 1  # a lease may be renewed twice
    assert after.version == task.version + repeated
    assert result.task is not None
    assert result.task == structs.replace(
        after, payload=result.task.payload
    )  # may be read without it


def test_a_purge_whose_answers_were_lost_counts_what_it_removed(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()
    world.put(queue, *["{}"] * 30)

    with service.suffering(lost=1):
        assert world.use.queues.purge(queue, (State.ENQUEUED,)).deleted == 30


def after_the_note(faults: Faults, others: Callable[[], None]) -> Callable[[], None]:
    """Let *others* act while the second write is unheard: the first is the audit's."""

    def wait() -> None:
        faults.meanwhile = others

    return wait


DONE = [
    (BulkAction.DELETE, "DELETED"),
    (BulkAction.RESTART, "RESTARTED"),
    (BulkAction.RUN, "DUE"),
    (BulkAction.MOVE, "MOVED"),
]


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize(("action", "outcome"), DONE)
def test_an_operators_action_whose_answer_was_lost_was_done_once(
    service: FaultyService, world: World, action: BulkAction, outcome: str, *, keyed: bool
) -> None:
    queue, other = world.queue(), world.queue("other")
    (task_id,) = world.put(queue, dedupe_key="key" if keyed else None)
    task = world.one(queue)
    if action is BulkAction.RESTART:
        world.say(task, "FAILED", retryable=False)
    else:
        world.say(task, "RELEASED", delay_in_seconds=60)
    to_queue = other if action is BulkAction.MOVE else None

    with service.suffering(lost=1):
        answer = world.use.bulk.by_ids(queue, action, [task_id], to_queue=to_queue)

    assert [result.outcome for result in answer.results] == [outcome]
    assert (answer.matched, answer.changed) == (1, 1)
    if action is not BulkAction.DELETE:
        assert service.see(task_id).version == 4


@pytest.mark.parametrize("by_ids", [False, True], ids=["one", "by ids"])
def test_a_delete_unheard_does_not_take_a_new_task_of_the_same_id(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService], *, by_ids: bool
) -> None:
    queue = world.queue()
    world.put(queue, id="order")
    producer = new_service().world

    def again() -> None:
        producer.clock.forward(0.001)
        producer.put(queue, '"new"', id="order")

    with service.suffering(lost=1) as faults:
        faults.meanwhile = after_the_note(faults, again)
        if by_ids:
            answer = world.use.bulk.by_ids(queue, BulkAction.DELETE, ["order"])
            assert [result.outcome for result in answer.results] == ["DELETED"]
        else:
            world.use.tasks.delete("order")

    assert service.see("order").payload == '"new"'


def test_a_key_whose_making_and_rotation_were_not_heard_of_is_made_and_rotated_once(
    service: FaultyService, world: World
) -> None:
    with service.suffering(lost=1):
        made = world.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER)
        rotated = world.use.keys.rotate(BOOTSTRAP, made.key.id)

    assert world.use.keys.verify(rotated.secret).name == "sensors"
    with pytest.raises(Unauthenticated):
        world.use.keys.verify(made.secret)
    actions = [entry.action for entry in world.use.audit.list(AuditFilter()).shown]
    assert sorted(actions) == ["create_key", "rotate_key"]


def test_settings_whose_change_was_not_heard_of_are_changed_once(
    service: FaultyService, world: World
) -> None:
    queue = world.queue()

    with service.suffering(lost=1):
        changed = world.use.queues.replace(queue, QueueSettings(description="new"), version=1)

    assert world.use.queues.get(queue) == changed
    assert (changed.version, changed.settings.description) == (2, "new")


# -- group leases ----------------------------------------------------------------------------------


def test_a_closed_group_stays_until_a_lagging_index_shows_what_it_held(
    service: FaultyService, world: World
) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    ids = world.put(queue, *["{}"] * 3)
    service.client.freeze_index(service.tables.tasks)
    group = opened(world, keepalive=3600)
    tasks = world.take(queue, 3, lease_id=group)
    settle(world, tasks[0], group, "SUCCEEDED")

    with service.suffering(stale=1):
        world.use.leases.close(group)
        assert world.use.reaping.run().released == 0
    assert {world.see(id_).state for id_ in ids[1:]} == {State.INFLIGHT}
    world.clock.forward(60)

    assert world.use.reaping.run().released == 2
    assert [(world.see(id_).state, world.see(id_).attempts) for id_ in ids[1:]] == [
        (State.ENQUEUED, 0)
    ] * 2


# -- an index that lags ----------------------------------------------------------------------------


@pytest.fixture
def sender() -> Sender:
    """Send as it is wired: what is listed hangs on no sender."""
    return "batch"


def test_a_purge_counts_nothing_that_only_a_lagging_index_still_shows(
    service: FaultyService, world: World, new_service: Callable[[], FaultyService]
) -> None:
    queue = world.queue(history_retention_in_seconds=0)
    world.put(queue, *["{}"] * 5)
    other = new_service()
    other.client.freeze_index(service.tables.tasks)
    for task in world.take(queue, 3):
        world.say(task, "SUCCEEDED")

    with other.suffering(stale=1):
        purged = [other.world.use.queues.purge(queue, (State.ENQUEUED,)) for _ in range(2)]

    assert [(of.deleted, of.finished) for of in purged] == [(2, True), (0, True)]
