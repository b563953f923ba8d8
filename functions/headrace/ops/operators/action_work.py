"""Work on actions: find their tasks, and change them in parts until they are complete.

A dry run reads the queues and keeps snapshots of the tasks that it finds.  An action then changes
the tasks that are still as they were seen, one chunk of snapshots at a time.  The tasks that it
changes carry the start time of the try (``Job.stamps``).  If a process is cut off, another one
repeats its part with its own time beside the first; a task that carries one of these times is done
already.  So each task is changed once and counted once, even if two processes have the part.

Pausing or cancelling changes the record only; the process sees it after its part.  A part that was
begun is still finished: a slow process must find nothing left to do.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.access import ID
from headrace.domain.errors import HeadraceError, NotFound, Unauthenticated, Unavailable
from headrace.domain.filters import NewerRecord
from headrace.domain.operate import ActionStatus, TaskSnapshot, Unfit, came_after, operate
from headrace.domain.task import Task
from headrace.ops.operators.actions import entry_of
from headrace.ops.operators.bulk import BulkOutcome
from headrace.ops.shared.paging import Walk
from headrace.ops.shared.service_part import ServicePart
from headrace.safe_logging import safe_logger
from headrace.store.base import Record, every_record
from headrace.store.records.actions import FOUND_KEPT, KIND, SNAPSHOTS, UNDER_WAY, Action

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_log: Final = safe_logger(__name__)

PART: Final = 250

_LOOKS: Final = 750  # tasks that a page of a dry run reads: about 130 ms
_SLICE: Final = timedelta(seconds=2)  # then it is another action's turn
_UNFOUNDED_AFTER: Final = timedelta(hours=1)  # a mark without an action
_PAGE: Final = 100


def _long() -> float:
    return timedelta(hours=1).total_seconds()


class ActionWork(ServicePart):
    """Visits the tasks of actions; *part* is the largest number of tasks in a chunk."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.part: int = PART

    def run(self, *, time_left: Callable[[], float] = _long) -> int:
        """Work on all actions by turns, until nothing is left to do or no *time_left* (seconds).

        Return how many tasks were dealt with.  Raises Unavailable.
        """
        dealt_with, moved = 0, True
        while moved and time_left() > 0:
            moved = False
            for mark in list(every_record(self.store, UNDER_WAY, page=_PAGE)):
                number = self.resume(mark, time_left=time_left)
                moved = moved or number is not None
                dealt_with += number or 0
        return dealt_with

    def resume(self, mark: Record, *, time_left: Callable[[], float] = _long) -> int | None:
        """Work on one action for a moment; return how many tasks were dealt with.

        Return None if there is nothing to do, or another process works on it.
        """
        try:
            run = self.service.actions.get(mark.name, dry_run=True)
        except NotFound:
            began = datetime.fromisoformat(mark.body["as_of"])
            if self.now() > began + _UNFOUNDED_AFTER:
                self.store.drop_record(UNDER_WAY, mark.name)
            return None
        except NewerRecord as error:
            _log.warning("Skipped %s %s: %s", KIND, mark.name, error)
            return None
        until = self.now() + _SLICE
        after = self.service.jobs.step(run, lambda: self.now() < until and time_left() > 0)
        latest = after or run
        found = latest.started_at is None and not latest.goes_on
        if latest.has_ended or (found and mark.version == latest.mark().version):
            self.store.drop_record(UNDER_WAY, run.id, version=mark.version)
        return None if after is None else after.at - run.at

    def visit(self, job: Action) -> Action:
        """Find more tasks of *job*, or change its next ones; see JobVisitor."""
        if job.goes_on and (trouble := self._lost_rights(job)):
            return replace(job, status=ActionStatus.PAUSED, trouble=trouble, busy_until=None)
        try:
            return self._look(job) if job.status is ActionStatus.LOOKING else self._act(job)
        except Unavailable:
            raise
        except HeadraceError as error:
            return replace(job.released(), status=ActionStatus.FAILED, trouble=error.detail)

    def end(self, job: Action) -> Action:
        """Return *job* as it ends, and write it into the audit; see JobVisitor."""
        status = ActionStatus.DONE if job.status is ActionStatus.RUNNING else job.status
        ended = replace(job, status=status, ended_at=self.now())
        if ended.audit is not None:
            self.service.audit.write(ended.audit, entry_of(ended))
        return ended

    def _lost_rights(self, run: Action) -> str:
        """Return why the key that *run* works for has lost its rights; empty if it has not."""
        if run.by_id is None or not ID.fullmatch(run.by_id):  # the service, the deployment or IAM
            return ""
        try:
            self.service.keys.known(run.by_id)
        except Unauthenticated:
            return f"key {run.by} ({run.by_id}), on whose behalf it ran, is revoked or has expired"
        return ""

    # -- finding tasks -------------------------------------------------------------------------

    def _look(self, run: Action) -> Action:
        """Read more tasks, and keep snapshots of the tasks for the action."""
        until = run.looked_at + _LOOKS
        while run.total is None and run.looked_at < until:
            run = self._look_in_queue(run, until)
        run = run.released()
        return run if run.total is None else self.service.actions.ready(run)

    def _look_in_queue(self, run: Action, until: int) -> Action:
        place = run.looking_at
        queue = self.service.queues.cached(run.queues[place])
        if run.ids:
            tasks = self.store.read(run.ids, payload=False)
            ours = [
                tasks[one] for one in run.ids if one in tasks and self._is_named(run, tasks[one])
            ]
            looked_at = run.looked_at + len(run.ids)
            return replace(self._keep(run, ours), looked_at=looked_at, looking_at=place + 1)
        walk = Walk.read(run.walk) if run.walk else Walk(run.as_of)
        found: dict[str, Task] = {}
        over = True
        for task, after in self.service.inspect.walk(queue, run.where, walk, page=_PAGE):
            walk = after
            if task is not None and self._takes(run, task):
                found[task.id] = task
            if run.looked_at + walk.looked_at >= until:
                over = False
                break
        return replace(
            self._keep(run, [*found.values()]),
            looked_at=run.looked_at + walk.looked_at,
            looking_at=place + over,
            walk=None if over else walk.state(),
        )

    def _is_named(self, run: Action, task: Task) -> bool:
        here = task.queue == run.queues[run.looking_at] and not task.is_hidden(self.now())
        return here and self._takes(run, task)

    def _takes(self, run: Action, task: Task) -> bool:
        queue = self.service.queues.cached(task.queue)
        # The target of a move is named later, and does not matter here.
        plan = operate(run.action, task, queue, target=queue, now=self.now())
        return not isinstance(plan, Unfit) and not came_after(task, run.as_of)

    def _keep(self, run: Action, tasks: Sequence[Task]) -> Action:
        """Write snapshots of *tasks* of the current queue."""
        for start in range(0, len(tasks), self.part):
            snapshots = [TaskSnapshot.of(task) for task in tasks[start : start + self.part]]
            body = {"tasks": [[each.id, each.state_tag] for each in snapshots]}
            chunk = (run.looking_at, len(snapshots), len(run.stamps))
            run = replace(run, chunks=(*run.chunks, chunk))
            name, until = run.chunk_name(len(run.chunks) - 1), run.as_of + FOUND_KEPT
            self.store.renew_record(Record(SNAPSHOTS, name, body, expires_at=until))
        return run

    # -- changing tasks ------------------------------------------------------------------------

    def _act(self, run: Action) -> Action:
        """Change the next tasks.  Raises NotFound if their snapshots or their queue are gone."""
        if run.at == 0:
            self.service.actions.begin_audit(run)
        queue, seen = self._seen(run)
        undo = self.service.undos.find(run.undos.get(queue))
        overdue = bool(run.undo_for) and undo is None
        outcomes = self.service.bulk.as_seen(
            queue,
            run.action,
            seen,
            run.where,
            stamps=run.stamps,
            to_queue=run.to_queue,
            undo=undo,
            only_look=overdue,
        )
        if not overdue:
            return _counted(run, outcomes)
        failed = _counted(run, [one for one in outcomes if one.changed])
        trouble = "the time in which it could be undone is over"
        return replace(failed, status=ActionStatus.FAILED, trouble=trouble)

    def _seen(self, run: Action) -> tuple[str, Sequence[TaskSnapshot]]:
        """Return the queue of the next tasks, and their snapshots."""
        begin, until = 0, run.total or 0
        for number, (place, amount, _) in enumerate(run.chunks):
            if run.at < begin + amount:
                record = self.store.record(SNAPSHOTS, run.chunk_name(number))
                if record is None:
                    message = "the selected tasks are no longer kept; make the selection again"
                    raise NotFound(message)
                seen = record.body["tasks"][run.at - begin : until - begin]
                return run.queues[place], [TaskSnapshot(*each) for each in seen]
            begin += amount
        raise AssertionError(run.at)


def _counted(run: Action, outcomes: Sequence[BulkOutcome]) -> Action:
    """Return *run* after a part with these *outcomes*."""
    left = Counter(run.left)
    left.update(one.detail or one.outcome for one in outcomes if not one.changed)
    changed = run.changed + sum(one.changed for one in outcomes)
    return replace(run.released(), at=run.at + len(outcomes), changed=changed, left=dict(left))
