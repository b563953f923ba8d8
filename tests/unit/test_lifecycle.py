"""Every state and every action against the lifecycle table, both ways.

What the table allows happens, ends where a row says and puts the clock where the row says; what
it does not allow changes nothing.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.errors import NotFound
from headrace.domain.lifecycle import (
    LIFECYCLE,
    Action,
    Actor,
    Clock,
    Lease,
    Rule,
    diagram,
    rule,
    rules,
    table,
)
from headrace.domain.operate import STATES, BulkAction, operate
from headrace.domain.plan import NewTask
from headrace.domain.queue import DeadLetterConfig, Queue, QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settle import Held
from headrace.domain.task import ErrorKind, Place, State, Task, TaskError
from headrace.ops.reports import Report, ReportStatus
from headrace.store.memory import MemoryStore
from tests.contract.conftest import World, lease_name, new_world
from tests.manual_clock import ManualClock

ROOT = Path(__file__).parents[2]
ENQUEUED, INFLIGHT, SUCCEEDED, DEAD = State
ANYWHERE = [None, *State]
BACKOFF, LEASE, EXPIRY = timedelta(seconds=7), timedelta(seconds=100), timedelta(seconds=1000)
DELAY = timedelta(seconds=3)

# The moves of design 1, section 2, written down a second time.
PROMISED: dict[Action, set[tuple[State | None, State | None]]] = {
    Action.ENQUEUE: {(None, ENQUEUED)},
    Action.OVERWRITE: {(ENQUEUED, ENQUEUED)},
    Action.DEQUEUE: {(ENQUEUED, INFLIGHT)},
    Action.HEARTBEAT: {(INFLIGHT, INFLIGHT)},
    Action.SUCCEED: {(INFLIGHT, SUCCEEDED)},
    Action.FAIL: {(INFLIGHT, ENQUEUED), (INFLIGHT, DEAD)},
    Action.RELEASE: {(INFLIGHT, ENQUEUED), (INFLIGHT, DEAD)},
    Action.MOVE: {(INFLIGHT, ENQUEUED), (ENQUEUED, ENQUEUED), (DEAD, ENQUEUED)},
    Action.RECLAIM: {(INFLIGHT, ENQUEUED), (INFLIGHT, DEAD)},
    Action.EXPIRE: {(ENQUEUED, DEAD)},
    Action.RUN: {(ENQUEUED, ENQUEUED)},
    Action.RESTART: {(DEAD, ENQUEUED), (SUCCEEDED, ENQUEUED)},
    Action.DELETE: {(state, None) for state in State},
    Action.PURGE: {(state, None) for state in State},
}


def test_the_table_holds_the_moves_of_the_contract_and_no_others() -> None:
    stated: dict[Action, set[tuple[State | None, State | None]]] = {}
    for row in LIFECYCLE:
        stated.setdefault(row.action, set()).add((row.source, row.target))

    assert stated == PROMISED
    assert len({(row.action, row.source, row.target) for row in LIFECYCLE}) == len(LIFECYCLE)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("source", ANYWHERE, ids=str)
def test_the_table_names_its_rows_and_refuses_the_rest(
    action: Action, source: State | None
) -> None:
    targets = {to for come_from, to in PROMISED[action] if come_from == source}

    assert {row.target for row in rules(action, source)} == targets
    for target in ANYWHERE:
        if target in targets:
            assert rule(action, source, target) in LIFECYCLE
        else:
            with pytest.raises(LookupError, match=str(action)):
                rule(action, source, target)


def test_only_workers_move_what_is_in_flight_and_only_under_their_lease() -> None:
    for row in LIFECYCLE:
        if row.source is INFLIGHT and row.actor is Actor.WORKER:
            assert row.lease is Lease.HELD
        elif row.source is INFLIGHT and row.actor is Actor.SERVICE:
            assert row.lease is Lease.LAPSED
        else:
            assert row.lease is (Lease.TAKEN if row.action is Action.DEQUEUE else Lease.NONE)


def test_each_row_puts_the_clock_where_its_target_needs_attention_next() -> None:
    meaning = {
        ENQUEUED: {Clock.DUE, Clock.BACKOFF, Clock.NOW},
        INFLIGHT: {Clock.LEASE_END, Clock.KEPT},
        SUCCEEDED: {Clock.NOW},
        DEAD: {Clock.NOW},
        None: {Clock.NONE},
    }
    assert all(row.clock in meaning[row.target] for row in LIFECYCLE)


def test_every_end_of_a_life_has_the_setting_that_keeps_it() -> None:
    kept = {SUCCEEDED: "history_retention_in_seconds", DEAD: "dead_letter_queue_config"}

    for row in LIFECYCLE:
        assert row.kept_by == (kept.get(row.target) if row.target else None)


# -- the use cases ------------------------------------------------------------------------------


@dataclass
class Case:
    """A task in some state, and what the last worker that had it knows."""

    world: World
    task_id: str
    lease: str = "lse_nobody.1."

    @property
    def stored(self) -> Task | None:
        return self.world.store.read([self.task_id]).get(self.task_id)

    def report(self, status: ReportStatus, **fields: Any) -> None:
        self.world.use.reports.report("mail", [Report(self.task_id, self.lease, status, **fields)])


def case_in(state: State | None, *, keyed: bool, kept: bool = True) -> Case:
    """Bring a task into *state* in the ways that leave no report of its own to repeat."""
    world = new_world(MemoryStore(), ManualClock())
    settings = QueueSettings(
        keepalive_timeout_in_seconds=LEASE.total_seconds(),
        expires_in_seconds=int(EXPIRY.total_seconds()),
        retry_strategy=RetryStrategy(Backoff.FIXED, 1, BACKOFF.total_seconds(), jitter=0),
        dead_letter_queue_config=DeadLetterConfig(enable=kept),
        history_retention_in_seconds=86_400 if kept else 0,
    )
    world.use.queues.create("mail", settings)
    world.use.queues.create("other", settings)
    case = Case(world, "task-1")
    if state is None:
        return case
    world.put("mail", id="task-1", dedupe_key="key" if keyed else None)
    world.clock.forward(1)
    if state is ENQUEUED:
        return case
    task = world.one("mail")
    case.lease = str(lease_name(task))
    world.clock.forward(1)
    if state is SUCCEEDED:
        world.say(task, "SUCCEEDED")
    elif state is DEAD:
        world.say(task, "FAILED", retryable=False)
    world.clock.forward(1)
    return case


def enqueue(case: Case) -> None:
    entry = NewTask("{}", id="task-1", delay_in_seconds=DELAY.total_seconds())
    case.world.use.tasks.enqueue("mail", [entry])


def overwrite(case: Case) -> None:
    due = case.world.clock() + DELAY
    entry = NewTask("1", dedupe_key="key", scheduled_at=due, overwrite=frozenset({"scheduled_at"}))
    case.world.use.tasks.enqueue("mail", [entry])


def dequeue(case: Case) -> None:
    case.world.take("mail", 5)


def reported(status: str, **fields: Any) -> Callable[[Case], None]:
    """Return an act that reports under the last lease the task had."""

    def act(case: Case) -> None:
        case.report(ReportStatus(status), **fields)

    act.__name__ = "-".join((status, *fields))
    return act


def use_up_retries(case: Case) -> None:
    """Let the only retry of the task pass, so that the next failure is the last."""
    if (task := case.stored) is None or task.state is not INFLIGHT:
        return
    case.report(ReportStatus.FAILED)
    case.world.clock.forward(BACKOFF.total_seconds())
    case.lease = str(lease_name(case.world.one("mail")))


def fail_for_good(case: Case) -> None:
    use_up_retries(case)
    case.report(ReportStatus.FAILED)


def reclaim(case: Case) -> None:
    case.world.clock.forward(LEASE.total_seconds())
    case.world.use.reaping.run()


def reclaim_for_good(case: Case) -> None:
    use_up_retries(case)
    reclaim(case)


def expire(case: Case) -> None:
    """Let the wait pass, and in its stead the keep of a task whose lease would end sooner."""
    if (task := case.stored) and task.state is INFLIGHT:
        case.report(ReportStatus.INFLIGHT, keepalive=2 * EXPIRY.total_seconds())
    case.world.clock.forward(EXPIRY.total_seconds())
    case.world.use.reaping.run()


def delete(case: Case) -> None:
    try:
        case.world.use.tasks.delete(case.task_id)
    except NotFound:
        assert case.stored is None


def purge(case: Case) -> None:
    case.world.use.queues.purge("mail", tuple(State))


def operated(action: BulkAction, **fields: Any) -> Callable[[Case], None]:
    """Return an act that an operator does to the task by its id."""

    def act(case: Case) -> None:
        case.world.use.bulk.by_ids("mail", action, [case.task_id], **fields)

    act.__name__ = f"operators-{action}"
    return act


def run(case: Case) -> None:
    """Put a waiting task off, so that there is something to hasten."""
    if (task := case.stored) and task.state is ENQUEUED:
        case.lease = str(lease_name(case.world.one("mail")))
        case.report(ReportStatus.RELEASED, delay_in_seconds=LATER)
    operated(BulkAction.RUN)(case)


LATER, TOO_LATE = DELAY.total_seconds(), EXPIRY.total_seconds()
PRODUCER, WORKER, OPERATOR, SERVICE = Actor

# Each act makes one move if it may; by whom, and where it leads if the table allows it at all.
ACTS: list[tuple[Action, Actor, State | None, Callable[[Case], None]]] = [
    (Action.ENQUEUE, PRODUCER, ENQUEUED, enqueue),
    (Action.OVERWRITE, PRODUCER, ENQUEUED, overwrite),
    (Action.DEQUEUE, WORKER, INFLIGHT, dequeue),
    (Action.HEARTBEAT, WORKER, INFLIGHT, reported("INFLIGHT")),
    (Action.SUCCEED, WORKER, SUCCEEDED, reported("SUCCEEDED", result="1")),
    (Action.FAIL, WORKER, ENQUEUED, reported("FAILED")),
    (Action.FAIL, WORKER, DEAD, reported("FAILED", retryable=False)),
    (Action.FAIL, WORKER, DEAD, reported("FAILED", delay_in_seconds=TOO_LATE)),
    (Action.FAIL, WORKER, DEAD, fail_for_good),
    (Action.RELEASE, WORKER, ENQUEUED, reported("RELEASED", delay_in_seconds=LATER)),
    (Action.RELEASE, WORKER, DEAD, reported("RELEASED", delay_in_seconds=TOO_LATE)),
    (Action.MOVE, WORKER, ENQUEUED, reported("MOVED", to_queue="other", delay_in_seconds=LATER)),
    (Action.MOVE, OPERATOR, ENQUEUED, operated(BulkAction.MOVE, to_queue="other")),
    (Action.RECLAIM, SERVICE, ENQUEUED, reclaim),
    (Action.RECLAIM, SERVICE, DEAD, reclaim_for_good),
    (Action.EXPIRE, SERVICE, DEAD, expire),
    (Action.RUN, OPERATOR, ENQUEUED, run),
    (Action.RESTART, OPERATOR, ENQUEUED, operated(BulkAction.RESTART)),
    (Action.DELETE, OPERATOR, None, delete),
    (Action.DELETE, OPERATOR, None, operated(BulkAction.DELETE)),
    (Action.PURGE, OPERATOR, None, purge),
]


def _name(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("source", ANYWHERE, ids=str)
@pytest.mark.parametrize(("action", "actor", "target", "act"), ACTS, ids=_name)
def test_what_the_table_allows_happens_and_nothing_else(
    source: State | None,
    action: Action,
    actor: Actor,
    target: State | None,
    act: Callable[[Case], None],
    *,
    keyed: bool,
) -> None:
    case = case_in(source, keyed=keyed or action is Action.OVERWRITE)
    before = case.stored

    act(case)

    after = case.stored
    row = _row(action, actor, source, target)
    if row is None:
        extended = action is Action.EXPIRE and source is INFLIGHT
        assert after == before or (extended and after and after.last_move == "heartbeat")
    elif after is None:
        assert target is None
    else:
        assert (after.state, after.last_move) == (target, action)
        assert after.scheduled_at == _time_by(row, before, case.world.clock())
        assert _index_times(case.world, after.place) == [after.scheduled_at]
        assert (after.lease_id is not None) == (after.state is INFLIGHT)


def _row(action: Action, actor: Actor, source: State | None, target: State | None) -> Rule | None:
    found = rules(action, source, actor=actor)
    if not found:
        return None
    (row,) = (row for row in found if row.target is target)
    return row


def _time_by(row: Rule, before: Task | None, now: datetime) -> datetime | None:
    """Return what ``scheduled_at`` becomes by the clock of *row*."""
    kept = before.scheduled_at if before else None
    by_operator = row.actor is OPERATOR  # whose move leaves a waiting task its due time
    return {
        Clock.DUE: kept if by_operator else now + DELAY,
        Clock.LEASE_END: now + LEASE,
        Clock.KEPT: kept,
        Clock.BACKOFF: now + BACKOFF,
        Clock.NOW: now,
        Clock.NONE: None,
    }[row.clock]


def _index_times(world: World, place: Place) -> list[datetime]:
    return [entry.scheduled_at for entry in world.store.entries(place, limit=9).entries]


def test_a_worker_that_fails_may_ask_for_another_wait_than_the_backoff() -> None:
    case = case_in(INFLIGHT, keyed=False)

    case.report(ReportStatus.FAILED, delay_in_seconds=LATER)

    assert case.stored is not None
    assert case.stored.scheduled_at == case.world.clock() + DELAY


ENDS = [
    (row.source, act)
    for action, actor, target, act in ACTS
    for row in LIFECYCLE
    if (row.action, row.actor, row.target) == (action, actor, target) and row.kept_by
]


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize(("source", "act"), ENDS, ids=_name)
def test_without_history_and_dead_letters_the_end_of_a_life_is_gone(
    source: State | None, act: Callable[[Case], None], *, keyed: bool
) -> None:
    case = case_in(source, keyed=keyed, kept=False)

    act(case)

    assert case.stored is None


def test_every_row_was_tried() -> None:
    tried = {(action, actor, target) for action, actor, target, _ in ACTS}

    assert {(row.action, row.actor, row.target) for row in LIFECYCLE} == tried


# -- the planners -------------------------------------------------------------------------------


def _planned() -> list[Change]:
    """Return a change of every kind that a planner makes, each from the state it is made for."""
    queue = Queue("mail", QueueSettings(), _T0, _T0)
    waiting, held = _task(ENQUEUED), _task(INFLIGHT)
    entry = Entry(waiting.id, waiting.place, waiting.scheduled_at)
    error = TaskError(1, _T0, "ada", ErrorKind.FAILED)
    changes = [
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None),
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None, task=waiting),
        plan.expire(entry, queue, now=_T0),
        plan.expire(waiting, queue, now=_T0),
        plan.overwrite(waiting, NewTask("1", overwrite=frozenset({"payload"})), queue, now=_T0),
        settle.reclaim(held, queue, now=_T0, spread=0),
        *(plan.purge(_task(state), before=_T0) for state in State),
        *(_operated(action, state) for action, states in STATES.items() for state in states),
    ]
    for known in (Held.of(held), replace(Held.of(held), task=None)):
        changes += [
            settle.heartbeat(known, queue, now=_T0, keepalive=None, progress=None),
            settle.succeed(known, queue, now=_T0, result=None),
            settle.release(known, queue, now=_T0, delay=None),
            settle.give_back(known, queue, now=_T0),
            settle.move(known, queue, now=_T0, delay=None, payload=None, tags=None),
        ]
        changes += [
            settle.fail(
                known, queue, now=_T0, error=error, retryable=retryable, delay=None, spread=0
            )
            for retryable in (True, False)
        ]
    return changes


def _operated(action: BulkAction, state: State) -> Change:
    queue = Queue("mail", QueueSettings(), _T0, _T0)
    task = _task(state)
    if action is BulkAction.RUN:
        task = replace(task, due_at=_T0 + DELAY)
    change = operate(action, task, queue, target=queue, now=_T0)
    assert isinstance(change, Change)
    return change


_T0 = ManualClock()()


def _task(state: State) -> Task:
    lease: dict[str, Any] = {}
    if state is INFLIGHT:
        lease = {
            "lease_id": "lse_1",
            "lease_expires_at": _T0,
            "lease_length": LEASE,
            "worker": "ada",
            "attempts": 1,
        }
    return Task(
        "t-1", Place("mail", state, 0), *(_T0,) * 4, expires_at=_T0 + timedelta(days=1), **lease
    )


def _planned_id(change: Change) -> str:
    return f"{change.rule.action}-{change.rule.source}-{change.rule.target}"


@pytest.mark.parametrize("change", _planned(), ids=_planned_id)
def test_a_planned_change_follows_a_row_and_is_refused_in_every_other_state(
    change: Change,
) -> None:
    assert change.rule in LIFECYCLE
    source = _task(change.rule.source or ENQUEUED)
    if change.rule.action is Action.EXPIRE:
        source = replace(source, expires_at=_T0)

    assert change.allowed(source)
    for state in State:
        if state is not source.state:
            assert not change.allowed(_gone_to(source, state=state))
    assert not change.allowed(None)


@pytest.mark.parametrize("change", _planned(), ids=_planned_id)
def test_a_planned_change_is_refused_in_another_queue(change: Change) -> None:
    source = _task(change.rule.source or ENQUEUED)

    assert not change.allowed(_gone_to(source, queue="mai"))


def _gone_to(task: Task, **where: Any) -> Task:
    """Return *task* after somebody else's move."""
    return replace(task, place=replace(task.place, **where), version=task.version + 1)


@pytest.mark.parametrize("change", _planned(), ids=_planned_id)
def test_a_planned_change_leads_where_its_row_says_and_counts_one_version(change: Change) -> None:
    before = _task(change.rule.source or ENQUEUED)

    after = change.apply(before)

    if after is None:
        assert change.rule.target is None
        return
    assert (after.state, after.last_move) == (change.rule.target, change.rule.action)
    assert after.version == before.version + 1
    lease = (after.lease_id, after.lease_expires_at, after.lease_length)
    assert (None in lease, any(lease)) == ((False, True) if after.state is INFLIGHT
                                           else (True, False))  # fmt: skip


# -- what is printed ----------------------------------------------------------------------------


def test_the_documentation_shows_the_diagram_and_the_table() -> None:
    page = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")

    assert f"\n```mermaid\n{diagram()}\n```\n" in page
    assert f"\n\n{table()}\n\n" in page


def test_the_module_prints_what_the_documentation_shows() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "headrace.domain.lifecycle"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "functions")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert printed.stdout == f"{diagram()}\n\n{table()}\n"
