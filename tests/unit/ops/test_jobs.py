"""The engine of jobs: it saves the position of a job, and resumes it there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from headrace.domain.task import State
from headrace.runtime.wiring import Settings, build
from headrace.store.records.jobs import Job, JobKind
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock

PAGES = 10


@dataclass
class SlowVisitor:
    """Visits pages of a second each, of which none changes anything."""

    clock: ManualClock
    visited: list[int] = field(default_factory=list)

    def visit(self, job: Job) -> Iterator[tuple[Any, int]]:
        for page in range(job.position or 0, PAGES):
            self.clock.forward(1)
            self.visited.append(page)
            yield page + 1, 0

    def next_round(self, job: Job) -> datetime | None:
        return None if job.rounds else self.clock() + timedelta(minutes=1)


def test_a_job_is_resumed_where_slow_pages_that_change_nothing_were_cut() -> None:
    clock = ManualClock()
    jobs = build(Settings(admin_key="test"), SqliteStore(), now=clock).queues.service.jobs
    visitor = SlowVisitor(clock)
    job = Job(name="one", kind=JobKind.PURGE, queue="mail", as_of=clock(), states=(State.DEAD,))
    jobs.begin(job)

    for _ in range(PAGES):
        list(islice(jobs.pages(job, visitor), 3))

    assert {*visitor.visited} == {*range(PAGES)}
    (stored,) = jobs.pending()
    assert (stored.rounds, stored.position) == (1, None)
    clock.forward(60)
    list(jobs.pages(job, visitor))
    assert jobs.pending() == []


def test_a_slower_process_does_not_begin_a_completed_round_again() -> None:
    clock = ManualClock()
    jobs = build(Settings(admin_key="test"), SqliteStore(), now=clock).queues.service.jobs
    job = Job(name="one", kind=JobKind.PURGE, queue="mail", as_of=clock(), states=(State.DEAD,))
    jobs.begin(job)
    slower = jobs.pages(job, SlowVisitor(clock))
    next(slower)

    list(jobs.pages(job, SlowVisitor(clock)))
    assert len(list(slower)) < PAGES

    (stored,) = jobs.pending()
    assert (stored.rounds, stored.position) == (1, None)
    assert stored.not_before is not None
