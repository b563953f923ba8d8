"""The engine of jobs: it saves the position of a job, and resumes it there."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest

from headrace.ops.shared.jobs import Jobs, Removals
from headrace.runtime.wiring import Settings, build
from headrace.store.records.jobs import CLAIMED_FOR, JobKind, QueueJob
from headrace.store.sqlite import SqliteStore
from tests.manual_clock import ManualClock

PAGES = 10


@dataclass
class SlowVisitor:
    """Visits pages of a second each, of which none changes anything."""

    clock: ManualClock
    visited: list[int] = field(default_factory=list)

    def visit(self, job: QueueJob) -> QueueJob:
        page = job.position or 0
        self.clock.forward(1)
        self.visited.append(page)
        return replace(job.released(), position=page + 1, visited=page + 1 == PAGES)

    def end(self, job: QueueJob) -> QueueJob | None:
        return None if job.rounds else job.next_round(self.clock() + timedelta(minutes=1))


@dataclass
class Engine:
    """A job, and the engine that works on it."""

    clock: ManualClock
    visitor: SlowVisitor
    jobs: Jobs
    job: QueueJob

    def step(self, seconds: float) -> QueueJob | None:
        until = self.clock() + timedelta(seconds=seconds)
        return self.jobs.step(self.job, lambda: self.clock() < until)


@pytest.fixture
def engine() -> Engine:
    clock = ManualClock()
    service = build(Settings(admin_key="test"), SqliteStore(), now=clock).queues.service
    visitor = SlowVisitor(clock)
    service.removals = cast("Removals", visitor)
    job = QueueJob(name="one", kind=JobKind.PURGE, queue="mail", as_of=clock())
    service.jobs.begin(job)
    return Engine(clock, visitor, service.jobs, job)


def test_a_job_is_resumed_where_slow_pages_that_change_nothing_were_cut(engine: Engine) -> None:
    for _ in range(PAGES):
        engine.step(3)

    assert engine.visitor.visited == [*range(PAGES)]
    (stored,) = engine.jobs.pending()
    assert (stored.rounds, stored.position) == (1, None)
    engine.clock.forward(60)
    engine.step(PAGES)
    assert engine.jobs.pending() == []


def test_a_process_whose_job_was_taken_over_counts_nothing(engine: Engine) -> None:
    slow, others = engine.visitor.visit, []

    def visit(job: QueueJob) -> QueueJob:
        engine.visitor.visit = slow  # type: ignore[method-assign]
        assert engine.step(0) is None, "this process works on it"
        engine.clock.forward(CLAIMED_FOR.total_seconds())
        others.append(engine.step(0))
        return slow(job)

    engine.visitor.visit = visit  # type: ignore[method-assign]
    assert engine.step(PAGES) is None

    (stored,) = engine.jobs.pending()
    assert (stored.position, [stored]) == (1, others)
