"""Jobs: the engine, and the jobs that purge a queue, delete a queue, and drop orphaned objects.

A job is work on many tasks, page by page.  The call that begins a job may work on it first; then
the service resumes it until it is complete.  One process works on a job at a time.  A process
records that it begins a page, and after the page one write records the result and begins the next
page.  If the process is cut off, another one repeats the page when the claim has lapsed; a page
that is done twice changes nothing more.  A process whose job was taken over counts nothing.

A removal takes the tasks whose life in the queue began before the call and that are in a named
state when the job reaches them.  The index proposes tasks; the stored task decides.  A second
round, a minute later, takes the tasks that the index did not show, and the tasks that moved between
two named states while these were read.

An object is written before its task, and the recorder drops it after the task has stopped using it.
A crash between these leaves an orphan.  Once a day a job reads every object that is older than any
such write could be, and its task.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from headrace.domain import plan
from headrace.domain.change import Done
from headrace.domain.offload import StoredObject, owner_of
from headrace.domain.operate import Undo, hide_for_undo
from headrace.domain.queue import AGREED_AFTER
from headrace.domain.task import LIVE, Place, State, Task
from headrace.ops.shared.commits import commit
from headrace.ops.shared.paging import pages_of
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_left
from headrace.store.base import every_record
from headrace.store.records import readable
from headrace.store.records.jobs import Job, JobKind, QueueJob

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_PAGE: Final = 250

J = TypeVar("J", bound=Job)


class JobVisitor(Protocol[J]):
    """The work of one kind of job."""

    def visit(self, job: J) -> J:
        """Do the next page of *job*, and return the job after it, released."""

    def end(self, job: J) -> J | None:
        """Return *job*, whose pages are done, as it is kept, or begins another round.

        None removes its record.
        """


class Jobs(ServicePart):
    """Works on jobs; *patience* is the seconds that the call that begins a job works on it."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 20.0

    def begin(self, job: QueueJob) -> None:
        """Save a new job; it replaces another one of the same name."""
        while not self.store.put_record(job.record(), replaces=job.version - 1 or None):
            stored = self.find(job.name)
            job = replace(job, version=1 if stored is None else stored.version + 1)

    def find(self, name: str) -> QueueJob | None:
        """Return the job of this name, if it is not complete."""
        record = self.store.record(QueueJob.RECORDS, name)
        return None if record is None else QueueJob.of(record)

    def pending(self) -> list[QueueJob]:
        """Return every job that is not complete, except actions."""
        return list(readable(every_record(self.store, QueueJob.RECORDS, page=_PAGE), QueueJob.of))

    def give_up(self, undo_id: str) -> None:
        """End the job whose tasks that undo brings back: it would take them a second time.

        Another process that works on the job stops after its page.
        """
        for job in self.pending():
            if job.undo == undo_id:
                self.store.drop_record(job.RECORDS, job.name)
                self.service.removals.revise_audit(job)

    def work(self, job: QueueJob) -> QueueJob:
        """Work on a new job until *patience* ends; return it as it is then."""
        until = self.now() + timedelta(seconds=self.patience)
        return self.step(job, lambda: self.now() < until) or job

    def step(self, job: J, has_time: Callable[[], bool]) -> J | None:
        """Do a page of *job*, and more pages while it *has_time*; return it as it is then.

        Return None if there is nothing to do: it has ended, waits, or another process works on it.
        """
        visitor = self._visitor(job.kind)
        at = self._claimed(job)
        while at is not None and at.busy_until is not None:
            at = self._saved(visitor.visit(at), at, has_time)
        if at is None or not at.complete:
            return at
        ended = visitor.end(at)
        if ended is not None:
            return self._put(ended)
        self.store.drop_record(at.RECORDS, at.name, version=at.version)
        return at

    def _visitor(self, kind: JobKind) -> JobVisitor[Any]:
        match kind:
            case JobKind.PURGE | JobKind.DELETE_QUEUE:
                return self.service.removals
            case JobKind.BUILD_INDEX:
                return self.service.indexing
            case JobKind.DROP_ORPHANS:
                return self.service.orphans
            case JobKind.ACT:
                return self.service.action_work

    def _claimed(self, job: J) -> J | None:
        """Return *job* as stored, with a page begun if it has one; None if it is not due."""
        stored = self._stored(job)
        if stored is None or not stored.is_due(self.now()):
            return None
        if stored.stamps or stored.has_page:
            return self._put(stored.begun(self.now()))
        return stored

    def _saved(self, done: J, before: J, has_time: Callable[[], bool]) -> J | None:
        """Save *done*, the result of a page of *before*, and begin the next page if it *has_time*.

        Return None if the job has ended, or another process has taken the page over.
        """
        more = has_time()
        while True:
            after = done.begun(self.now()) if more and done.has_page else done
            saved = self._put(after)
            if saved is not None:
                return saved
            stored = self._stored(before)
            if stored is None or stored.stamps != before.stamps:
                return None
            done = done.steered_as(stored)

    def _put(self, job: J) -> J | None:
        """Write *job* and return it as written; None if another process has written it."""
        written = replace(job, version=job.version + 1)
        if self.store.put_record(written.record(), replaces=job.version):
            return written
        # The answer to an earlier try may have been lost.
        return written if self._stored(job) == written else None

    def _stored(self, job: J) -> J | None:
        """Return *job* as it is stored; None after its end, and for a newer job of its name."""
        record = self.store.record(job.RECORDS, job.name)
        stored = None if record is None else job.of(record)
        return stored if stored is not None and stored.as_of == job.as_of else None


_READS_OF_LIVE: Final = 2  # of waiting and leased tasks, which workers move to and fro
_TRIES: Final = 5  # at tasks that change while they are removed
_LAG: Final = timedelta(seconds=60)  # an index shows everything by then
_PASSED_FOR: Final = timedelta(seconds=2)


class Removals(ServicePart):
    """Visits the tasks of purges and deleted queues, and removes them."""

    def visit(self, job: QueueJob) -> QueueJob:
        """Remove the next tasks of *job*; see JobVisitor.

        Pages without any are passed for up to two seconds, because each saved page costs a write.
        """
        undo, before, places = self.service.undos.find(job.undo), self._before(job), _places(job)
        removed, until, position = 0, self.now() + _PASSED_FOR, None
        for entries, position in pages_of(self.store, places, job.position, limit=_PAGE):  # noqa: B007
            removed = self._remove(job, before, undo, {entry.task_id for entry in entries})
            if removed or self.now() > until:
                break
        count, visited = job.count + removed, position is None
        return replace(job.released(), position=position, visited=visited, count=count)

    def end(self, job: QueueJob) -> QueueJob | None:
        """Begin the second round when the index shows everything; see JobVisitor."""
        deletes_queue = job.kind is JobKind.DELETE_QUEUE
        if deletes_queue and self.store.record("queue", job.queue) is None:
            self.service.tokens.forget(job.queue)
            self.service.slots.forget(job.queue)
        self.revise_audit(job)
        again = job.as_of + (AGREED_AFTER if deletes_queue else _LAG)
        if job.rounds or not (deletes_queue or self.now() < again):
            return None
        return job.next_round(again)

    def revise_audit(self, job: QueueJob) -> None:
        """Write into the audit how many tasks *job* has removed."""
        if job.audit is not None:
            self.service.audit.revise(job.audit, changed=job.count)

    def _remove(
        self, job: QueueJob, before: datetime, undo: Undo | None, ids: Collection[str]
    ) -> int:
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
            outcomes = commit(
                self.service, [hide_for_undo(plan.purge(task), task, undo) for task in tasks]
            )
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

    def _read(self, job: QueueJob, ids: Collection[str]) -> list[Task]:
        """Read tasks; for a deleted queue also the deleted tasks that an undo could restore."""
        if not ids:
            return []
        tasks = self.store.read(ids, payload=False)
        found = [*tasks.values()]
        if State.DELETED in job.states:
            hidden = self.store.tombstones(set(ids) - tasks.keys())
            found += [task for task in hidden.values() if task.ended_in is None]
        return found

    def _before(self, job: QueueJob) -> datetime:
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


def _places(job: QueueJob) -> Sequence[Place]:
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


ORPHAN_AGE: Final = timedelta(days=1)
"""How long an object is left alone: longer than any call, and any lag of the recorder by far."""

ROUND: Final = timedelta(days=1)
"""From the end of one visit of all objects to the begin of the next."""

OBJECTS: Final = 1000
_READ: Final = 100  # tasks asked for at once

EVERY_OBJECT: Final = QueueJob(
    name="orphans", kind=JobKind.DROP_ORPHANS, queue="", as_of=datetime.fromtimestamp(0, UTC)
)
"""The job, which never ends."""


class Orphans(ServicePart):
    """Visits all objects and drops those without a task."""

    def visit(self, job: QueueJob) -> QueueJob:
        """Drop the next orphans; see JobVisitor."""
        objects = self.service.objects
        page = [] if objects is None else objects.list(job.position or "", OBJECTS)
        old = [one for one in page if one.written_at <= self.now() - ORPHAN_AGE]
        orphans = self._orphans(old)
        if objects is not None and orphans:
            objects.drop(orphans)
        return replace(
            job.released(),
            position=page[-1].name if page else None,
            visited=len(page) < OBJECTS,
            count=job.count + len(orphans),
        )

    def end(self, job: QueueJob) -> QueueJob | None:
        """Begin to visit all objects again after a day; see JobVisitor."""
        return None if self.service.objects is None else job.next_round(self.now() + ROUND)

    def _orphans(self, old: Sequence[StoredObject]) -> list[str]:
        orphans: list[str] = []
        for start in range(0, len(old), _READ):
            some = [one.name for one in old[start : start + _READ]]
            owners = {owner_of(name) for name in some}
            found = self.store.read(owners, payload=False)
            gone = owners - found.keys()
            hidden = self.store.tombstones(gone) if gone else {}  # an undo may bring it back
            used = {name for task in (*found.values(), *hidden.values()) for name in _names(task)}
            orphans += [name for name in some if name not in used]
        return orphans


def _names(task: Task) -> set[str]:
    return {one.name for one in task.offloaded.values()}
