"""The engine of jobs: begin a job, work on it page by page, save its position, resume it.

The call that begins a job works on it first; the reaper resumes it until it is complete.  Two
processes may work on one job at the same time: a page that is done twice changes nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.ops.shared.audit import ActionOutcome
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import every_record
from headrace.store.records import readable
from headrace.store.records.jobs import KIND, Job

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
