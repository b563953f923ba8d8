"""An action over a file whose service is killed again and again: each task once, one audit row."""

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.domain.filters import TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.queue import QueueSettings
from headrace.ops.operators.action_work import CLAIMED_FOR
from headrace.ops.operators.actions import ActionOperations
from headrace.ops.shared.audit import AuditFilter
from headrace.ops.shared.sentences import sentence
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.call_scope import Caller, calling
from headrace.store.records.actions import ActionRun
from headrace.store.sqlite import SqliteStore

TASKS = 3000
KILLS = 3
CALL = 25
WITHIN = 120.0  # seconds that a child may take for its share
BEFORE_NOTED = 0.3  # seconds
DEAD = TaskFilter(states=("DEAD",))


def later(number: int) -> Callable[[], datetime]:
    """Return a clock by which the claim of whoever was killed before has lapsed."""
    ahead = number * 2 * CLAIMED_FOR
    return lambda: datetime.now(UTC) + ahead + timedelta(seconds=1)


def service(path: Path, now: Callable[[], datetime]) -> tuple[UseCases, SqliteStore]:
    store = SqliteStore(str(path), now=now)
    return build(Settings(admin_key="test"), store, now=now), store


def worked_on(path: Path, now: Callable[[], datetime]) -> int:
    """Start a process that works on actions for ever; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            use, _ = service(path, now)
            while True:
                use.action_work.run()
                time.sleep(0.01)
        finally:
            os._exit(1)
    return pid


def begun(path: Path) -> str:
    use, store = service(path, lambda: datetime.now(UTC))
    use.queues.create("mail", QueueSettings())
    for _ in range(TASKS // CALL):
        use.tasks.enqueue("mail", [TaskSpec("{}")] * CALL)
    with calling(Caller("anna")):
        run = use.actions.begin_all(
            BulkAction.CANCEL, ["mail"], TaskFilter(states=("ENQUEUED",)), reason="sent twice"
        )
    store.close()
    return run.id


def progress(path: Path, run_id: str) -> tuple[int, int]:
    """Return how many tasks the action has noted, and how many it has changed."""
    use, store = service(path, lambda: datetime.now(UTC))
    changed = use.inspect.count("mail", DEAD).count
    noted = use.actions.get(run_id).dealt_with
    store.close()
    return noted, changed


@pytest.mark.slow
def test_a_service_killed_at_an_action_changes_each_task_once_and_notes_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "headrace.db"
    run_id = begun(path)
    put = ActionOperations.put

    def slowly(self: ActionOperations, changed: ActionRun) -> bool:
        time.sleep(BEFORE_NOTED)  # or no kill would ever come between
        return put(self, changed)

    monkeypatch.setattr(ActionOperations, "put", slowly)
    cut = changed = 0
    for number in range(KILLS):
        before, pid, until = changed, worked_on(path, later(number)), time.monotonic() + WITHIN
        while progress(path, run_id)[1] == before:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        noted, changed = progress(path, run_id)
        cut += noted < changed
    assert cut  # after tasks were changed, before that was noted
    assert changed < TASKS
    monkeypatch.undo()

    use, store = service(path, later(KILLS))
    use.action_work.run()

    done = use.actions.get(run_id)
    assert (done.status, done.total, done.changed, done.left) == ("DONE", TASKS, TASKS, {})
    assert use.inspect.count("mail", DEAD).count == TASKS
    [entry] = use.audit.list(AuditFilter(action="cancel")).shown
    assert (entry.matched, entry.changed) == (TASKS, TASKS)
    assert sentence(entry) == "anna cancelled 3,000 enqueued tasks of mail: sent twice"
    assert store.check() == ()
    store.close()
