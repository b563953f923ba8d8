"""Changes judged ahead of their transaction, and another's change of the same task in between.

Whatever somebody does to a task after it was looked at: outcomes, tasks and log are those of two
calls one after the other.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise, product
from typing import Final

import pytest

from headrace.domain import plan, settle
from headrace.domain.change import Change, Entry
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import Queue, QueueSettings
from headrace.domain.settle import Held
from headrace.domain.task import Task
from headrace.store.base import Done, Outcome
from headrace.store.memory import MemoryStore
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.commits import Commit
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.property.stores import everything

INSERT, TAKE, SUCCEED = "insert", "take", "succeed"
LIFE: Final = (INSERT, TAKE, SUCCEED)
CASES: Final = list(product(range(len(LIFE) + 1), LIFE, LIFE))
"""How many steps of its life a task has behind it, what another does to it, and what we do."""


class Overtaken(SqliteStore):
    """Lets another commit between our look at the tasks and our transaction."""

    foreseen_from = 1
    between: Callable[[], object] | None = None

    def _foreseen(self, changes: Sequence[Change]) -> Commit | None:
        foreseen = super()._foreseen(changes)
        assert foreseen is not None
        between, self.between = self.between, None
        if between is not None:
            between()
        return foreseen


def lives(queue: Queue, task_id: str, who: str) -> dict[str, Change]:
    """Return the changes of a task's life as *who* makes them."""
    now = ManualClock()()
    insert = plan.enqueue(TaskSpec("1"), queue, task_id=task_id, due_at=now, now=now, token=None)
    waiting = made(insert, None)
    later = now + timedelta(seconds=1)
    take = plan.dequeue(
        Entry.of(waiting), queue, lease_id=who, now=later, worker=who, keepalive=None
    )
    held = Held.of(made(take, waiting))
    succeed = settle.succeed(held, queue, now=later + timedelta(seconds=1), result=f'"{who}"')
    return {INSERT: insert, TAKE: take, SUCCEED: succeed}


def made(change: Change, before: Task | None) -> Task:
    after = change.apply(before)
    assert after is not None
    return after


def told(outcomes: Sequence[Outcome]) -> list[tuple[bool, Task | None]]:
    return [(isinstance(outcome, Done), outcome.task) for outcome in outcomes]


def agrees(steps: int, theirs: str, ours: str, *, kept: bool) -> bool:
    """Tell whether what comes of it is what comes of the same calls one after the other."""
    settings = QueueSettings() if kept else QueueSettings(history_retention_in_seconds=0)
    queue = new_world(MemoryStore(), ManualClock()).use.queues.create("mail", settings)
    before = [lives(queue, "task-1", "before")[step] for step in LIFE[:steps]]
    another = [lives(queue, "task-1", "another")[theirs]]
    # What goes before was the same worker's, so that its report may count; and a task of its own.
    us = lives(queue, "task-1", "before" if ours == SUCCEED else "us")
    call = [us[ours], lives(queue, "task-2", "us")[INSERT]]

    plain, store = MemoryStore(), Overtaken(now=ManualClock())
    for change in before:
        plain.commit([change])
        store.commit([change])
    plain.commit(another)
    expected = told(plain.commit(call))
    store.between = lambda: store.commit(another)
    found = told(store.commit(call))

    tasks = {task.id: task for task in everything(plain)}
    return (
        found == expected
        and {task.id: task for task in everything(store)} == tasks
        and in_a_row(store)
    )


def in_a_row(store: SqliteStore) -> bool:
    """Tell whether in the log each write of a task found what the one before it had left."""
    writes = store.writes(after=-1, limit=100)
    ours = [
        (write.before, write.after)
        for write in writes
        if any(side is not None and side.id == "task-1" for side in (write.before, write.after))
    ]
    return all(left == found for (_, left), (found, _) in pairwise(ours))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("steps", "theirs", "ours"), CASES)
def test_what_another_does_in_between_counts(
    steps: int, theirs: str, ours: str, *, kept: bool
) -> None:
    assert agrees(steps, theirs, ours, kept=kept)


def test_who_would_not_look_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commit, "stands", lambda *_: True)

    assert not all(agrees(*case, kept=kept) for case in CASES for kept in (True, False))
