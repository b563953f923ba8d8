"""What an operator's action does to a task, at the borders of its conditions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from headrace.domain import plan
from headrace.domain.change import Change
from headrace.domain.operate import BulkAction, Unfit, operate, shows_action, takes_turn
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue
from headrace.domain.queue_settings import QueueSettings
from headrace.domain.task import Hop, State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings, OnDead

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
LATER, BEFORE = NOW + INSTANT, NOW - INSTANT
STRICT_GROUPS = GroupSettings(GroupMode.STRICT, on_dead=OnDead.CONTINUE)
PLAIN = Queue("mail", QueueSettings(), NOW, NOW)
FAIR = Queue("fair", QueueSettings(groups=GroupSettings(GroupMode.FAIR)), NOW, NOW)
STRICT = Queue("strict", QueueSettings(groups=STRICT_GROUPS), NOW, NOW)
UNDUE = "the task is not due yet, and the order of queue strict is strict"


def task_in(state: State, *, due_at: datetime = NOW, expires_at: datetime | None = None) -> Task:
    """Return a task of the plain queue."""
    spec = TaskSpec("{}", expires_at=expires_at, group_key="a")
    change = plan.enqueue(spec, PLAIN, task_id="task-1", due_at=due_at, now=BEFORE, token=None)
    assert change.insert is not None
    return structs.replace(change.insert, place=structs.replace(change.insert.place, state=state))


@pytest.mark.parametrize(
    ("action", "task", "target", "turn_in"),
    [
        (BulkAction.MOVE, task_in(State.ENQUEUED), FAIR, FAIR),
        (BulkAction.MOVE, task_in(State.ENQUEUED, due_at=LATER), FAIR, None),
        (BulkAction.MOVE, task_in(State.DEAD, due_at=LATER), FAIR, FAIR),
        (BulkAction.MOVE, task_in(State.ENQUEUED), PLAIN, None),
        (BulkAction.MOVE, task_in(State.SUCCEEDED), FAIR, None),
        (BulkAction.RESTART, task_in(State.DEAD), None, None),
    ],
)
def test_a_moved_task_that_is_due_takes_its_groups_turn(
    action: BulkAction, task: Task, target: Queue | None, turn_in: Queue | None
) -> None:
    assert takes_turn(action, task, PLAIN, target=target, now=NOW) is turn_in


@pytest.mark.parametrize(
    ("action", "task", "target", "refusal"),
    [
        (BulkAction.RUN, task_in(State.ENQUEUED, due_at=LATER), None, None),
        (BulkAction.RUN, task_in(State.ENQUEUED), None, "the task is due already"),
        (
            BulkAction.RUN,
            task_in(State.ENQUEUED, due_at=LATER, expires_at=NOW),
            None,
            "the task has expired",
        ),
        (BulkAction.DELETE, task_in(State.ENQUEUED, expires_at=NOW), None, None),
        (BulkAction.MOVE, task_in(State.ENQUEUED), STRICT, None),
        (BulkAction.MOVE, task_in(State.ENQUEUED, due_at=LATER), STRICT, UNDUE),
        (BulkAction.MOVE, task_in(State.DEAD, due_at=LATER), STRICT, None),
        (BulkAction.MOVE, task_in(State.INFLIGHT), FAIR, "inflight"),
    ],
)
def test_an_action_takes_the_tasks_that_it_fits(
    action: BulkAction, task: Task, target: Queue | None, refusal: str | None
) -> None:
    done = operate(action, task, PLAIN, target=target, now=NOW)
    assert (done.detail if isinstance(done, Unfit) else None) == refusal


def test_a_task_that_is_moved_back_has_a_due_time_of_its_own() -> None:
    task = structs.replace(task_in(State.ENQUEUED), trail=(Hop("fair", BEFORE),))
    for target, due_at in ((FAIR, LATER), (STRICT, NOW)):
        done = operate(BulkAction.MOVE, task, PLAIN, target=target, now=NOW)
        assert isinstance(done, Change)
        assert done.put["due_at"] == due_at


@pytest.mark.parametrize(
    ("action", "mark"),
    [
        (BulkAction.DELETE, {"deleted_by": "und_1"}),
        (BulkAction.CANCEL, {"finished_at": NOW}),
        (BulkAction.RUN, {"due_at": NOW}),
        (BulkAction.RESTART, {"enqueued_at": NOW}),
        (BulkAction.MOVE, {"trail": (Hop("fair", NOW),)}),
    ],
)
def test_a_task_shows_the_action_that_was_done_to_it(
    action: BulkAction, mark: dict[str, Any]
) -> None:
    task = structs.replace(task_in(State.ENQUEUED, due_at=LATER), trail=(Hop("fair", BEFORE),))
    assert shows_action(action, structs.replace(task, **mark), [NOW], "und_1")
    assert not shows_action(action, task, [NOW], "und_1")
    assert not shows_action(action, task, [NOW], None)
