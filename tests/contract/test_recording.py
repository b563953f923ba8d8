"""What the recorder promises on every store: each change of a task is counted exactly once.

Tasks change in a store whose stream is kept; the recorder is given it in batches of any kind.
Long, because all of it stands on the one ground that is laid out here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.instants import micros_of
from headrace.domain.operate import BulkAction
from headrace.domain.queue import DeadLetterConfig
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import Place, State
from headrace.domain.write import TaskWrite
from headrace.history import counters as kept
from headrace.history.counters import (
    BUCKETS,
    BUFFERS,
    FLOWS_BYTES,
    KEPT,
    THROUGHPUT_BYTES,
    Counters,
    bucket_of,
    buffer_of,
)
from headrace.history.recent import last_day, last_hour
from headrace.history.recorder import Recorded, Recording
from headrace.history.tally import Activity
from headrace.store.base import CountPage, Store
from headrace.store.call_scope import metered
from headrace.store.stream import writes_of
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed, Unsure, a_task, stream_records

ITEM_BYTES = 400 * 1024  # DynamoDB's limit
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
    counters = world.use.recording.counters
    return tuple(counters.counts(queue, counters.buffers()))


def events(world: World, queue: str) -> Activity:
    counters = world.use.recording.counters
    now = micros_of(world.clock()) // 60_000_000
    total = Activity()
    for _, activity in counters.minutes(queue, counters.buffers(), now - 60, now + 1):
        total.merge(activity)
    return total


def flows(world: World) -> dict[tuple[str, str], tuple[int, int]]:
    """Return moves by source and target, of the last hour and the last day."""
    now = micros_of(world.clock())
    edges = world.use.recording.counters.totals().flows().edges()
    return {
        (source, target): (last_hour(slots, now), last_day(slots, now))
        for target, source, slots in edges
        if last_day(slots, now)
    }


def new_recorder(store: Store, clock: ManualClock) -> Recorder:
    stream = Streamed(store, clock)
    world = new_world(stream.store, clock)
    world.use.recording.counters.sleep = lambda _: None
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


def test_dead_tasks_are_counted_by_the_index_only_if_the_recorder_knows_of_too_many(
    it: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or once an hour, for what the recorder has missed."""
    queue = it.world.queue(dead_letter_queue_config=DeadLetterConfig(max_size=3))
    counted: list[Place] = []
    store = it.world.use.reaping.store
    count = store.count

    def noting(place: Place, **how: Any) -> CountPage:
        if place.state is State.DEAD:
            counted.append(place)
        return count(place, **how)

    monkeypatch.setattr(store, "count", noting)

    def die(number: int) -> None:
        for _ in range(number):
            it.world.put(queue)
            it.world.say(it.world.one(queue), "FAILED", retryable=False)

    die(3)
    it.record()
    for _ in range(58):
        it.world.use.reaping.run()
        it.world.clock.forward(60)
    assert 1 <= len(counted) <= 2 * len(it.world.use.queues.get(queue).places(State.DEAD))
    die(2)
    it.record()

    assert it.world.use.reaping.run().evicted == 2


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


def test_halves_that_overlap_what_was_counted_add_only_what_is_new(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    changes = it.stream.taken()

    first, second = it.record(changes[:5]), it.record(changes[3:])

    assert (first.counted, second.counted, second.repeated) == (5, 7, 2)
    assert (it.counts(queue), it.events(queue)) == AFTER_WORK


def test_shards_are_counted_apart_in_any_order(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    changes = it.stream.taken()
    # The same numbers mean other records in another shard.
    shards = [f"shardId-{number}" for number in range(3 * BUFFERS)]
    assert len({buffer_of(shard) for shard in shards}) > 1

    for shard in (*shards, *reversed(shards)):
        it.record(changes, shard)

    assert it.counts(queue) == tuple(len(shards) * number for number in AFTER_WORK[0])


def test_a_change_that_comes_twice_in_one_batch_counts_once(it: Recorder) -> None:
    queue = it.world.queue()
    it.world.put(queue)
    (change,) = it.stream.taken()

    it.record([change, change])

    assert it.counts(queue) == (1, 0, 0, 0, 0)


def test_a_recorder_that_was_overtaken_looks_again(it: Recorder) -> None:
    """Lambda may still run the first try of a batch when it starts the second."""
    queue = it.world.queue()
    counters = it.recording.counters
    other = Recording(Counters(counters.store, counters.now, lambda _: None))
    for first, second in ((it.recording, other), (other, it.recording)) * 3:
        it.world.put(queue)
        changes = it.stream.taken()

        assert first.record(SHARD, changes).counted == 1
        assert second.record(SHARD, changes).repeated == 1

    assert it.counts(queue) == (6, 0, 0, 0, 0)


def test_minutes_go_into_the_books_and_counts_stay(it: Recorder) -> None:
    queue, other = it.world.queue(retry_strategy=AT_ONCE), it.world.queue("other")
    for _ in range(3):
        worked(it.world, queue)
        it.record()
        it.world.put(other)
        it.record()
        it.world.clock.forward(75)

    assert sum(it.counts(queue)) == 15
    assert it.events(queue)[0] == 15
    assert (it.counts(other), it.events(other)) == ((3, 0, 0, 0, 0), [3, 0, 0, 0, 0, 0])


def test_counts_of_a_removed_task_go_whoever_removes_it(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    worked(it.world, queue)
    it.record()

    it.world.use.queues.purge(queue, (State.ENQUEUED,))
    forgotten = it.world.use.inspect.list(queue).tasks
    done = next(task for task in forgotten if task.state is State.SUCCEEDED)
    it.stream.note(done, None, forgotten=True)
    it.record()

    assert it.counts(queue) == (0, 1, 0, 1, 0)
    assert it.events(queue) == AFTER_WORK[1]


def test_what_vanishes_on_success_is_counted_as_succeeded(it: Recorder) -> None:
    queue = it.world.queue(history_retention_in_seconds=0)
    it.world.put(queue)
    it.world.say(it.world.one(queue), "SUCCEEDED")

    it.record()

    assert (it.counts(queue), it.events(queue)) == ((0, 0, 0, 0, 0), [1, 1, 1, 0, 0, 0])


def test_tasks_deleted_with_their_queue_are_no_events(it: Recorder) -> None:
    queue = it.world.queue(history_retention_in_seconds=0)
    it.world.put(queue)
    it.world.one(queue)
    it.world.use.queues.delete(queue)

    it.record()

    assert (it.counts(queue), it.events(queue)) == ((0, 0, 0, 0, 0), [1, 1, 0, 0, 0, 0])


POISON: list[Any] = [
    None,
    {},
    {"dynamodb": None},
    {"dynamodb": {"SequenceNumber": "x"}},
    {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": "soon"}},
    {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": float("inf")}},
    {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": 1, "NewImage": 5}},
    {
        "dynamodb": {
            "SequenceNumber": "7",
            "ApproximateCreationDateTime": 1,
            "NewImage": {"queue#state": {"S": "no place"}},
        }
    },
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


def test_a_batch_is_one_write_whatever_its_size_and_however_many_queues(
    store: Store, clock: ManualClock
) -> None:
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    queues = [f"queue-{number}" for number in range(30)]
    changes = [
        TaskWrite.of(number, None, a_task(f"t{number}", queues[number % 30], clock), at=clock())
        for number in range(1, 1001)
    ]

    it.record(changes)

    assert [record.kind for record in unsure.written] == [kept.BUFFER]
    assert sum(it.counts(queue)[0] for queue in queues) == 1000


def test_a_minutes_end_adds_at_most_two_writes_for_each_bucket(
    store: Store, clock: ManualClock
) -> None:
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    queues = [f"queue-{number}" for number in range(5)]

    def one(number: int) -> None:
        task = a_task(f"t{number}", queues[number % 5], clock)
        it.record([TaskWrite.of(number, None, task, at=clock())])

    for number in range(1, 6):
        one(number)
    clock.forward(61)
    one(6)
    assert len(unsure.written) == 6  # the write that finds the minute over only says so
    one(7)

    buckets = len({bucket_of(queue) for queue in queues})
    assert buckets > 1
    kinds = [record.kind.rstrip("0123456789") for record in unsure.written[6:]]
    assert (kinds[-1], len(kinds)) == (kept.BUFFER, 1 + 2 * buckets)
    assert set(kinds[:-1]) == {kept.TOTALS, kept.SERIES}
    assert sum(sum(it.counts(queue)) for queue in queues) == 7
    one(8)
    assert unsure.written[-1].kind == unsure.written[-2].kind == kept.BUFFER


def test_a_batch_of_one_queue_costs_a_few_units(it: Recorder) -> None:
    queue = it.world.queue(retry_strategy=AT_ONCE)
    for _ in range(20):
        worked(it.world, queue)
    changes = it.stream.taken()
    with metered() as asks:
        it.record([])  # twice a minute it asks what queues have indexed

    with metered() as meter:
        it.record(changes)

    assert (asks.write, asks.read <= 1) == (0, True)
    assert meter.write <= 2
    assert meter.read <= 1


LONGEST = "q" * 120


@pytest.mark.in_process
@pytest.mark.slow
def test_no_record_outgrows_the_table_however_long_the_names(
    store: Store, clock: ManualClock
) -> None:
    """Every change moves a task between two queues that nobody else uses."""
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    sequence = 0
    for _ in range(3):
        changes = []
        for _ in range(1000):
            sequence += 1
            before = a_task("t1", f"{LONGEST}-{sequence:07}", clock, State.INFLIGHT)
            after = a_task("t1", f"{LONGEST[1:]}_{sequence:07}", clock, last_move="move")
            changes.append(TaskWrite.of(sequence, before, after, at=clock()))
        assert it.record(changes).counted == 1000

    sizes = [len(json.dumps(record.body)) for record in unsure.written]
    assert max(sizes) + 1024 < ITEM_BYTES
    buffers = it.recording.counters.buffers()
    for number in (1, 1500, 3000):
        counters = it.recording.counters
        assert counters.counts(f"{LONGEST}-{number:07}", buffers) == [0, -1, 0, 0, 0]
        assert counters.counts(f"{LONGEST[1:]}_{number:07}", buffers) == [1, 0, 0, 0, 0]


def test_a_bucket_of_totals_has_room_for_nearly_two_thousand_queues_of_the_longest_names() -> None:
    totals = {
        f"{LONGEST}-{number:07}": [9_999_999, 9_999, 99_999_999, 99_999] for number in range(1800)
    }
    body = {"posted": dict.fromkeys(map(str, range(BUFFERS)), 10**9), "counts": totals}

    assert len(json.dumps(body)) + FLOWS_BYTES + THROUGHPUT_BYTES + 1024 < ITEM_BYTES
    assert BUCKETS * 1800 > 115_000


def test_moves_are_counted_by_where_they_came_from(it: Recorder) -> None:
    first, second, third = (it.world.queue(name) for name in ("first", "second", "third"))
    it.world.put(first, *["{}"] * 3)
    for task in it.world.take(first, 2):
        it.world.say(task, "MOVED", to_queue=second)
    it.record()
    it.world.clock.forward(3600)
    it.world.use.bulk.by_filter(first, BulkAction.MOVE, TaskFilter(), to_queue=third)
    it.world.say(it.world.take(second)[0], "MOVED", to_queue=first)
    changes = it.stream.taken()
    it.record(changes)
    it.record(changes)

    assert flows(it.world) == {
        (first, second): (0, 2),
        (first, third): (1, 1),
        (second, first): (1, 1),
    }


@pytest.mark.in_process
def test_moves_stay_for_a_day_and_cost_no_write_more(store: Store, clock: ManualClock) -> None:
    unsure = Unsure(store)
    it = new_recorder(unsure.store, clock)
    for number in range(1, 101):  # one every quarter of an hour, for 25 hours
        before = a_task("t1", "first", clock, State.INFLIGHT)
        after = a_task("t1", "second", clock, last_move="move")
        it.record([TaskWrite.of(number, before, after, at=clock())])
        clock.forward(900)

    assert flows(it.world) == {("first", "second"): (3, 92)}
    writes = len(unsure.written)
    kinds = [record.kind.rstrip("0123456789") for record in unsure.written]
    buckets = len({bucket_of("first"), bucket_of("second")})
    assert kinds.count(kept.BUFFER) == 100
    assert writes <= 100 + 100 * 2 * buckets
    (totals,) = [
        record
        for record in it.world.store.records(kept.TOTALS, limit=BUCKETS)[0]
        if record.body["moves"]
    ]
    assert len(totals.body["moves"]["second"]["first"]) < 400


@pytest.mark.in_process
@pytest.mark.slow
def test_of_very_many_moves_the_busiest_are_kept(store: Store, clock: ManualClock) -> None:
    it = new_recorder(store, clock)
    sources = [*range(600), *range(590, 600)]  # the last ten twice
    after = a_task("t1", "target", clock, last_move="move")
    moves = [
        TaskWrite.of(
            sequence,
            a_task("t1", f"{LONGEST}-{number:07}", clock, State.INFLIGHT),
            after,
            at=clock(),
        )
        for sequence, number in enumerate(sources, 1)
    ]
    for start in range(0, len(moves), 10):
        it.record(moves[start : start + 10])
    clock.forward(61)
    for sequence in (1001, 1002):  # the first sees that the minute is over, the second posts it
        it.record([TaskWrite.of(sequence, None, a_task("t2", "target", clock), at=clock())])

    found = flows(it.world)
    assert 150 < len(found) < 250
    assert sum(count == (2, 2) for count in found.values()) == 10
    records, _ = it.world.store.records(kept.TOTALS, limit=BUCKETS)
    assert max(len(json.dumps(record.body)) for record in records) < FLOWS_BYTES + 4096


def test_the_minutes_are_forgotten_after_a_week_and_shards_after_a_day(it: Recorder) -> None:
    queue = it.world.queue()
    names = (f"shardId-{number}" for number in range(100))
    first, second, *_ = (name for name in names if buffer_of(name) == 0)
    for shard in (first, second):
        it.world.put(queue)
        it.record(shard=shard)
        it.world.clock.forward(27 * 3600)
    it.world.put(queue)
    it.record(shard=second)

    (block, *_), _ = it.world.store.records(f"{kept.SERIES}{bucket_of(queue)}", limit=1)
    assert block.expires_at is not None
    age = block.expires_at - it.world.clock()
    assert timedelta() < KEPT - age <= timedelta(hours=55)
    assert len(it.recording.counters.buffer(0).shards) == 1
    assert (it.recording.position(first), it.recording.position(second)) == (-1, 3)


def test_the_position_of_a_shard_is_how_far_it_is_counted(it: Recorder) -> None:
    queue = it.world.queue()
    assert it.recording.position(SHARD) == -1
    it.world.put(queue, *["{}"] * 4)
    it.record()

    assert it.recording.position(SHARD) == 4
    assert it.recording.position("another") == -1
