"""The jobs that remove tasks: purges, and the deletion of queues.

They take the tasks whose life in the queue began before the call and that are in a named state
when the job reaches them.  The index proposes tasks; the task, which is read, decides.  So a task
that came later stays, and a task that only a lagging index still shows is not counted.

A second round, a minute later, takes the tasks that the index did not show, and those that moved
between two named states while they were read.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.domain import plan
from headrace.domain.operate import Undo, kept
from headrace.domain.queue import AGREED_AFTER
from headrace.domain.task import LIVE, Place, State, Task
from headrace.ops.shared.observed import commit
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_notes import note_left
from headrace.store.base import Done, Position
from headrace.store.records.jobs import Job, JobKind

_PAGE: Final = 250
_READS_OF_LIVE: Final = 2  # of waiting and leased tasks, which workers move to and fro
_TRIES: Final = 5  # at tasks that change while they are removed
_LAG: Final = timedelta(seconds=60)  # an index shows everything by then


class Removals(ServicePart):
    """Visits the tasks of purges and deleted queues, and removes them."""

    def visit(self, job: Job) -> Iterator[tuple[Any, int]]:
        """Remove the tasks of *job* page by page; see JobVisitor."""
        undo, before, places = self.service.undos.known(job.undo), self._before(job), _places(job)
        at, last = job.position or (0, None)
        while at < len(places):
            after = None if last is None else Position.read(last)
            page = self.store.entries(places[at], after=after, limit=_PAGE)
            removed = self._remove(job, before, undo, {entry.task_id for entry in page.entries})
            at, last = (at, page.last.state()) if page.last else (at + 1, None)
            yield [at, last], removed

    def next_round(self, job: Job) -> datetime | None:
        """Return when the index shows everything; see JobVisitor."""
        deletes_queue = job.kind is JobKind.DELETE_QUEUE
        if deletes_queue and self.store.record("queue", job.queue) is None:
            self.service.limiting.forget(job.queue)
        again = job.as_of + (AGREED_AFTER if deletes_queue else _LAG)
        return again if not job.rounds and (deletes_queue or self.now() < again) else None

    def _remove(self, job: Job, before: datetime, undo: Undo | None, ids: Collection[str]) -> int:
        """Remove those of *ids* that *job* takes; return how many were removed."""
        removed = 0
        for _ in range(_TRIES):
            tasks = [
                task
                for task in self._read(job, ids)
                if task.queue == job.queue
                and task.state in job.states
                and task.enqueued_at <= before
            ]
            outcomes = commit(self.store, [kept(plan.purge(task), task, undo) for task in tasks])
            gone = [
                task
                for task, outcome in zip(tasks, outcomes, strict=True)
                # Gone since it was read: by this very work, if the answer was lost.
                if isinstance(outcome, Done) or not task.same_as(outcome.task)
            ]
            removed += len(gone)
            if job.kind is JobKind.PURGE:
                note_left(self.store, job.queue, gone)
            ids = {task.id for task in tasks} - {task.id for task in gone}
            if not ids:
                break
        return removed

    def _read(self, job: Job, ids: Collection[str]) -> list[Task]:
        """Read tasks; of a deleted queue also those that an undo could have brought back."""
        if not ids:
            return []
        tasks = self.store.read(ids, payload=False)
        found = [*tasks.values()]
        if State.DELETED in job.states:
            hidden = self.store.spent(set(ids) - tasks.keys())
            found += [task for task in hidden.values() if task.spent is None]
        return found

    def _before(self, job: Job) -> datetime:
        """Return the end of the time in which the tasks of *job* came to the queue.

        The second round of a deleted queue takes what came late, but nothing of a new queue of
        its name.
        """
        if job.kind is JobKind.PURGE or not job.rounds:
            return job.as_of
        record = self.store.record("queue", job.queue)
        if record is None:
            return self.now()
        return datetime.fromisoformat(record.body["created_at"]) - timedelta(microseconds=1)


def _places(job: Job) -> Sequence[Place]:
    """Return where the tasks of *job* are; where workers may move tasks between two, repeatedly."""
    live = [state for state in job.states if state in LIVE]
    if len(live) > 1:
        live *= _READS_OF_LIVE
    ended = [state for state in job.states if state not in LIVE]
    return [
        Place(job.queue, state, shard, lane)
        for shard in range(job.shards)
        for state in (*live, *ended)
        for lane in (sorted(job.lanes) if state is State.ENQUEUED else (0,))
    ]
