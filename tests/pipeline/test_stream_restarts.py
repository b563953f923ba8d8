"""Streams that are killed and started again after their lease has ended: no task is lost.

The tests walk through what Spark asks of a source, without Spark, on a clock that they set.
"""

import json
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.domain.ids import shown_lease
from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.spark.sources import connect, ending, leasing
from headrace.spark.sources.claims import GroupClaims, lapsed_in
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.leasing import Intake, framed
from headrace.spark.sources.outlet import Outlet
from headrace.spark.sources.reading import QueueReading
from headrace.spark.sources.rows import SettlingRow
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

    def pass_(self, time: timedelta) -> None:
        self.now += time


@dataclass
class Query:
    """A streaming query over one checkpoint: one process of the source after the other."""

    harness: PipelineHarness
    options: dict[str, str] = field(default_factory=dict)
    stream: QueueStream | None = None

    def start(self) -> QueueStream:
        given = {"queue": "in", "lease_seconds": f"{LEASE:g}", **self.options}
        reading = QueueReading.of({**given, **self.harness.connection.options()}, stream=True)
        self.stream = QueueStream(reading)
        return self.stream

    def kill(self) -> None:
        """End the process: it extends nothing, and gives nothing back."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        for group_id in list(stream._beats):  # noqa: SLF001 (its threads end with the process)
            stream._rest(group_id)  # noqa: SLF001
        if stream._watch is not None:  # noqa: SLF001
            stream._watch.stop()  # noqa: SLF001


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
def query(filled: PipelineHarness) -> Iterator[Query]:
    made = Query(filled, {"on_commit": "succeed"})
    yield made
    made.kill()


def read(stream: QueueStream, start: Row, end: Row) -> list[Row]:
    shares = stream.partitions(start, json.loads(json.dumps(end)))
    return [row for share in shares for batch in stream.read(share) for row in batch.to_pylist()]


def reap(harness: PipelineHarness) -> None:
    """Take back every lease that has lapsed, as the reaper does each minute."""
    queue = harness.uses.queues.cached("in")
    for place in queue.places(State.INFLIGHT):
        list(harness.uses.reaping.lapsed(queue, place))


def succeed(harness: PipelineHarness, rows: list[Row]) -> dict[str, int]:
    settling = [SettlingRow(row["id"], row["lease"], "succeed") for row in rows]
    return dict(settle(Outlet(harness.connection, "in"), settling).counts)


def ids(rows: list[Row]) -> set[str]:
    return {row["id"] for row in rows}


@pytest.mark.parametrize("reaped", [False, True])
def test_what_is_shown_as_lapsed_is_not_settled_by_that_batch_and_comes_again(
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

    assert [row["lapsed"] for row in again] == [True] * 30
    assert "SUCCEEDED" not in states
    assert ids(rest) == ids(first)
    assert not any(row["lapsed"] for row in rest)
    stream.latestOffset(later)
    assert filled.states("in") == {"SUCCEEDED": 30}


def test_a_lapsed_batch_that_its_sink_has_already_and_skips_is_settled_when_it_is_committed(
    filled: PipelineHarness, query: Query, clock: Clock
) -> None:
    """As Spark's file sinks and Delta's txnVersion do."""
    stream = query.start()
    end = stream.latestOffset(FIRST)
    read(stream, FIRST, end)  # the sink has it, and Spark has not noted that
    query.kill()
    clock.pass_(OUTAGE)
    stream = query.start()
    stream.partitions(FIRST, end)

    assert stream.latestOffset(end) == end
    assert filled.states("in") == {"SUCCEEDED": 30}


def test_no_report_under_its_lease_settles_a_task_that_was_shown_as_lapsed(
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
    late = succeed(filled, again[10:])

    assert [row["lapsed"] for row in again] == [False] * 10 + [True] * 20
    assert late == {"lost": 20}
    assert filled.states("in") == {"SUCCEEDED": 10, "ENQUEUED": 20}


def test_no_report_settles_a_task_that_a_frame_has_shown_as_lapsed(
    filled: PipelineHarness, clock: Clock
) -> None:
    given = {"queue": "in", "lease_seconds": f"{LEASE:g}", **filled.connection.options()}
    shares = QueueReading.of(given).open()

    def rows() -> list[Row]:
        return [
            row
            for share in shares
            for batch in framed(share.intake, share.shard)
            for row in batch.to_pylist()
        ]

    first = rows()
    clock.pass_(OUTAGE)
    again = rows()

    assert [{**row, "lapsed": False} for row in again] == first
    assert all(row["lapsed"] for row in again)
    assert succeed(filled, again) == {"lost": 30}
    assert filled.states("in") == {"ENQUEUED": 30}


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
    waiting = harness.states("in")

    again = query.start().latestOffset(end)

    assert (len(written), waiting, again) == (30, {"ENQUEUED": 30}, end)
    assert harness.states(queue) == {state: 30}


def test_a_committed_batch_is_settled_although_its_queue_is_paused_or_slow(
    clock: Clock, filled: PipelineHarness, query: Query
) -> None:
    stream = query.start()
    end = stream.latestOffset(FIRST)
    read(stream, FIRST, end)
    query.kill()
    clock.pass_(OUTAGE)
    reap(filled)
    filled.uses.queues.pause("in")
    clock.pass_(timedelta(seconds=30))  # for every process knows settings for a moment

    query.start().latestOffset(end)

    assert filled.states("in") == {"SUCCEEDED": 30}


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


def test_a_batch_that_was_planned_and_never_read_is_not_taken_for_a_forgotten_one(
    filled: PipelineHarness, query: Query, clock: Clock
) -> None:
    end = query.start().latestOffset(FIRST)
    query.kill()
    clock.pass_(timedelta(days=5))
    cast("Any", store(filled.connection)).forget()  # its group is long gone

    assert read(query.start(), FIRST, end) == []


def test_a_stream_that_was_stopped_within_a_batch_has_its_rows_again(
    filled: PipelineHarness, query: Query
) -> None:
    query.options = {}
    stream = query.start()
    end = stream.latestOffset(FIRST)
    first = read(stream, FIRST, end)
    succeed(filled, first[:10])
    stream.stop()
    states = filled.states("in")

    again = read(query.start(), FIRST, end)

    assert states == {"SUCCEEDED": 10, "ENQUEUED": 20}
    assert [{**row, "lapsed": False} for row in again] == first
    assert [row["lapsed"] for row in again] == [False] * 10 + [True] * 20
    assert {task.attempts for task in filled.tasks("in") if task.state is State.ENQUEUED} == {0}


class StreamMachine(RuleBasedStateMachine):
    """Spark, its source, a sink that replaces or skips batches, the reaper and another worker.

    The driver may be killed between any two steps, for any time.
    """

    @initialize(settles=st.booleans(), skips=st.booleans())
    def begin(self, *, settles: bool, skips: bool) -> None:
        self.folder = self.make_folder()
        self.clock = Clock()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(connect, "utc_now", self.clock)
        chance = random.Random(0)  # the same ids and leases whenever Hypothesis repeats a walk
        self.patch.setattr(secrets, "token_bytes", chance.randbytes)
        self.patch.setattr(secrets, "randbits", chance.getrandbits)
        path = self.folder / "headrace.db"
        SqliteStore(str(path)).close()
        self.harness = PipelineHarness(StoreConnection.of({"url": path.as_uri()}))
        retry = RetryStrategy(Backoff.FIXED, 100, 0)
        self.harness.queue("in", shards=2, retry=retry)
        self.tasks = set(self.harness.fill("in", 6))
        self.skips = skips and not settles  # the sink skips a batch that it has, else replaces it
        self.settles = settles  # the query does it itself, row by row, within its batch
        given = {"max_rows": "4"} | ({} if settles else {"on_commit": "succeed"})
        self.query = Query(self.harness, given)
        self.log: list[Row] = [FIRST]
        self.committed = 0
        self.shown: list[Row] | None = None
        self.written = False
        self.sink: dict[int, set[str]] = {}
        self.by_other: set[str] = set()

    def make_folder(self) -> Path:
        raise NotImplementedError

    def teardown(self) -> None:
        """Let the query work until nothing is due: then every task is done, and in the sink."""
        if not hasattr(self, "query"):
            return
        try:
            self.finish()
        finally:
            self.query.kill()
            self.patch.undo()
            opened.cache_clear()
            store.cache_clear()

    def finish(self) -> None:
        for _ in range(4 * (4 + len(self.tasks))):
            self.step()
            if not self.pending:
                self.pass_time(3.0)
        assert self.harness.states("in") == {"SUCCEEDED": len(self.tasks)}
        self.what_is_settled_is_in_the_sink()
        self.nothing_is_in_the_sink_twice()

    # -- what Spark does next, and again --------------------------------------------------------

    @property
    def pending(self) -> bool:
        return self.committed < len(self.log) - 1

    @property
    def skipped(self) -> bool:
        return self.skips and len(self.log) - 1 in self.sink

    @rule(steps=st.integers(1, 5))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        if self.query.stream is None:
            stream = self.query.start()
            if len(self.log) > 1:
                assert not stream.partitions(self.log[-1], self.log[-1])
        elif not self.pending:
            last = self.log[-1]
            found = self.query.stream.latestOffset(last)
            if found != last:
                self.log.append(json.loads(json.dumps(found)))
        elif self.skipped and not self.written:
            self.written = True
        elif self.shown is None:
            self.read()
        elif not self.written:
            self.write()
        else:
            self.committed += 1
            self.shown, self.written = None, False

    @precondition(lambda self: self.query.stream is not None and self.pending and not self.skipped)
    @rule()
    def read(self) -> None:
        assert self.query.stream is not None
        rows = read(self.query.stream, self.log[-2], self.log[-1])
        if self.shown is not None:
            assert rows == self.shown, "two reads of one attempt differ"
        self.shown = rows

    def write(self) -> None:
        """Replace the batch in the sink, without lapsed rows; settle all rows, lapsed or not."""
        assert self.shown is not None
        self.sink[len(self.log) - 1] = ids([row for row in self.shown if not row["lapsed"]])
        if self.settles:
            succeed(self.harness, self.shown)
        self.written = True

    @precondition(lambda self: self.settles and self.shown is not None)
    @rule()
    def settle_some(self) -> None:
        """Settle a few of the rows that the sink has already."""
        written = self.sink.get(len(self.log) - 1, set())
        succeed(self.harness, [row for row in self.shown or () if row["id"] in written][:2])

    @precondition(lambda self: self.query.stream is not None and not self.pending)
    @rule()
    def hear_of_the_commit(self) -> None:
        assert self.query.stream is not None
        if len(self.log) > 1:
            self.query.stream.commit(self.log[-1])

    # -- what befalls it --------------------------------------------------------------------------

    @rule(leases=st.sampled_from([0.4, 1.1, 3.0]), reaped=st.booleans(), asked=st.booleans())
    def end_and_stay_away(self, leases: float, *, reaped: bool, asked: bool) -> None:
        if asked and self.query.stream is not None:
            self.query.stream.stop()
        self.query.kill()
        self.shown, self.written = None, False
        self.pass_time(leases)
        if reaped:
            self.reap()

    @rule(leases=st.sampled_from([0.4, 1.1]))
    def pass_time(self, leases: float) -> None:
        self.clock.pass_(timedelta(seconds=LEASE * leases))

    @precondition(lambda self: self.query.stream is not None)
    @rule()
    def heartbeat(self) -> None:
        assert self.query.stream is not None
        for beat in list(self.query.stream._beats.values()):  # noqa: SLF001 (its time has come)
            beat.step()

    @rule()
    def reap(self) -> None:
        reap(self.harness)

    @rule(succeeds=st.booleans())
    def another_worker(self, *, succeeds: bool) -> None:
        """Take a task, and report on it."""
        for task in self.harness.uses.deliveries.dequeue("in", worker="other").tasks:
            status = ReportStatus.SUCCEEDED if succeeds else ReportStatus.RELEASED
            report = TaskReport(task.id, shown_lease(task), status)
            self.harness.uses.reports.report("in", [report])
            self.by_other.add(task.id)

    @rule()
    def enqueue(self) -> None:
        self.tasks |= set(self.harness.fill("in", 1))

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def what_is_settled_is_in_the_sink(self) -> None:
        if not hasattr(self, "query"):
            return
        done = {task.id for task in self.harness.tasks("in") if task.state is State.SUCCEEDED}
        written = set().union(*self.sink.values())
        assert done - self.by_other <= written

    @invariant()
    def nothing_is_in_the_sink_twice(self) -> None:
        if not hasattr(self, "query") or self.settles:
            return
        every = [id_ for batch in self.sink.values() for id_ in batch - self.by_other]
        assert len(every) == len(set(every))


def walk(folder: Path, examples: int, steps: int, **how: Any) -> None:
    class Walk(StreamMachine):
        numbers = count()

        def make_folder(self) -> Path:
            made = folder / str(next(self.numbers))
            made.mkdir()
            return made

    run_state_machine_as_test(
        Walk,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None, **how),
    )


def test_whatever_befalls_a_stream_what_it_settles_is_in_its_sink(tmp_path: Path) -> None:
    walk(tmp_path, 40, 12)


@pytest.mark.slow
def test_whatever_befalls_a_stream_what_it_settles_is_in_its_sink_on_long_walks(
    tmp_path: Path,
) -> None:
    walk(tmp_path, 300, 40)


def not_taken_back(intake: Intake, page: pa.RecordBatch) -> list[bool]:
    """Show rows as lapsed, and leave their tasks under the old lease."""
    tasks = store(intake.connection).read(page.column("id").to_pylist(), payload=False)
    return lapsed_in(page, intake.queue, intake.group, tasks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        pytest.param(GroupClaims, "shown_as_lapsed", lambda _: False, id="settles what is lapsed"),
        pytest.param(leasing, "_taken_back", not_taken_back, id="does not take tasks back"),
        pytest.param(ending, "_only_waited", lambda *_: False, id="forgets a committed batch"),
    ],
)
def test_the_walk_finds_a_source_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Any
) -> None:
    monkeypatch.setattr(owner, name, fault)

    with pytest.raises(AssertionError):
        walk(tmp_path, 400, 20, database=None, phases=[Phase.generate], report_multiple_bugs=False)
