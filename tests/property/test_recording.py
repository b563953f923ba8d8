"""Whatever happens to tasks, and however the stream delivers it, the counters are right."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.domain.filters import TaskFilter, standing_fault_of
from headrace.domain.instants import micros_of
from headrace.domain.operate import BulkAction
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import SHOWN_STATES, DeadReason, Place, State, Task
from headrace.domain.write import TaskWrite
from headrace.history.counters import BUFFER_BYTES, FLOWS_BYTES, Counters
from headrace.history.recorder import Recording
from headrace.history.tally import COUNTED, STATES, Activity, Tally, counts_of
from headrace.history.transitions import transition
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Store
from headrace.store.memory import MemoryStore
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.stores import STORES
from tests.property.walks import IN_SO_MANY
from tests.streamed import SHARD, Streamed, Unsure

SHARES = [
    ("memory", 10),
    pytest.param("memory", IN_SO_MANY, marks=pytest.mark.slow),
    pytest.param("sqlite", IN_SO_MANY, marks=pytest.mark.slow),
]
"""Of the examples one in so many."""
COMMON = settings(
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
QUEUES = ("plain", "bare", "wide", "mail")
FATES = st.lists(st.sampled_from(["lost", "unanswered", None, None, None]), max_size=30)


def no_wait(_: float) -> None:
    """Do not wait."""


def delivered(changes: Sequence[TaskWrite], chance: random.Random) -> list[list[TaskWrite]]:
    """Cut *changes* into batches, and let some come again: whole, in halves, long after."""
    batches: list[list[TaskWrite]] = []
    start = 0
    while start < len(changes):
        end = start + chance.choice((1, 2, 5, 20))
        batches.append(list(changes[start:end]))
        if chance.random() < 0.3:
            middle = (start + end) // 2
            batches += [list(changes[start:middle]), list(changes[middle:end])]
        if chance.random() < 0.2:
            batches.append(list(changes[chance.randrange(start + 1) : end]))
        start = end
    return batches


OPERATIONS = (
    "enqueue",
    "take",
    "say",
    "reap",
    "purge",
    "delete",
    "restart",
    "move",
    "run",
    "cancel",
)
calls = st.tuples(
    st.sampled_from((*OPERATIONS, "enqueue", "take", "say", "say")),
    st.sampled_from(QUEUES),
    st.integers(0, 1000),
    st.sampled_from((0, 0.5, 4, 70)),
)
STATUSES = ("SUCCEEDED", "SUCCEEDED", "FAILED", "RELEASED", "MOVED", "INFLIGHT")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"keepalive_timeout_in_seconds": 10},
    "bare": {
        "history_retention_in_seconds": 0,
        "dead_letter_queue_config": DeadLetterConfig(enable=False),
        "expires_in_seconds": 60,
        "keepalive_timeout_in_seconds": 5,
    },
    "wide": {"shards": 3, "expires_in_seconds": 90},
    "mail": {
        "retry_strategy": RetryStrategy(kind=Backoff.FIXED, base_seconds=0, max_retries=1),
    },
}


class RecordedService:
    """Tasks in four queues, to which anything may happen."""

    def __init__(self, store: Store | None = None, clock: ManualClock | None = None) -> None:
        clock = clock or ManualClock()
        self.stream = Streamed(store or MemoryStore(), clock)
        self.world = new_world(self.stream.store, clock)
        self.held: list[Task] = []
        for name, chosen in SETTINGS.items():
            self.world.queue(name, **chosen)

    def call(self, operation: str, queue: str, number: int, seconds: float) -> None:
        world = self.world
        world.clock.forward(seconds)
        if operation == "enqueue":
            world.put(queue, *["{}"] * (1 + number % 3), delay_in_seconds=number % 2 * seconds)
        elif operation == "take":
            self.held += world.take(queue, 2)
        elif operation == "say" and self.held:
            task = self.held.pop(number % len(self.held))
            status = STATUSES[number % len(STATUSES)]
            target = {"to_queue": QUEUES[number % 3]} if status == "MOVED" else {}
            world.say(task, status, **target)
        elif operation == "reap":
            world.use.reaping.run()
        elif operation == "purge":
            world.use.queues.purge(queue, (STATES[number % 4],))
        elif operation in ("delete", "restart", "move", "run", "cancel"):
            others = [name for name in QUEUES if name != queue]
            to_queue = others[number % 3] if operation == "move" else None
            world.use.bulk.by_filter(
                queue, BulkAction(operation), TaskFilter(), to_queue=to_queue, limit=2
            )


@pytest.mark.parametrize(("store", "share"), SHARES)
def test_after_any_history_the_counts_are_the_truth(store: str, share: int) -> None:
    @settings(COMMON, max_examples=100 // share)
    @given(st.lists(calls, min_size=20, max_size=80), st.randoms(use_true_random=False))
    def run(history: list[tuple[str, str, int, float]], chance: random.Random) -> None:
        the_counts_are_the_truth(store, history, chance)

    run()


def the_counts_are_the_truth(
    store: str, history: list[tuple[str, str, int, float]], chance: random.Random
) -> None:
    life = RecordedService(STORES[store]())
    for call in history:
        life.call(*call)
    changes = life.stream.taken()

    recording = life.world.use.recording
    for batch in delivered(changes, chance):
        assert not recording.record(SHARD, batch).unreadable
        life.world.clock.forward(7)

    tasks = life.stream.store.read({change_id(change) for change in changes})
    places = Counter((task.queue, task.state) for task in tasks.values())
    counters = recording.counters
    cancelled = Counter(task.queue for task in tasks.values() if task.cancelled)
    for queue in QUEUES:
        truth = [*(places[queue, state] for state in STATES), cancelled[queue]]
        assert counters.counts(queue, counters.buffers()) == truth
        failed = (standing_fault_of(task) for task in tasks.values() if task.queue == queue)
        assert standing(counters, queue) == Counter(name for name in failed if name)


def standing(counters: Counters, queue: str) -> dict[str, int]:
    """Return how many tasks of *queue* have each fault."""
    kinds = counters.faults(queue, counters.buffers()).kinds
    return {name: kind.dead + kind.retried for name, kind in kinds.items() if kind.stands}


def change_id(change: TaskWrite) -> str:
    side = change.after or change.before
    assert side is not None
    return side.id


@st.composite
def histories(draw: st.DrawFn) -> list[TaskWrite]:
    """Return a stream in which tasks wander between queues and states, minutes apart."""
    clock = ManualClock()
    changes: list[TaskWrite] = []
    tasks: dict[str, Task] = {}
    steps = st.tuples(
        st.integers(0, 5), st.sampled_from(QUEUES), st.sampled_from(SHOWN_STATES), st.floats(0, 45)
    )
    for number, queue, state, seconds in draw(st.lists(steps, max_size=40)):
        clock.forward(seconds)
        task_id = f"t{number}"
        before = tasks.pop(task_id, None)
        after = None if before is not None and seconds < 5 else at(task_id, queue, state, clock)
        if after is not None:
            tasks[task_id] = after
        changes.append(TaskWrite.of(len(changes) + 1, before, after, at=clock()))
    return changes


MOVES = {
    State.ENQUEUED: "move",
    State.INFLIGHT: "dequeue",
    State.SUCCEEDED: "succeed",
    State.DEAD: "expire",
}


def at(task_id: str, queue: str, state: State, clock: ManualClock) -> Task:
    now = clock()
    cancelled = state is State.DEAD and queue in QUEUES[:2]
    return Task(
        id=task_id,
        place=Place(queue, state, 0),
        scheduled_at=now,
        due_at=now,
        created_at=now,
        enqueued_at=now,
        started_at=now,
        finished_at=now,
        lease_expires_at=now,
        attempts=len(task_id) + queue.count("a"),
        last_move="cancel" if cancelled else MOVES[state],
        dead_reason=DeadReason.CANCELLED if cancelled else None,
    )


def truth_of(changes: Sequence[TaskWrite]) -> Tally:
    tally = Tally()
    for change in changes:
        tally.add(transition(change))
    return tally


@pytest.mark.parametrize(("store", "share"), SHARES)
def test_crashes_lost_answers_and_late_twins_lose_and_double_nothing(
    store: str, share: int
) -> None:
    @settings(COMMON, max_examples=300 // share)
    @given(histories(), st.randoms(use_true_random=False), FATES)
    def run(changes: list[TaskWrite], chance: random.Random, fates: list[str | None]) -> None:
        nothing_is_lost_or_doubled(store, changes, chance, fates)

    run()


def nothing_is_lost_or_doubled(
    store: str, changes: list[TaskWrite], chance: random.Random, fates: list[str | None]
) -> None:
    unsure = Unsure(STORES[store]())
    clock = ManualClock()
    use = build(Settings(admin_key="test"), unsure.store, now=clock)

    # Two functions that hold on to what they wrote last, and one that starts cold each time.
    recorders = [new_recording(use), new_recording(use)]
    with unsure.failing(*fates):
        for batch in delivered(changes, chance):
            clock.forward(chance.choice((0, 1, 70)))
            while True:
                recorder = chance.choice([*recorders, new_recording(use)])
                if recorder.record(SHARD, batch).failed_at is None:
                    break
    assert_books_hold(truth_of(changes), use, clock)


def new_recording(use: UseCases) -> Recording:
    return Recording(Counters(use.recording.counters.store, use.now, no_wait))


def assert_books_hold(truth: Tally, use: UseCases, clock: ManualClock) -> None:
    counters = use.recording.counters
    now = micros_of(clock())
    kept, room = truth.flows.kept(now, FLOWS_BYTES), len(str(truth.flows.body()))
    assert room < FLOWS_BYTES
    assert counters.totals().flows().kept(now, FLOWS_BYTES) == kept
    buffers = counters.buffers()
    assert all(len(str(buffer.body)) < 3 * BUFFER_BYTES for buffer in buffers)
    last = micros_of(clock()) // 60_000_000 + 100
    for queue in QUEUES:
        failed = truth.faults.by_queue.get(queue, {})
        stands = {name: kind.dead + kind.retried for name, kind in failed.items() if kind.stands}
        assert standing(counters, queue) == stands
        counts = truth.counts.get(queue, counts_of())
        assert counters.counts(queue, buffers) == counts
        minutes: dict[int, Activity] = {}
        for minute, activity in counters.minutes(queue, buffers, 0, last):
            minutes.setdefault(minute, Activity()).merge(activity)
        assert minutes == truth.minutes.get(queue, {})
        assert all(len(activity.numbers) == len(COUNTED) for activity in minutes.values())
