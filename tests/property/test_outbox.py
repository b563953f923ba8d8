"""The relay in any order of crashes, lost answers and other relays: each row exactly once.

The service is the real one in memory.  The table is a list with the locks of a database: what a
relay has read is passed over by others where the database can do that, and removed when it commits.
Each relay may be stopped at each point, and others may run, or commit rows, at each point of it.
A number that is free is given again, as SQLite does.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace import NewTask, Report
from headrace.client.codec import PLAIN
from headrace.outbox.relay import Relay
from headrace.outbox.rows import new_row
from headrace.outbox.table import OutboxRow, OutboxState, Send, SettledRows
from tests.faults import Fault, Faults, FaultyService

QUEUES = ("kept", "bare", "missing")
POINTS = ("read", "sent", "committed")


class Crash(BaseException):
    """The relay's process is gone."""


@dataclass
class ListTable:
    """An outbox in a list; *at* is called at each point of a relay, and may raise Crash."""

    locks: bool
    committed: list[OutboxRow] = field(default_factory=list)
    locked: set[int] = field(default_factory=set)
    at: Callable[[str], None] = lambda _point: None
    name: str = "a list"

    def settle(self, limit: int, without: Collection[str], send: Send) -> Sequence[OutboxRow]:
        rows = [
            row
            for row in self.committed
            if row.seq not in self.locked and row.queue not in without and row.refused_at is None
        ][:limit]
        own = {row.seq for row in rows} if self.locks else set()
        self.locked |= own
        try:
            self.at("read")
            settled = send(rows)
            self.at("sent")
            self.write(rows, settled)
        finally:
            self.locked -= own  # a database frees the locks of a connection that is gone
        self.at("committed")
        return rows

    def write(self, rows: Sequence[OutboxRow], settled: SettledRows) -> None:
        """Write down what came of *rows*, and of no others that have their numbers by now."""
        sent = {(row.seq, row.task_id) for row in rows}
        done = {(seq, task_id) for seq, task_id in sent if seq in settled.done}
        failed = {(seq, task_id) for seq, task_id in sent if seq in settled.faults}
        kept = [row for row in self.committed if self.key(row) not in done]
        self.committed = [
            replace(row, attempts=row.attempts + 1) if self.key(row) in failed else row
            for row in kept
        ]

    def key(self, row: OutboxRow) -> tuple[int, str]:
        return row.seq, row.task_id

    def state(self) -> OutboxState:
        raise NotImplementedError

    def rows(
        self,
        *,
        refused: bool = False,
        ids: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[OutboxRow]:
        raise NotImplementedError

    def retry(self, ids: Collection[str] | None = None) -> int:
        raise NotImplementedError

    def delete(self, ids: Collection[str]) -> int:
        raise NotImplementedError

    def create(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Outboxes(RuleBasedStateMachine):
    """Transactions, relays and workers, one after the other and within each other."""

    def __init__(self) -> None:
        super().__init__()
        self.service = FaultyService(seed=1)
        self.service.client.create_queue("kept")
        self.service.client.create_queue("bare", history_retention_in_seconds=0)
        self.table = ListTable(locks=False)
        self.written = 0
        self.promised: dict[str, str] = {}  # what was committed: the queue of each id
        self.ran: list[str] = []  # what workers were given, one entry for each delivery
        self.relays = [self.relay(), self.relay()]

    def relay(self) -> Relay:
        """A process that has just started: it remembers nothing."""
        return Relay(
            self.table, self.service.client, batch=3, monotonic=self.seconds, chance=lambda: 0.5
        )

    def seconds(self) -> float:
        now: datetime = self.service.clock.now
        return now.timestamp()

    @rule(locks=st.booleans())
    @precondition(lambda self: self.written == 0)
    def is_a_database_of_this_kind(self, *, locks: bool) -> None:
        self.table.locks = locks

    @rule(
        queues=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=5),
        commits=st.sampled_from([True, True, True, False]),
    )
    def transaction(self, *, queues: list[str], commits: bool) -> None:
        rows: list[OutboxRow] = []
        for queue in queues:
            self.written += 1
            seq = max((row.seq for row in [*self.table.committed, *rows]), default=0) + 1
            new = new_row(queue, NewTask(payload=self.written), PLAIN, now=self.service.clock.now)
            rows.append(OutboxRow(new.task_id, new.queue, new.entry, new.created_at, seq))
        if commits:
            self.table.committed += rows
            self.promised |= {row.task_id: row.queue for row in rows}

    @rule(
        who=st.integers(0, 1),
        crash_at=st.sampled_from([None, None, *POINTS]),
        other_at=st.sampled_from([None, *POINTS]),
        writes_at=st.sampled_from([None, *POINTS]),
        other_crashes_at=st.sampled_from([None, None, *POINTS]),
        fault=st.sampled_from(
            [None, None, Faults.lose_answers, Faults.lose_requests, Faults.unavailable]
        ),
    )
    def a_relay_steps(
        self,
        who: int,
        crash_at: str | None,
        other_at: str | None,
        writes_at: str | None,
        other_crashes_at: str | None,
        fault: Callable[..., Fault] | None,
    ) -> None:
        """One relay takes a step, another one takes a whole one within it, each may crash."""

        def other(point: str) -> None:
            if point == other_crashes_at:
                raise Crash

        def at(point: str) -> None:
            if point == other_at:
                self.table.at = other
                self.step(1 - who)
                self.table.at = at
            if point == writes_at:
                self.transaction(queues=["kept"], commits=True)
            if point == crash_at:
                raise Crash

        self.table.at = at
        if fault is not None:
            fault(self.service.faults, of="enqueue")
        self.step(who)
        self.table.at = lambda _point: None
        self.service.faults.clear()

    def step(self, who: int) -> None:
        try:
            self.relays[who].step()
        except Crash:
            self.relays[who] = self.relay()

    @rule()
    def workers(self) -> None:
        """Everything that is due runs and succeeds; of those in bare nothing is kept."""
        for queue in ("kept", "bare"):
            while tasks := self.service.client.dequeue(queue, batch_size=25).tasks:
                self.ran += [task.id for task in tasks]
                done = [
                    Report(task_id=task.id, lease_id=task.lease.id, status="SUCCEEDED")
                    for task in tasks
                ]
                self.service.client.report(queue, done)

    @rule(seconds=st.integers(1, 5))
    def time_passes(self, seconds: int) -> None:
        self.service.clock.forward(seconds)

    @invariant()
    def nothing_is_made_that_was_not_committed_and_nothing_twice(self) -> None:
        assert len(self.ran) == len(set(self.ran))
        assert set(self.ran) <= self.promised.keys()
        there = [task.id for task in self.service.store.everything()]
        assert set(there) <= self.promised.keys()
        assert len(there) == len(set(there))

    @invariant()
    def every_committed_row_is_in_its_queue_or_waits(self) -> None:
        there = {task.id: task.queue for task in self.service.store.everything()}
        waiting = {row.task_id for row in self.table.committed}
        for task_id, queue in self.promised.items():
            known = task_id in there or task_id in self.ran
            assert known or task_id in waiting
            assert there.get(task_id, queue) == queue

    def teardown(self) -> None:
        """When all is well again, everything is enqueued that can be, and the outbox is empty."""
        self.service.faults.clear()
        self.service.clock.forward(60)
        last = self.relay()
        for _ in range(40):
            last.step()
        assert {row.queue for row in self.table.committed} <= {"missing"}
        self.service.client.create_queue("missing")
        self.relay().drain()
        assert self.table.committed == []
        self.nothing_is_made_that_was_not_committed_and_nothing_twice()
        self.every_committed_row_is_in_its_queue_or_waits()


HOW = settings(
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("examples", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_every_committed_row_is_enqueued_exactly_once_and_no_other(examples: int) -> None:
    run_state_machine_as_test(Outboxes, settings=settings(HOW, max_examples=examples))


def test_a_row_that_reuses_a_number_is_not_removed_for_the_old_row() -> None:
    """Without locks: another relay is done, and a transaction commits, while one is sending."""
    story = Outboxes()

    story.transaction(queues=["kept"], commits=True)
    story.a_relay_steps(
        who=0, crash_at=None, other_at="read", writes_at="sent", other_crashes_at=None, fault=None
    )

    assert len(story.table.committed) == 1
