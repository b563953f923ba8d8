"""Every planned change against the lifecycle table: it follows a row, and only from there."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain import plan, settle
from headrace.domain.change import AtMost, Change, Entry
from headrace.domain.lease import LeaseGroup
from headrace.domain.lifecycle import LIFECYCLE, Action, Actor
from headrace.domain.operate import STATES_BY_ACTION, BulkAction, operate
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.settle import Held
from headrace.domain.task import SHOWN_STATES, ErrorKind, OnExpiry, Place, State, Task, TaskError
from headrace.domain.undo import Undo, kept, undelete
from tests.manual_clock import ManualClock
from tests.unit.domain.lifecycle_cases import DELAY, DELETED, ENQUEUED, INFLIGHT, LEASE

_T0 = ManualClock()()
_UNDO = Undo("und_1", "mail", _T0, _T0 + timedelta(days=1))
_GROUP = LeaseGroup.opened(None, keepalive=60, now=_T0)


def planned() -> list[Change]:
    """Return a change of every kind that a planner makes, each from the state it is made for."""
    queue = Queue("mail", QueueSettings(), _T0, _T0)
    waiting, held = task_in(ENQUEUED), task_in(INFLIGHT)
    entry = Entry(waiting.id, waiting.place, waiting.scheduled_at)
    error = TaskError(1, _T0, "ada", ErrorKind.FAILED)
    changes = [
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None),
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None, task=waiting),
        plan.expire(entry, queue, now=_T0),
        plan.expire(waiting, queue, now=_T0),
        plan.expire(replace(waiting, on_expiry=OnExpiry.DROP), queue, now=_T0),
        plan.overwrite(waiting, TaskSpec("1", overwrite=frozenset({"payload"})), queue, now=_T0),
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None, group=_GROUP),
        settle.reclaim(held, queue, now=_T0, spread=0),
        settle.release(Held.of(held), queue, now=_T0, reason=settle.ReleaseReason.GROUP_CLOSED),
        *(plan.purge(task_in(state)) for state in State),
        plan.delete(task_in(DELETED)),
        *(kept(plan.delete(task_in(state)), task_in(state), _UNDO) for state in SHOWN_STATES),
        *(kept(plan.purge(task_in(state)), task_in(state), _UNDO) for state in SHOWN_STATES),
        *(_undeleted(state, queue) for state in SHOWN_STATES),
        *(
            _operated(action, state)
            for action, states in STATES_BY_ACTION.items()
            for state in states
        ),
    ]
    blind = replace(Held.of(held), task=None)
    for known in (Held.of(held), blind):
        changes += [
            settle.heartbeat(known, queue, now=_T0, keepalive=None, progress=None),
            settle.succeed(known, queue, now=_T0, result=None),
            settle.release(known, queue, now=_T0, delay=None),
            settle.release(known, queue, now=_T0, reason=settle.ReleaseReason.UNDELIVERED),
            settle.move(known, queue, now=_T0, delay=None, payload=None, tags=None),
        ]
        changes += [
            settle.fail(
                known, queue, now=_T0, error=error, retryable=retryable, delay=None, spread=0
            )
            for retryable in (True, False)
        ]
    return changes


def _undeleted(state: State, queue: Queue) -> Change:
    task = replace(task_in(DELETED), deleted_from=state, finished_at=_T0)
    change = undelete(task, queue, now=_T0)
    assert isinstance(change, Change)
    return change


def _operated(action: BulkAction, state: State) -> Change:
    queue = Queue("mail", QueueSettings(), _T0, _T0)
    task = task_in(state)
    if action is BulkAction.RUN:
        task = replace(task, due_at=_T0 + DELAY)
    change = operate(action, task, queue, target=queue, now=_T0)
    assert isinstance(change, Change)
    return change


def task_in(state: State) -> Task:
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


@pytest.mark.parametrize("change", planned(), ids=_planned_id)
def test_a_planned_change_follows_a_row_and_is_refused_in_every_other_state(
    change: Change,
) -> None:
    assert change.rule in LIFECYCLE
    source = task_in(change.rule.source or ENQUEUED)
    if AtMost("expires_at", _T0) in change.when:
        source = replace(source, expires_at=_T0)

    assert change.allowed(source)
    for state in State:
        if state is not source.state:
            assert not change.allowed(_gone_to(source, state=state))
    assert not change.allowed(None)


@pytest.mark.parametrize("change", planned(), ids=_planned_id)
def test_a_planned_change_is_refused_in_another_queue(change: Change) -> None:
    source = task_in(change.rule.source or ENQUEUED)

    assert not change.allowed(_gone_to(source, queue="mai"))


@pytest.mark.parametrize("change", planned(), ids=_planned_id)
def test_a_planned_change_is_refused_by_a_new_task_of_the_same_id(change: Change) -> None:
    """Deleted and enqueued again, it counts its versions anew and may have come as far."""
    source = task_in(change.rule.source or ENQUEUED)

    for state in State:
        if state is not source.state:
            assert not change.allowed(replace(source, place=replace(source.place, state=state)))
    assert not change.allowed(replace(source, place=replace(source.place, queue="mai")))


@pytest.mark.parametrize(
    "change",
    [change for change in planned() if change.rule.actor is Actor.OPERATOR],
    ids=_planned_id,
)
def test_what_an_operator_does_to_a_task_is_not_done_to_its_successor(change: Change) -> None:
    """In the same queue and state, as often changed, but made later."""
    source = task_in(change.rule.source or ENQUEUED)
    if change.rule.action is Action.PURGE:
        successor = replace(source, enqueued_at=_T0 + DELAY)
    else:
        successor = replace(source, created_at=_T0 + timedelta(microseconds=1))

    assert not change.allowed(successor)
    assert not change.already_done(successor)


def _gone_to(task: Task, **where: Any) -> Task:
    """Return *task* after somebody else's move."""
    return replace(task, place=replace(task.place, **where), version=task.version + 1)


@pytest.mark.parametrize("change", planned(), ids=_planned_id)
def test_a_planned_change_leads_where_its_row_says_and_counts_one_version(change: Change) -> None:
    before = task_in(change.rule.source or ENQUEUED)

    after = change.apply(before)

    if after is None:
        assert change.rule.target is None
        return
    assert (after.state, after.last_move) == (change.rule.target, change.rule.action)
    assert after.version == before.version + 1
    lease = (after.lease_id, after.lease_expires_at, after.lease_length)
    assert (None in lease, any(lease)) == ((False, True) if after.state is INFLIGHT
                                           else (True, False))  # fmt: skip
