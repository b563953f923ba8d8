"""What the recorder promises on every store: each change of a task is counted exactly once.

Tasks change in a store whose stream is kept; the recorder is given it in batches of any kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import recorder
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.times import micros_of
from headrace.domain.transitions import TaskWrite
from headrace.history.flows import last_day, last_hour
from headrace.history.recorder import Recorded, Recording
from headrace.history.tally import Activity
from headrace.runtime.wiring import using
from headrace.store.base import Store
from headrace.store.dynamo.stream import writes_of
from tests.contract.conftest import World, new_world
from tests.invocation import InvocationContext
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed, Unsure, stream_records

AT_ONCE = RetryStrategy(kind=Backoff.FIXED, base_seconds=0, jitter=0, max_retries=1)


@dataclass
class Recorder:
    """A service, the stream of its tasks, and the counters kept of it."""

    world: World
    stream: Streamed

    @property
    def recording(self) -> Recording:
        return self.world.use.recording

    def record(self, changes: Sequence[TaskWrite] | None = None, shard: str = SHARD) -> Recorded:
        """Record *changes*, by default what is new in the stream."""
        return self.recording.record(shard, self.stream.taken() if changes is None else changes)

    def counts(self, queue: str) -> tuple[int, ...]:
        return counts(self.world, queue)

    def events(self, queue: str) -> list[int]:
        """Return how often each event happened in the last hour."""
        return events(self.world, queue).numbers


def counts(world: World, queue: str) -> tuple[int, ...]:
    counters = world.use.counters
    return tuple(counters.counts(queue, counters.buffers()))


def events(world: World, queue: str) -> Activity:
    counters = world.use.counters
    now = micros_of(world.clock()) // 60_000_000
    total = Activity()
    for _, activity in counters.minutes(queue, counters.buffers(), now - 60, now + 1):
        total.merge(activity)
    return total


def flows(world: World) -> dict[tuple[str, str], tuple[int, int]]:
    """Return moves by source and target, of the last hour and the last day."""
    now = micros_of(world.clock())
    edges = world.use.counters.totals().flows().edges()
    return {
        (source, target): (last_hour(slots, now), last_day(slots, now))
        for target, source, slots in edges
        if last_day(slots, now)
    }


def new_recorder(store: Store, clock: ManualClock) -> Recorder:
    stream = Streamed(store, clock)
    world = new_world(stream.store, clock)
    world.use.sleep = lambda _: None
    return Recorder(world, stream)


@pytest.fixture
def it(store: Store, clock: ManualClock) -> Recorder:
    return new_recorder(store, clock)


def worked(world: World, queue: str) -> None:
    """Let five tasks come: one succeeds, one is tried again, one dies, one is worked on."""
    world.put(queue, *["{}"] * 5)
    world.clock.forward(1)
    tasks = world.take(queue, 4)
    world.clock.forward(2)
    world.say(tasks[0], "SUCCEEDED")
    world.say(tasks[1], "FAILED")
    world.say(tasks[2], "FAILED", retryable=False)


AFTER_WORK = ((2, 1, 1, 1, 0), [5, 4, 1, 2, 1, 0])
"""Tasks by state (ENQUEUED, INFLIGHT, SUCCEEDED, DEAD), events as in COUNTED."""


@pytest.mark.gate
def test_what_happens_is_counted(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)

    recorded = it.record()

    assert recorded == Recorded(counted=12, repeated=0)
    assert (it.counts(queue), it.events(queue)) == AFTER_WORK
    activity = events(it.world, queue)
    assert activity.wait.percentile(0.5) == pytest.approx(1.001, rel=0.025)
    assert activity.run.percentile(0.5) == pytest.approx(2, rel=0.025)
    assert it.counts("other") == (0, 0, 0, 0, 0)


def test_a_batch_that_comes_again_changes_nothing(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    changes = it.stream.taken()
    it.record(changes)

    again = it.record(changes)
    halves = [it.record(half) for half in (changes[:6], changes[6:])]

    assert again == Recorded(counted=0, repeated=12)
    assert [half.repeated for half in halves] == [6, 6]
    assert (it.counts(queue), it.events(queue)) == AFTER_WORK


POISON: list[Any] = [
    None,
    {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": float("inf")}},
    {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": 1, "NewImage": 5}},
]


@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_record_is_left_out_and_stops_nothing(it: Recorder, poison: Any) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    changes = stream_records(it.stream.taken())
    writes, unreadable = writes_of([*changes[:6], poison, *changes[7:]])

    recorded = it.record(writes)

    assert (recorded.counted, len([*unreadable, *recorded.unreadable])) == (11, 1)
    assert recorded.failed_at is None
    assert it.record(writes_of([poison]).writes).failed_at is None


def test_a_batch_that_could_not_be_written_must_come_again(
    store: Store, clock: ManualClock
) -> None:
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    changes = it.stream.taken()

    with unsure.failing("lost"):
        assert it.record(changes).failed_at == 1
    assert it.counts(queue) == (0, 0, 0, 0, 0)
    with unsure.failing("unanswered"):
        assert it.record(changes).failed_at == 1

    assert it.record(changes) == Recorded(counted=0, repeated=12)
    assert (it.counts(queue), it.events(queue)) == AFTER_WORK


CONTEXT: Any = InvocationContext("Recorder", 60)


def test_the_handler_names_the_first_record_that_must_come_again(
    store: Store, clock: ManualClock
) -> None:
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    it.world.put(it.world.queue(), *["{}"] * 3)
    event = {"shardId": SHARD, "Records": stream_records(it.stream.taken()[1:])}
    with using(it.world.use), unsure.failing("lost"):
        answer = recorder.handler(event, CONTEXT)
    assert answer["batchItemFailures"] == [{"itemIdentifier": "2"}]
