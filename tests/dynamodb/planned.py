"""A change of every kind that a planner makes, each from the state it is made for."""

from datetime import timedelta
from typing import Any

from msgspec import structs

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.lease import LeaseGroup
from headrace.domain.operate import (
    STATES_BY_ACTION,
    BulkAction,
    Undo,
    hide_for_undo,
    operate,
    undelete,
)
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.settle import ReportedLease
from headrace.domain.task import (
    SHOWN_STATES,
    ErrorKind,
    OnExpiry,
    Place,
    State,
    Task,
    TaskError,
)
from tests.manual_clock import ManualClock
from tests.unit.domain.test_lifecycle_acts import (
    DELAY,
    DELETED,
    ENQUEUED,
    INFLIGHT,
    LEASE,
)

_T0 = ManualClock()()
_UNDO = Undo("und_1", "mail", _T0, _T0 + timedelta(days=1))
_GROUP = LeaseGroup.new(None, keepalive=60, now=_T0)


def planned() -> list[Change]:
    """Return a change of every kind that a planner makes, each from the state it is made for."""
    queue = Queue("mail", QueueSettings(), _T0, _T0)
    waiting, held = task_in(ENQUEUED), task_in(INFLIGHT)
    entry = Entry(waiting.id, waiting.place, waiting.scheduled_at)
    error = TaskError(1, _T0, "ada", ErrorKind.FAILED)
    changes = [
        plan.enqueue(TaskSpec("{}"), queue, task_id="t-1", due_at=_T0, now=_T0, token="x"),
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None),
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None, task=waiting),
        plan.expire(entry, queue, now=_T0),
        plan.expire(waiting, queue, now=_T0),
        plan.expire(structs.replace(waiting, on_expiry=OnExpiry.DROP), queue, now=_T0),
        plan.overwrite(waiting, TaskSpec("1", overwrite=frozenset({"payload"})), queue, now=_T0),
        plan.dequeue(entry, queue, lease_id="l", now=_T0, worker="", keepalive=None, group=_GROUP),
        settle.reclaim(held, queue, now=_T0, spread=0),
        settle.release(held, queue, now=_T0, reason=settle.ReleaseReason.GROUP_CLOSED),
        *(plan.purge(task_in(state)) for state in State),
        plan.delete(task_in(DELETED)),
        *(
            hide_for_undo(plan.delete(task_in(state)), task_in(state), _UNDO)
            for state in SHOWN_STATES
        ),
        *(
            hide_for_undo(plan.purge(task_in(state)), task_in(state), _UNDO)
            for state in SHOWN_STATES
        ),
        *(_undeleted(state, queue) for state in SHOWN_STATES),
        *(
            _operated(action, state)
            for action, states in STATES_BY_ACTION.items()
            for state in states
        ),
    ]
    lease = ReportedLease.of(held)
    for task in (held, None):
        changes += [
            settle.heartbeat(lease, queue, now=_T0, keepalive=None, progress=None, task=task),
            settle.succeed(lease, queue, now=_T0, result=None, task=task),
        ]
    changes += [
        settle.release(held, queue, now=_T0, lease=lease),
        settle.release(held, queue, now=_T0, reason=settle.ReleaseReason.UNDELIVERED),
        settle.move(held, queue, now=_T0, lease=lease, delay=None, payload=None, tags=None),
    ]
    changes += [
        settle.fail(held, queue, now=_T0, error=error, retryable=retryable, delay=None, spread=0)
        for retryable in (True, False)
    ]
    return changes


def _undeleted(state: State, queue: Queue) -> Change:
    task = structs.replace(task_in(DELETED), deleted_from=state, finished_at=_T0)
    change = undelete(task, queue, now=_T0)
    assert isinstance(change, Change)
    return change


def _operated(action: BulkAction, state: State) -> Change:
    queue = Queue("mail", QueueSettings(), _T0, _T0)
    task = task_in(state)
    if action is BulkAction.RUN:
        task = structs.replace(task, due_at=_T0 + DELAY)
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
