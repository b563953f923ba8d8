"""Streams that are killed and started again after their lease has ended: no task is lost.

The tests walk through what Spark asks of a source, without Spark, on a clock that they set.
"""

import json
import random
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.client.threads import PeriodicThread
from headrace.domain.change import Entry
from headrace.domain.errors import LeaseLost
from headrace.domain.ids import shown_lease
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.ops.shared.leases import GroupStatuses
from headrace.spark.sources import connect
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.leasing import leased
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.rows import SettlingRow
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import settle
from headrace.spark.sources.stream import QueueStream, StaleCheckpoint
from headrace.store.sqlite import SqliteStore
from tests.pipeline.harness import AT_ONCE, PipelineHarness

Row = dict[str, Any]
LEASE = 60.0
OUTAGE = timedelta(seconds=LEASE + 1)
FIRST: Row = {"epoch": 0}


@dataclass
class Clock:
    """The clock of the store and of everything that works on it."""

    now: datetime = datetime(2031, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def pass_(self, time: timedelta) -> None:
        self.now += time


@dataclass
class Query:
    """A streaming query over one checkpoint: one process of the source after the other.

    The source waits by the clock of the test, too: by the machine's, it would look for tasks only
    when enough of the machine's time has passed.
    """

    harness: PipelineHarness
    clock: Clock
    options: dict[str, str] = field(default_factory=dict)
    stream: QueueStream | None = None

    def start(self) -> QueueStream:
        given = {"queue": "in", "lease_seconds": f"{LEASE:g}", **self.options}
        reading = QueueReading.of({**given, **self.harness.connection.options()}, stream=True)
        self.stream = QueueStream(reading, self.clock.seconds)
        return self.stream

    def kill(self) -> None:
        """End the process without a trace: its threads never run here."""
        self.stream = None


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the heartbeats of sources from running: tests extend a lease themselves."""
    monkeypatch.setattr(PeriodicThread, "start", lambda _: None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(connect, "utc_now", made)
    return made


@pytest.fixture
def filled(clock: Clock, harness: PipelineHarness) -> PipelineHarness:
    """Give the queue `in`, with thirty tasks, and `out`."""
    harness.queue("in", retry=AT_ONCE)
    harness.queue("out")
    harness.fill("in", 30)
    return harness


@pytest.fixture
def query(filled: PipelineHarness, clock: Clock) -> Query:
    return Query(filled, clock, {"on_commit": "succeed"})


def read(stream: QueueStream, start: Row, end: Row) -> list[Row]:
    shares = stream.partitions(start, json.loads(json.dumps(end)))
    return [row for share in shares for batch in stream.read(share) for row in batch.to_pylist()]


def reap(harness: PipelineHarness) -> None:
    """Take back every lease that has lapsed, as the reaper does each minute."""
    uses, tables = harness.uses, store(harness.connection)
    held = tables.read([task.id for task in harness.tasks("in") if task.state is State.INFLIGHT])
    entries = [Entry.of(task) for task in held.values()]
    statuses = GroupStatuses(tables, uses.now)
    list(uses.reaping.take_back(uses.queues.cached("in"), entries, statuses))


def succeed(harness: PipelineHarness, rows: list[Row]) -> dict[str, int]:
    settling = [SettlingRow(row["id"], row["lease"], "succeed") for row in rows]
    return dict(settle(SettleTarget(harness.connection, "in"), settling).counts)


def ids(rows: list[Row]) -> set[str]:
    return {row["id"] for row in rows}


@pytest.mark.parametrize("reaped", [False, True])
@pytest.mark.gate
def test_a_lapsed_row_is_left_out_and_its_task_comes_again_in_a_later_batch(
    filled: PipelineHarness, query: Query, clock: Clock, *, reaped: bool
) -> None:
    stream = query.start()
    end = stream.latestOffset(FIRST)
    first = read(stream, FIRST, end)  # the batch fails after this
    query.kill()
    clock.pass_(OUTAGE)
    if reaped:
        reap(filled)

    stream = query.start()
    again = read(stream, FIRST, end)
    later = stream.latestOffset(end)
    states = filled.states("in")
    rest = read(stream, end, later)

    assert again == []
    assert "SUCCEEDED" not in states
    assert ids(rest) == ids(first)
    stream.latestOffset(later)
    assert filled.states("in") == {"SUCCEEDED": 30}


@pytest.mark.gate
def test_a_lapsed_batch_has_its_settled_rows_and_no_report_settles_the_others(
    filled: PipelineHarness, query: Query, clock: Clock
) -> None:
    query.options = {}
    stream = query.start()
    end = stream.latestOffset(FIRST)
    first = read(stream, FIRST, end)
    succeed(filled, first[:10])
    query.kill()
    clock.pass_(OUTAGE)

    again = read(query.start(), FIRST, end)
    late = succeed(filled, first[10:])

    assert again == first[:10]
    assert late == {"lost": 20}
    assert filled.states("in") == {"SUCCEEDED": 10, "ENQUEUED": 20}


def test_a_frame_leaves_out_lapsed_rows_and_no_report_settles_their_tasks(
    filled: PipelineHarness, clock: Clock
) -> None:
    given = {"queue": "in", "lease_seconds": f"{LEASE:g}", **filled.connection.options()}
    shares = QueueReading.of(given).open()

    def rows() -> list[Row]:
        return [
            row
            for share in shares
            for batch in leased(share.request, share.shard)
            for row in batch.to_pylist()
        ]

    first = rows()
    clock.pass_(OUTAGE)
    again = rows()

    assert again == []
    assert succeed(filled, first) == {"lost": 30}
    assert filled.states("in") == {"ENQUEUED": 30}


@pytest.mark.gate
def test_a_lease_that_ends_within_an_attempt_changes_no_row_of_that_attempt(
    filled: PipelineHarness, query: Query, clock: Clock
) -> None:
    """A sink that reads a batch twice would else leave out what another has written."""
    stream = query.start()
    end = stream.latestOffset(FIRST)
    first = read(stream, FIRST, end)
    clock.pass_(OUTAGE)
    reap(filled)

    again = read(stream, FIRST, end)

    assert again == first
    assert stream.latestOffset(end) == end  # all of them are settled now, and nothing is due
    assert filled.states("in") == {"SUCCEEDED": 30}


@pytest.mark.parametrize("backoff", [0.0, 30.0])
@pytest.mark.parametrize(
    ("option", "queue", "state"), [("succeed", "in", "SUCCEEDED"), ("move:out", "out", "ENQUEUED")]
)
@pytest.mark.gate
def test_a_committed_batch_whose_tasks_were_taken_back_meanwhile_is_settled_first(
    clock: Clock,
    harness: PipelineHarness,
    query: Query,
    option: str,
    queue: str,
    state: str,
    backoff: float,
) -> None:
    retry = RetryStrategy(Backoff.FIXED, 3, backoff)
    harness.uses.queues.replace("in", QueueSettings(shards=2, retry_strategy=retry))
    query.options["on_commit"] = option
    stream = query.start()
    end = stream.latestOffset(FIRST)
    written = read(stream, FIRST, end)  # and Spark commits it
    query.kill()
    clock.pass_(OUTAGE)
    reap(harness)
    harness.uses.queues.pause("in")
    clock.pass_(timedelta(seconds=30))  # processes keep settings for a moment
    waiting = harness.states("in")

    again = query.start().latestOffset(end)

    assert (len(written), waiting, again) == (30, {"ENQUEUED": 30}, end)
    assert harness.states(queue) == {state: 30}


def test_what_happened_to_a_task_after_its_lease_was_taken_back_is_not_undone_by_a_commit(
    clock: Clock, filled: PipelineHarness, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query.start()
    end = stream.latestOffset(FIRST)
    read(stream, FIRST, end)
    query.kill()
    clock.pass_(OUTAGE)
    reap(filled)
    other = filled.uses.deliveries.dequeue("in", batch_size=7, worker="other").tasks
    held = {task.id for task in other}

    query.start().latestOffset(end)

    left = {task.id for task in filled.tasks("in") if task.state is State.INFLIGHT}
    assert left == held
    assert filled.states("in") == {"SUCCEEDED": 23, "INFLIGHT": 7}
    assert "7 tasks of queue in had lost their lease" in caplog.text


@pytest.mark.gate
def test_a_batch_that_is_forgotten_fails_its_stream_and_says_what_to_do(
    filled: PipelineHarness, query: Query
) -> None:
    stream = query.start()
    end = stream.latestOffset(FIRST)
    read(stream, FIRST, end)
    later = stream.latestOffset(end)
    query.kill()

    with pytest.raises(StaleCheckpoint, match="Start the query with a new checkpoint") as failed:
        query.start().partitions(FIRST, end)

    assert later == end
    assert "\n" not in str(failed.value)
    assert "queue in" in str(failed.value)


class Walk:
    """Spark, its source, a sink that replaces or skips batches, the reaper and another worker.

    A walk of random steps, the same for each *seed*. The driver may be killed between any two
    steps, for any time.
    """

    def __init__(self, seed: int, harness: PipelineHarness, clock: Clock) -> None:
        self.random = random.Random(seed)
        self.harness, self.clock = harness, clock
        self.story: list[str] = []
        self.settles = self.random.random() < 0.5  # the query does so within its batch
        self.skips = not self.settles and self.random.random() < 0.5
        """Whether the sink skips a batch that it has already; else it replaces that batch."""
        given = {"max_rows": "4"} | ({} if self.settles else {"on_commit": "succeed"})
        self.query = Query(harness, clock, given)
        self.log: list[Row] = [FIRST]
        self.committed = 0
        self.shown: list[Row] | None = None
        self.written = False
        self.sink: dict[int, set[str]] = {}
        self.by_other: set[str] = set()
        harness.queue("in", retry=RetryStrategy(Backoff.FIXED, 100, 0))
        self.tasks = harness.fill("in", 6)

    def run(self, steps: int) -> None:
        """Take random steps, then let the query work until every task is done and in the sink."""
        try:
            for _ in range(steps):
                self.take(self.random.choice(self.possible()))
            self.query.kill()
            while self.pending or self.query.stream is None or self.unfinished():
                assert len(self.story) < steps + 20 * len(self.tasks), "the stream stands still"
                self.take(self.go_on)
                if not self.pending:
                    self.clock.pass_(3 * OUTAGE)
            assert self.harness.states("in") == {"SUCCEEDED": len(self.tasks)}
        except AssertionError as failed:
            failed.add_note(f"settles={self.settles} skips={self.skips}\n" + "\n".join(self.story))
            raise

    def unfinished(self) -> set[str]:
        return {
            one.id for one in self.harness.read(*self.tasks) if one.state is not State.SUCCEEDED
        }

    def take(self, step: Callable[[], object]) -> None:
        said = step()
        self.story.append(f"{step.__name__} {'' if said is None else said}")
        self.check()

    def check(self) -> None:
        done = set(self.tasks) - self.unfinished()
        every = [id_ for batch in self.sink.values() for id_ in batch]
        assert done - self.by_other <= set(every), "a task is settled and not in the sink"
        once = [id_ for id_ in every if id_ not in self.by_other]
        assert self.settles or len(once) == len(set(once)), "a task is in the sink twice"

    def possible(self) -> list[Callable[[], object]]:
        """Return the steps that can be taken now, likely ones several times."""
        steps: list[Callable[[], object]] = []
        steps += [self.go_on] * 8
        steps += [self.stay_away, self.stay_away, self.pass_time, self.reap]
        steps += [self.other_worker, self.enqueue]
        if self.query.stream is not None:
            steps += [self.heartbeat, self.stop]
            if self.pending and not self.skipped:
                steps.append(self.read_batch)
            if not self.pending and len(self.log) > 1:
                steps.append(self.hear_of_commit)
        if self.settles and self.shown is not None:
            steps.append(self.settle_some)
        return steps

    # -- what Spark does next, and again -----------------------------------------------------------

    @property
    def pending(self) -> bool:
        return self.committed < len(self.log) - 1

    @property
    def skipped(self) -> bool:
        return self.skips and len(self.log) - 1 in self.sink

    def go_on(self) -> str:
        if self.query.stream is None:
            stream = self.query.start()
            if len(self.log) > 1:
                assert not stream.partitions(self.log[-1], self.log[-1])
            return "start"
        if not self.pending:
            last = self.log[-1]
            found = self.query.stream.latestOffset(last)
            if found != last:
                self.log.append(json.loads(json.dumps(found)))
            return f"plan: {self.log[-1]}"
        if self.skipped and not self.written:
            planned = self.random.random() < 0.5
            if planned:
                self.query.stream.partitions(self.log[-2], self.log[-1])
            self.shown, self.written = [], True  # such a sink does not read the batch
            return f"skip: planned={planned}"
        if self.shown is None:
            return self.read_batch()
        if not self.written:
            return self.write()
        self.committed += 1
        self.shown, self.written = None, False
        return "commit"

    def read_batch(self) -> str:
        assert self.query.stream is not None
        rows = read(self.query.stream, self.log[-2], self.log[-1])
        assert self.shown in (None, rows), "two reads of one attempt differ"
        self.shown = rows
        return f"read: {[row['id'] for row in rows]}"

    def write(self) -> str:
        """Replace the batch in the sink, and settle its rows."""
        assert self.shown is not None
        self.sink[len(self.log) - 1] = ids(self.shown)
        self.written = True
        return f"write: {succeed(self.harness, self.shown) if self.settles else 'settles none'}"

    def settle_some(self) -> dict[str, int]:
        """Settle a few of the rows that the sink has already."""
        written = self.sink.get(len(self.log) - 1, set())
        return succeed(self.harness, [row for row in self.shown or () if row["id"] in written][:2])

    def hear_of_commit(self) -> None:
        assert self.query.stream is not None
        self.query.stream.commit(self.log[-1])

    # -- what befalls the query --------------------------------------------------------------------

    def stop(self) -> None:
        assert self.query.stream is not None
        self.query.stream.stop()
        self.stay_away()

    def stay_away(self) -> str:
        self.query.kill()
        self.shown, self.written = None, False
        return self.pass_time()

    def pass_time(self) -> str:
        leases = self.random.choice([0.4, 1.1, 3.0])
        self.clock.pass_(timedelta(seconds=LEASE * leases))
        return f"{leases} leases"

    def heartbeat(self) -> None:
        group_id = self.log[-1].get("group")
        if self.pending and group_id is not None:
            with suppress(LeaseLost):
                self.harness.uses.leases.extend(group_id)

    def reap(self) -> None:
        reap(self.harness)

    def other_worker(self) -> str:
        """Take a task, and report on it."""
        status = self.random.choice([ReportStatus.SUCCEEDED, ReportStatus.RELEASED])
        for task in self.harness.uses.deliveries.dequeue("in", worker="other").tasks:
            self.harness.uses.reports.report("in", [TaskReport(task.id, shown_lease(task), status)])
            self.by_other.add(task.id)
        return status

    def enqueue(self) -> None:
        self.tasks += self.harness.fill("in", 1)


@pytest.fixture
def walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[int], int], None]:
    """Give a function that takes one walk for each seed; the seed is in the name of the failure."""

    def walk_all(seeds: Iterable[int], steps: int) -> None:
        for seed in seeds:
            clock, chance = Clock(), random.Random(seed)
            monkeypatch.setattr(connect, "utc_now", clock)
            monkeypatch.setattr(secrets, "token_bytes", chance.randbytes)
            monkeypatch.setattr(secrets, "randbits", chance.getrandbits)
            path = tmp_path / f"{seed}.db"
            SqliteStore(str(path)).close()
            try:
                harness = PipelineHarness(StoreConnection.of({"url": path.as_uri()}))
                Walk(seed, harness, clock).run(steps)
            except AssertionError as failed:
                failed.add_note(f"seed {seed}, {steps} steps")
                raise
            finally:
                opened.cache_clear()
                store.cache_clear()

    return walk_all


Walks = Callable[[Iterable[int], int], None]


@pytest.mark.gate
def test_whatever_befalls_a_stream_what_it_settles_is_in_its_sink(walks: Walks) -> None:
    walks(range(20), 25)


@pytest.mark.slow
def test_whatever_befalls_a_stream_what_it_settles_is_in_its_sink_on_long_walks(
    walks: Walks,
) -> None:
    walks(range(20, 140), 40)
