"""Jobs: the engine, and the jobs that purge a queue, delete a queue, and drop orphaned objects.

The call that begins a job works on it first, page by page; the reaper resumes it until it is
complete.  Two processes may work on one job at the same time: a page that is done twice changes
nothing.

A removal takes the tasks whose life in the queue began before the call and that are in a named
state when the job reaches them.  The index proposes tasks; the task, which is read, decides.  A
second round, a minute later, takes the tasks that the index did not show, and those which moved
between two named states while they were read.

An object is written before its task, and the recorder drops it after the task has stopped using it.
A crash between these leaves an orphan.  Once a day a job reads every object that is older than any
such write could be, and its task.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.domain import plan
from headrace.domain.change import Done
from headrace.domain.offload import StoredObject, owner_of
from headrace.domain.operate import Undo, kept
from headrace.domain.queue import AGREED_AFTER
from headrace.domain.task import LIVE, Place, State, Task
from headrace.ops.shared.audit import ActionOutcome
from headrace.ops.shared.commits import commit
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.shared.strict_order import note_left
from headrace.store.base import Position, every_record
from headrace.store.records import readable
from headrace.store.records.jobs import KIND, Job, JobKind

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_PAGE: Final = 250
_SAVED_EVERY: Final = timedelta(seconds=2)  # where pages change nothing


class JobVisitor(Protocol):
    """The work of one kind of job."""

    def visit(self, job: Job) -> Iterator[tuple[Any, int]]:
        """Work from the position of *job* on.

        After each page, yield the position of the next one, and how many tasks were dealt with.
        """

    def next_round(self, job: Job) -> datetime | None:
        """Return when to visit all tasks once more after a complete round; None ends the job."""


class Jobs(ServicePart):
    """Works on jobs; *patience* is the seconds that the call that begins a job works on it."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.patience: float = 20.0

    def begin(self, job: Job) -> None:
        """Save a new job; it replaces another one of the same name."""
        while not self.store.put_record(job.record(), replaces=job.version - 1 or None):
            stored = self.find(job.name)
            job = replace(job, version=1 if stored is None else stored.version + 1)

    def find(self, name: str) -> Job | None:
        """Return the job of this name, if it is not complete."""
        record = self.store.record(KIND, name)
        return None if record is None else Job.of(record)

    def pending(self) -> list[Job]:
        """Return every job that is not complete."""
        return list(readable(every_record(self.store, KIND, page=_PAGE), Job.of))

    def give_up(self, undo_id: str) -> None:
        """End the job whose tasks that undo brings back: it would take them a second time.

        Another process that works on the job stops after its page.
        """
        for job in self.pending():
            if job.undo == undo_id:
                self.store.drop_record(KIND, job.name)
                self._revise(job)

    def work(self, job: Job, visitor: JobVisitor, outcome: ActionOutcome) -> bool:
        """Work on *job* until *patience* ends; return whether a round is complete.

        *outcome* counts the tasks.
        """
        until = self.now() + timedelta(seconds=self.patience)
        for count in self.pages(job, visitor):
            outcome.matched += count
            outcome.changed += count
            if self.now() >= until:
                return False
        return True

    def pages(self, job: Job, visitor: JobVisitor) -> Iterator[int]:
        """Work on a round of *job*, and yield after each page how many tasks it dealt with.

        The caller may stop after any page.  Another call resumes the round there, or repeats a few
        pages that changed nothing.
        """
        stored = self._stored(job)
        if stored is None or (stored.not_before and self.now() < stored.not_before):
            return
        job, unsaved, saved_at = stored, 0, self.now()
        for position, count in visitor.visit(job):
            job = replace(job, position=position, count=job.count + count)
            unsaved += count
            if count or self.now() >= saved_at + _SAVED_EVERY:
                saved = self._save(job, unsaved)
                if saved is None or saved.rounds > job.rounds:
                    return
                job, unsaved, saved_at = saved, 0, self.now()
            yield count
        not_before = visitor.next_round(job)
        if not_before is None:
            self.store.drop_record(KIND, job.name, version=job.version)
            self._revise(job)
            return
        job = replace(job, position=None, rounds=job.rounds + 1, not_before=not_before)
        saved = self._save(job, unsaved)
        if saved is not None:
            self._revise(saved)

    def _stored(self, job: Job) -> Job | None:
        """Return *job* as it is stored; None after its end, and for a newer job of its name."""
        stored = self.find(job.name)
        return stored if stored is not None and stored.as_of == job.as_of else None

    def _save(self, job: Job, unsaved: int) -> Job | None:
        """Save *job*, of whose count *unsaved* are new; return it as stored, None after its end.

        Where another process has completed the round, the job keeps the position of that process.
        """
        while True:
            saved = replace(job, version=job.version + 1)
            if self.store.put_record(saved.record(), replaces=job.version):
                return saved
            stored = self._stored(job)
            if stored is None or stored == saved:  # the answer to an earlier try was lost
                return stored
            furthest = stored if stored.rounds > job.rounds else job
            job = replace(furthest, count=stored.count + unsaved, version=stored.version)

    def _revise(self, job: Job) -> None:
        if job.audit is not None:
            self.service.audit.revise(job.audit, changed=job.count)


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
            self.service.tokens.forget(job.queue)
            self.service.slots.forget(job.queue)
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
            outcomes = commit(self.service, [kept(plan.purge(task), task, undo) for task in tasks])
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
        """Read tasks; for a deleted queue also the deleted tasks that an undo could restore."""
        if not ids:
            return []
        tasks = self.store.read(ids, payload=False)
        found = [*tasks.values()]
        if State.DELETED in job.states:
            hidden = self.store.tombstones(set(ids) - tasks.keys())
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


ORPHAN_AGE: Final = timedelta(days=1)
"""How long an object is left alone: longer than any call, and any lag of the recorder by far."""

ROUND: Final = timedelta(days=1)
"""From the end of one visit of all objects to the begin of the next."""

OBJECTS: Final = 1000
_READ: Final = 100  # tasks asked for at once

EVERY_OBJECT: Final = Job(
    name="orphans", kind=JobKind.DROP_ORPHANS, queue="", as_of=datetime.fromtimestamp(0, UTC)
)
"""The job, which never ends."""


class Orphans(ServicePart):
    """Visits all objects and drops those without a task."""

    def visit(self, job: Job) -> Iterator[tuple[Any, int]]:
        """Drop orphans page by page; see JobVisitor."""
        after = job.position or ""
        while self.service.objects is not None:
            page = self.service.objects.list(after, OBJECTS)
            old = [one for one in page if one.written_at <= self.now() - ORPHAN_AGE]
            orphans = self._orphans(old)
            if orphans:
                self.service.objects.drop(orphans)
            if len(page) < OBJECTS:
                yield "", len(orphans)
                return
            after = page[-1].name
            yield after, len(orphans)

    def next_round(self, _job: Job) -> datetime | None:
        """Return when to visit all objects again; see JobVisitor."""
        return None if self.service.objects is None else self.now() + ROUND

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
