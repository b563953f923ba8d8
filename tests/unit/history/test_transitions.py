"""What each move of a task looks like in the stream, and what the recorder takes it for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.instants import instant_of
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, State
from headrace.domain.write import TaskWrite
from headrace.history.transitions import Event, Transition, transition
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import Streamed

ENQUEUED, INFLIGHT, SUCCEEDED, DEAD = SHOWN_STATES
ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=60, jitter=0, max_retries=1)
NO_DEAD = DeadLetterConfig(enable=False)


class WatchedWorld(World):
    """A service whose stream is looked at move by move."""

    store: Any

    def moved(self) -> list[Transition]:
        """The transitions since the last call."""
        return [transition(write) for write in self.store.taken()]

    def last(self) -> Transition:
        """The only transition since the last call."""
        (only,) = self.moved()
        return only

    def seconds(self, change: Transition) -> list[tuple[Event, str, float | None]]:
        """The transitions, with durations in seconds."""
        return [
            (each.event, each.queue, None if each.micros is None else each.micros / 1_000_000)
            for each in change.happenings
        ]


@pytest.fixture
def watched() -> WatchedWorld:
    clock = ManualClock()
    world = new_world(Streamed(MemoryStore(), clock).store, clock)
    return WatchedWorld(world.store, world.clock, world.use)


def test_an_enqueue_brings_a_task(watched: WatchedWorld) -> None:
    queue = watched.queue()
    watched.put(queue, delay_in_seconds=60)

    change = watched.last()

    assert (change.left, change.entered) == (None, (queue, ENQUEUED))
    assert watched.seconds(change) == [(Event.ENQUEUED, queue, None)]
    assert instant_of(change.at) == watched.clock()  # when it came, not when it is due


def test_a_delivery_tells_how_long_the_task_was_due(watched: WatchedWorld) -> None:
    queue = watched.queue()
    watched.put(queue, delay_in_seconds=60)
    watched.clock.forward(62.5)
    watched.moved()

    watched.one(queue)
    change = watched.last()

    assert (change.left, change.entered) == ((queue, ENQUEUED), (queue, INFLIGHT))
    assert watched.seconds(change) == [(Event.STARTED, queue, 2.501)]
    assert instant_of(change.at) == watched.clock()


def delivered(watched: WatchedWorld, **settings: Any) -> Any:
    """Return a task that has been worked on for three seconds."""
    queue = watched.queue(**settings)
    watched.put(queue)
    task = watched.one(queue)
    watched.clock.forward(3)
    watched.moved()
    return task


def test_a_success_tells_how_long_the_worker_had_the_task(watched: WatchedWorld) -> None:
    task = delivered(watched)

    watched.say(task, "SUCCEEDED")
    change = watched.last()

    assert (change.left, change.entered) == ((task.queue, INFLIGHT), (task.queue, SUCCEEDED))
    assert watched.seconds(change) == [(Event.SUCCEEDED, task.queue, 3.0)]


def test_a_heartbeat_changes_no_count(watched: WatchedWorld) -> None:
    task = delivered(watched)

    watched.say(task, "INFLIGHT", progress="1")
    change = watched.last()

    assert change.left == change.entered
    assert change.happenings == ()


def test_a_failed_attempt_is_a_failure_and_a_wait(watched: WatchedWorld) -> None:
    task = delivered(watched, retry_strategy=ONCE)

    watched.say(task, "FAILED")
    change = watched.last()

    assert change.entered == (task.queue, ENQUEUED)
    assert watched.seconds(change) == [(Event.FAILED, task.queue, 3.0)]
    assert instant_of(change.at) == watched.clock()


@pytest.mark.parametrize("end", ["fail", "lapse"])
def test_the_last_failure_is_a_failure_and_a_death(watched: WatchedWorld, end: str) -> None:
    task = delivered(watched, retry_strategy=replace(ONCE, max_retries=0))

    if end == "fail":
        watched.say(task, "FAILED")
    else:
        watched.clock.forward(60)
        watched.use.reaping.run()
    change = watched.last()

    assert change.entered == (task.queue, DEAD)
    assert watched.seconds(change) == [
        (Event.FAILED, task.queue, 3.0 if end == "fail" else 63.0),
        (Event.DEAD, task.queue, None),
    ]


def test_a_lapsed_lease_is_a_failed_attempt(watched: WatchedWorld) -> None:
    task = delivered(watched, retry_strategy=ONCE)
    watched.clock.forward(60)

    watched.use.reaping.run()

    assert watched.seconds(watched.last()) == [(Event.FAILED, task.queue, 63.0)]


def test_a_release_is_no_event(watched: WatchedWorld) -> None:
    task = delivered(watched)

    watched.say(task, "RELEASED")
    change = watched.last()

    assert (change.entered, change.happenings) == ((task.queue, ENQUEUED), ())


def test_an_expiry_is_a_death_without_a_failure(watched: WatchedWorld) -> None:
    queue = watched.queue(expires_in_seconds=10)
    watched.put(queue)
    watched.clock.forward(11)
    watched.moved()

    watched.use.reaping.run()

    assert watched.seconds(watched.last()) == [(Event.DEAD, queue, None)]


@pytest.mark.parametrize("taken", [False, True], ids=["waiting", "in flight"])
def test_a_cancel_is_neither_a_failure_nor_a_death(watched: WatchedWorld, *, taken: bool) -> None:
    queue = watched.queue()
    (task_id,) = watched.put(queue)
    if taken:
        watched.one(queue)
    watched.clock.forward(3)
    watched.moved()

    watched.use.cancelling.cancel(task_id)
    change = watched.last()

    assert change.entered == (queue, DEAD)
    assert watched.seconds(change) == [(Event.CANCELLED, queue, None)]
    assert instant_of(change.at) == watched.clock()


def test_a_workers_move_ends_work_here_and_enqueues_there(watched: WatchedWorld) -> None:
    task = delivered(watched)
    other = watched.queue("other")

    watched.say(task, "MOVED", to_queue=other)
    change = watched.last()

    assert (change.left, change.entered) == ((task.queue, INFLIGHT), (other, ENQUEUED))
    assert watched.seconds(change) == [
        (Event.ENQUEUED, other, None),
        (Event.MOVED, task.queue, 3.0),
    ]


@pytest.mark.parametrize("spawning", ["SUCCEEDED", "MOVED"])
def test_what_a_report_spawns_is_enqueued(watched: WatchedWorld, spawning: str) -> None:
    task = delivered(watched)
    other = watched.queue("other")
    fields: dict[str, Any] = {"to_queue": other} if spawning == "MOVED" else {}
    children = ((other, TaskSpec("1")), (other, TaskSpec("2")))

    watched.say(task, spawning, spawn=children, **fields)
    changes = watched.moved()

    enqueued = [each for change in changes for each in change.happenings]
    assert sum(each.event is Event.ENQUEUED for each in enqueued) == 2 + (spawning == "MOVED")


def test_an_operators_move_enqueues_there(watched: WatchedWorld) -> None:
    queue, other = watched.queue(), watched.queue("other")
    (task_id,) = watched.put(queue, delay_in_seconds=600)
    watched.clock.forward(5)
    watched.moved()

    watched.use.bulk.by_ids(queue, BulkAction.MOVE, [task_id], to_queue=other)
    change = watched.last()

    assert (change.left, change.entered) == ((queue, ENQUEUED), (other, ENQUEUED))
    assert watched.seconds(change) == [(Event.ENQUEUED, other, None)]
    assert instant_of(change.at) == watched.clock()


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED"])
def test_a_restart_enqueues_again(watched: WatchedWorld, end: str) -> None:
    task = delivered(watched, retry_strategy=replace(ONCE, max_retries=0))
    watched.say(task, end)
    watched.clock.forward(5)
    watched.moved()

    watched.use.bulk.by_ids(task.queue, BulkAction.RESTART, [task.id])
    change = watched.last()

    assert change.entered == (task.queue, ENQUEUED)
    assert watched.seconds(change) == [(Event.ENQUEUED, task.queue, None)]
    assert instant_of(change.at) == watched.clock()


def test_running_a_task_now_is_no_event(watched: WatchedWorld) -> None:
    queue = watched.queue()
    (task_id,) = watched.put(queue, delay_in_seconds=600)
    watched.moved()

    watched.use.bulk.by_ids(queue, BulkAction.RUN, [task_id])
    change = watched.last()

    assert (change.left, change.happenings) == (change.entered, ())


@pytest.mark.parametrize("state", list(SHOWN_STATES))
def test_a_removal_leaves_and_comes_to_nothing(watched: WatchedWorld, state: State) -> None:
    change = removed(watched, state)

    assert (change.left, change.entered) == (("mail", state), None)
    assert change.happenings == ()


def removed(watched: WatchedWorld, state: State) -> Transition:
    watched.use.tasks.delete(in_state(watched, state))
    return watched.last()


def in_state(watched: WatchedWorld, state: State) -> str:
    """Return a task in *state*."""
    if state is ENQUEUED:
        (task_id,) = watched.put(watched.queue())
    else:
        task = delivered(watched, retry_strategy=replace(ONCE, max_retries=0))
        task_id = task.id
        if state is not INFLIGHT:
            watched.say(task, "SUCCEEDED" if state is SUCCEEDED else "FAILED")
    watched.moved()
    return task_id


def lapse(watched: WatchedWorld, _task: Any) -> None:
    watched.clock.forward(60)
    watched.use.reaping.run()


Act = Callable[[WatchedWorld, Any], object]
ENDS: dict[str, Act] = {
    "succeeds": lambda watched, task: watched.say(task, "SUCCEEDED"),
    "fails": lambda watched, task: watched.say(task, "FAILED", retryable=False),
    "lapses": lapse,
    "is deleted": lambda watched, task: watched.use.tasks.delete(task.id),
    "is cancelled": lambda watched, task: watched.use.cancelling.cancel(task.id),
}


@pytest.mark.parametrize(
    ("history", "dead_letters", "end", "meant"),
    [
        (0, True, "succeeds", [Event.SUCCEEDED]),
        (0, False, "succeeds", [Event.SUCCEEDED]),
        (0, False, "lapses", [Event.FAILED, Event.DEAD]),
        (60, False, "fails", [Event.FAILED, Event.DEAD]),
        (60, False, "lapses", [Event.FAILED, Event.DEAD]),
        (60, False, "is cancelled", [Event.CANCELLED]),
        (60, True, "is deleted", []),
        (0, True, "is deleted", []),
        (60, False, "is deleted", []),
    ],
)
def test_how_a_task_ended_that_is_not_kept_is_told_by_what_is_left_of_it(
    watched: WatchedWorld, *, history: int, dead_letters: bool, end: str, meant: list[Event]
) -> None:
    task = delivered(
        watched,
        history_retention_in_seconds=history,
        dead_letter_queue_config=DeadLetterConfig(enable=dead_letters),
        retry_strategy=replace(ONCE, max_retries=0),
    )

    ENDS[end](watched, task)

    assert goodbyes(watched, task.queue) == meant


def test_a_success_under_a_group_that_was_extended_is_none_the_less(watched: WatchedWorld) -> None:
    queue = watched.queue(history_retention_in_seconds=0, dead_letter_queue_config=NO_DEAD)
    watched.put(queue)
    leases = watched.use.leases
    group = leases.open(None, keepalive=10)
    ((task, *_),) = [watched.use.deliveries.dequeue(queue, worker="w1", lease_id=group.id).tasks]
    watched.clock.forward(8)
    leases.extend(group.id)
    watched.clock.forward(8)
    watched.moved()

    watched.say(task, "SUCCEEDED")

    assert goodbyes(watched, queue) == [Event.SUCCEEDED]


def test_a_task_that_expires_where_no_dead_are_kept_has_died(watched: WatchedWorld) -> None:
    queue = watched.queue(expires_in_seconds=10, dead_letter_queue_config=NO_DEAD)
    watched.put(queue)
    watched.clock.forward(12)
    watched.moved()

    watched.use.reaping.run()

    assert goodbyes(watched, queue) == [Event.DEAD]


def test_a_waiting_task_that_is_deleted_has_met_nothing(watched: WatchedWorld) -> None:
    queue = watched.queue(dead_letter_queue_config=NO_DEAD)
    (task_id,) = watched.put(queue)
    watched.moved()

    watched.use.tasks.delete(task_id)

    assert goodbyes(watched, queue) == []


def goodbyes(watched: WatchedWorld, queue: str) -> list[Event]:
    change = watched.last()
    assert (change.left and change.left[0], change.entered) == (queue, None)
    assert instant_of(change.at) == watched.clock() or not change.happenings
    return [happening.event for happening in change.happenings]


def test_that_nothing_is_left_of_a_task_any_more_is_no_event(watched: WatchedWorld) -> None:
    task = delivered(watched, history_retention_in_seconds=0)
    watched.say(task, "SUCCEEDED")
    (write,) = watched.store.taken()

    swept = transition(TaskWrite(8, 7, write.after, None))

    assert (swept.left, swept.entered, swept.happenings) == (None, None, ())
