"""What every store promises about group leases: one end for many tasks, and it ends once."""

from datetime import timedelta

import pytest

from headrace.domain.errors import InvalidRequest, LeaseLost, NotFound
from headrace.domain.lease import GroupState, lapse
from headrace.domain.limits import LEASE_QUEUES
from headrace.domain.task import ErrorKind, State
from headrace.ops.delivery.reports import ReportOutcome
from headrace.ops.shared.leases import find_group
from headrace.store.call_scope import metered
from tests.contract.conftest import World, lease_name
from tests.contract.groups import held, opened, settle

MINUTE = timedelta(seconds=60)


# -- one end for all of them ------------------------------------------------------------------


@pytest.mark.gate
def test_tasks_under_a_group_are_leased_until_its_end(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue, "1", "2", keepalive=7)
    group = opened(world)
    end = world.clock() + MINUTE
    world.clock.forward(20)

    tasks = world.take(queue, 2, lease_id=group)

    assert [task.lease_expires_at for task in tasks] == [end, end]
    assert {str(lease_name(task)) for task in tasks} == {group}
    assert {world.see(task.id).lease_expires_at for task in tasks} == {end}


def test_one_extension_is_for_all_of_them(world: World) -> None:
    queue = world.queue(keepalive_timeout_in_seconds=5)
    world.put(queue, "1", "2")
    group = opened(world)
    tasks = world.take(queue, 2, lease_id=group)
    for _ in range(5):
        world.clock.forward(45)
        world.use.leases.extend(group)
        world.use.reaping.run()
        world.take(queue)
    extended = world.use.leases.extend(group)

    assert extended.expires_at == world.clock() + MINUTE
    for task in tasks:
        assert world.see(task.id).lease_expires_at == extended.expires_at
    shown = world.use.inspect.list(queue).tasks
    assert [(task.state, task.lease_expires_at) for task in shown] == [
        (State.INFLIGHT, extended.expires_at)
    ] * 2
    reasons = world.use.explain.reasons(world.see(tasks[0].id))
    assert [reason.until for reason in reasons] == [extended.expires_at]
    assert world.use.inspect.count(queue).by_state[State.INFLIGHT] == 2


def test_an_extension_writes_one_unit_however_many_tasks_there_are(world: World) -> None:
    queue = world.queue()
    group = opened(world)
    for _ in range(2):
        world.put(queue, *["{}"] * 25)
        world.take(queue, 25, lease_id=group)
    assert len(held(world, group, queue)) == 50

    with metered() as meter:
        world.use.leases.extend(group)

    assert meter.write <= 1.0  # the store in memory has no units
    assert meter.read == 0.0


# -- how it ends ------------------------------------------------------------------------------


def test_a_group_that_lapsed_is_never_extended_and_its_tasks_failed_an_attempt(
    world: World,
) -> None:
    queue = world.queue()
    world.put(queue, "1", "2")
    group = opened(world)
    world.take(queue, 2, lease_id=group, worker="gone:9")
    world.clock.forward(61)

    with pytest.raises(LeaseLost, match="lapsed"):
        world.use.leases.extend(group)
    with pytest.raises(LeaseLost):
        world.take(queue, lease_id=group)
    assert world.use.reaping.run().retried == 2

    for task in world.use.inspect.list(queue).tasks:
        (error,) = task.errors
        assert (error.kind, error.worker, task.attempts) == (ErrorKind.LEASE_EXPIRED, "gone:9", 1)
    stored = find_group(world.store, group)
    assert stored is not None
    assert stored.state is GroupState.LAPSED
    for wrong in (world.use.leases.extend, world.use.leases.close):
        with pytest.raises(LeaseLost, match="lapsed"):
            wrong(group)


def test_an_extension_before_the_mark_wins_and_after_it_revives_nothing(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    group = opened(world)
    world.take(queue, lease_id=group)
    world.clock.forward(59)
    seen = find_group(world.store, group)
    assert seen is not None
    world.use.leases.extend(group)
    world.clock.forward(2)

    # The service has read the group before the extension, and marks it by what it read.
    assert not world.store.patch(lapse(seen, now=world.clock())).made
    assert world.use.reaping.run().retried == 0

    world.clock.forward(60)
    assert world.use.reaping.run().retried == 1
    with pytest.raises(LeaseLost):
        world.use.leases.extend(group)


@pytest.mark.gate
def test_closing_releases_what_is_unsettled_with_no_attempt_used(world: World) -> None:
    queue, wide = world.queue(), world.queue("wide", shards=3)
    world.put(queue, "1", "2", "3", dedupe_key=None)
    world.put(wide, *["{}"] * 120)
    alone = world.one(queue)
    group = opened(world)
    done, back = world.take(queue, 2, lease_id=group)
    for _ in range(5):
        world.take(wide, 25, lease_id=group)
    settle(world, done, group, "SUCCEEDED")

    world.use.leases.close(group)

    waiting = world.see(back.id)
    assert (waiting.state, waiting.attempts, waiting.errors) == (State.ENQUEUED, 0, ())
    assert waiting.due_at == world.clock()
    assert world.see(done.id).state is State.SUCCEEDED
    assert world.see(alone.id).state is State.INFLIGHT
    assert world.use.inspect.count(wide).by_state[State.ENQUEUED] == 120
    assert settle(world, back, group, "SUCCEEDED") is ReportOutcome.NOT_INFLIGHT


def test_a_closed_group_takes_and_extends_nothing_and_may_be_closed_again(world: World) -> None:
    queue = world.queue()
    world.put(queue)
    group = opened(world)
    world.use.leases.close(group)
    world.use.leases.close(group)

    with pytest.raises(LeaseLost, match="closed"):
        world.use.leases.extend(group)
    with pytest.raises(LeaseLost, match="closed"):
        world.take(queue, lease_id=group)
    assert world.one(queue).attempts == 1


# -- names ------------------------------------------------------------------------------------


@pytest.mark.gate
def test_a_name_is_taken_until_a_day_after_the_end(world: World) -> None:
    group = opened(world, "batch-7")
    assert opened(world, "batch-8") != opened(world) != opened(world)
    taken = "name: a lease named batch-7 is open, or has ended within the last day"
    with pytest.raises(LeaseLost, match=taken):
        opened(world, "batch-7")
    world.use.leases.close(group)
    world.clock.forward(86_398)
    with pytest.raises(LeaseLost, match=taken):
        opened(world, "batch-7")
    world.clock.forward(3)

    again = opened(world, "batch-7")

    assert again != group
    with pytest.raises(LeaseLost):
        world.use.leases.extend(group)
    assert world.use.leases.extend(again).id == again


def test_an_unknown_group_is_no_lease(world: World) -> None:
    queue = world.queue()
    stranger = opened(world)[:-1] + "!"

    with pytest.raises(LeaseLost):
        world.use.leases.extend(stranger)
    with pytest.raises(LeaseLost):
        world.take(queue, lease_id=stranger)
    with pytest.raises(NotFound):
        world.use.leases.close(stranger)
    assert held(world, stranger, queue) == []


def test_a_lease_that_is_not_there_is_not_found_and_holds_nothing(world: World) -> None:
    world.queue()
    with pytest.raises(NotFound, match="there is no such lease"):
        world.use.leases.close("nothing")
    assert held(world, "nothing", "mail") == []


def test_a_lease_takes_tasks_of_so_many_queues_and_no_more(world: World) -> None:
    group = opened(world)
    names = [f"q{number}" for number in range(LEASE_QUEUES + 1)]
    for name in names:
        world.queue(name)
    with pytest.raises(InvalidRequest, match="a lease takes tasks of at most"):
        world.use.leases.open_for(group, *names)
