"""A worker in the thread of the test.  Time moves only between tasks."""

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.client.app.app import App
from headrace.client.app.attempts import cancel
from headrace.client.app.execution import TaskRoute
from headrace.client.app.outcomes import Cancelled
from headrace.client.client import Client
from headrace.client.sending import Report
from headrace.client.worker.fetch import check_queues
from headrace.client.worker.inflight import Interruption, RunningHandler
from headrace.client.worker.reports import (
    Refused,
    failure_instead,
    instead_of_invalid,
    send_each,
    was_cancelled,
)
from headrace.client.worker.run import CoroutineAttempt, ThreadAttempt
from headrace.client.worker.service import WorkerService
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import NotFound
from headrace.domain.task import State, Task
from headrace.domain.times import instant_of, micros_of
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.rows import COLUMNS, Row, task_of
from headrace.testing.attempts import Attempt, Ran
from headrace.testing.clock import ManualClock
from headrace.wire.tasks import LeasedTask, Reported

if TYPE_CHECKING:
    from headrace.testing.service import MemoryService

NAME: Final = "test"
_ALL: Final = 2**31
LIMIT: Final = 10_000
"""The most attempts of a run, unless the caller sets another limit."""
_AGAIN_SECONDS: Final = 1.0  # until a time limit is thrown in once more
_A_MOMENT: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_IN_STATE: Final = "WHERE state = ? AND queue IN (SELECT value FROM json_each(?))"


class MemoryTables(SqliteStore):
    """A SQLite store in memory that lists its tasks."""

    def everything(self) -> list[Task]:
        """Return all tasks but tombstones."""
        ids, _ = self.ids("", limit=_ALL) or ((), False)
        return list(self.read(ids).values())

    def first_due(self, queues: Iterable[str], *, ticks: bool = True) -> dict[str, datetime]:
        """Return when the first waiting task of each queue is due, with or without *ticks*."""
        which = "" if ticks else " AND json_extract(task, '$.schedule') IS NULL"
        by_queue = f"queue, MIN(due_at) FROM tasks {_IN_STATE}{which} GROUP BY queue"
        found = self._rows(by_queue, State.ENQUEUED, queues)
        return {queue: instant_of(due_at) for queue, due_at in found}

    def first_lapse(self, queues: Iterable[str]) -> dict[str, datetime]:
        """Return when the first lease of each queue ends."""
        found: dict[str, datetime] = {}
        for row in self._rows(f"{COLUMNS} FROM tasks {_IN_STATE}", State.INFLIGHT, queues):
            task = task_of(row[-2], None)
            end = task.lease_expires_at or task.scheduled_at
            found[task.queue] = min(end, found.get(task.queue, end))
        return found

    def has_overdue(self, now: datetime) -> bool:
        """Return whether a lease is over, or a waiting task has expired."""
        overdue = "SELECT EXISTS (SELECT 1 FROM tasks WHERE (state = ? AND scheduled_at <= ?) OR"
        at = micros_of(now)
        with self._db.reading() as db:
            found = db.execute(
                f"{overdue} (state = ? AND expires_at <= ?))",
                (str(State.INFLIGHT), at, str(State.ENQUEUED), at),
            ).fetchone()
        return bool(found[0])

    @property
    def changes(self) -> int:
        """The number of changes so far, of tasks and of everything else."""
        with self._db.reading() as db:
            return db.total_changes

    def _rows(self, what: str, state: State, queues: Iterable[str]) -> list[Row]:
        with self._db.reading() as db:
            return db.execute(f"SELECT {what}", (str(state), json.dumps(list(queues)))).fetchall()


class _Control:
    """The worker's side of an attempt.

    It notices a cancel as a worker does: with a report of progress, and after a third of the lease.
    The clock stands still while a handler runs, so this is checked when the handler asks.
    """

    def __init__(
        self, client: Client, clock: ManualClock, task: LeasedTask, route: TaskRoute
    ) -> None:
        self._client, self._clock, self._task, self._route = client, clock, task, route
        self.known_cancelled = False
        self.stopping = False
        self.lease_expires_at = task.lease.expires_at
        self._look_at = clock.now + self._third

    @property
    def lost(self) -> bool:
        return self.cancelled or self._clock.now >= self.lease_expires_at

    @property
    def cancelled(self) -> bool:
        now = self._clock.now
        if not self.known_cancelled and self._look_at <= now < self.lease_expires_at:
            self._look_at = now + self._third
            try:
                self.known_cancelled = (
                    self._client.get_task(self._task.id).dead_reason == "cancelled"
                )
            except NotFound:  # only an operator removes a leased task
                self.known_cancelled = True
        return self.known_cancelled

    def progress(self, value: object) -> None:
        lasted = self._clock.now < self.lease_expires_at
        beat = Report.on(self._task, "INFLIGHT", progress=value)
        (result,) = self._client.report(self._task.queue, [beat])
        if result.lease is not None:
            self.lease_expires_at = result.lease.expires_at
            self._look_at = self._clock.now + self._third
        elif was_cancelled(result, lease_lasted=lasted):
            self.known_cancelled = True
            self._interrupt()

    @property
    def _third(self) -> timedelta:
        return (self.lease_expires_at - self._clock.now) / 3

    def _interrupt(self) -> None:
        """Interrupt the handler."""
        if self._route.kind == "sync":
            raise Cancelled
        running = asyncio.current_task()
        if running is not None:
            cancel(running, Cancelled())


class _RetryingService(WorkerService):
    """The service for a worker, by a client that retries."""

    def check_queue(self, queue: str) -> None:
        self._client.get_queue(queue)

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:  # noqa: ARG002 (time stands still)
        return self._client.report(queue, reports)


class Work:
    """One run of an app over *memory*; see `MemoryService.run`."""

    def __init__(self, memory: "MemoryService", app: App, client: Client, limit: int) -> None:
        self._memory, self._app, self._client, self._limit = memory, app, client, limit
        self._service = _RetryingService(client)
        self._clock, self._store = memory.clock, memory.store
        self._attempts: list[Attempt] = []
        self._asked: set[str] = set()
        self._counted_from = 0

    def run(self, *, seconds: float | timedelta = 0, until_settled: bool = False) -> Ran:
        """Run ready tasks as `MemoryService.run` says, with the hooks of the app."""
        self._app.call_hooks("worker_start")
        self._app.call_hooks("process_start")
        try:
            return self._run(seconds=seconds, until_settled=until_settled)
        finally:
            self._app.call_end_hooks("worker_stop")

    def _run(self, *, seconds: float | timedelta, until_settled: bool) -> Ran:
        clock = self._clock
        step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        end = clock.now + step
        self._service.prepare(self._app, WorkerSettings.of(self._app.queues, name=NAME))
        check_queues(self._service, self._app.queues)
        if step:
            self._memory.tick()
        self._work()
        idle_rounds = 0
        while True:
            now = clock.now
            moment = self.next_due(ticks=now < end) if until_settled or now < end else None
            if now < end:
                moment = min(moment or end, now + _MINUTE, end)
            if moment is None:
                return Ran(tuple(self._attempts))
            if now < end:
                self._counted_from = len(self._attempts)  # the run ends with its time
            clock.forward_to(moment)
            self._memory.tick_if_needed()
            before = len(self._attempts)
            if self._may_give(*self._app.queues):
                self._work()
            is_idle = now >= end and len(self._attempts) == before
            idle_rounds = idle_rounds + 1 if is_idle else 0
            if idle_rounds > self._limit:
                raise RuntimeError(f"due tasks were not delivered in {self._limit} dequeues")

    def _work(self) -> None:
        """Run tasks until all queues are empty and all callbacks of batches have run."""
        before = -1
        while before < len(self._attempts):
            before = len(self._attempts)
            self._take_all()
            if any(attempt.task.batches for attempt in self._attempts[before:]):
                self._memory.tick()

    def _take_all(self) -> None:
        """Take one task after the other, from each queue in turn, until all are empty."""
        found = True
        while found:
            found = False
            for queue in self._app.queues:
                if queue in self._asked and not self._may_give(queue):
                    continue
                self._asked.add(queue)
                for task in self._client.dequeue(queue, worker=NAME).tasks:
                    found = True
                    self._attempt(task)

    def _attempt(self, task: LeasedTask) -> None:
        if len(self._attempts) - self._counted_from >= self._limit:
            raise RuntimeError(
                f"after {self._limit} attempts there is still work; the last ones were "
                f"{self._attempts[-3:]}"
            )
        route = self._app.route(task)
        control = _Control(self._client, self._clock, task, route)
        report = self._executed(task, control, route)
        if report is None or control.known_cancelled:
            attempt = Attempt(task, None, None, cancelled=control.known_cancelled)
        else:
            attempt = self._reported(task, report)
        self._attempts.append(attempt)

    def _reported(self, task: LeasedTask, report: Report) -> Attempt:
        """Report as a worker does; return the attempt with the last report and its outcome."""
        sent = [report]

        def instead(refused: Report, error: Refused) -> Report | None:
            failure = failure_instead(refused, error)
            sent.extend([failure] if failure is not None else [])
            return failure

        try:
            (result,) = send_each(self._service, task.queue, sent[:1], instead, within=math.inf)
        except NotFound:  # a worker only logs that its queue was deleted
            return Attempt(task, report, "NOT_FOUND")
        if result is None:
            return Attempt(task, sent[-1], "INVALID")
        if after := instead_of_invalid(sent[-1], result, task):
            return self._reported(task, after)
        cancelled = result.dead_reason == "cancelled"
        return Attempt(task, sent[-1], result.outcome, cancelled=cancelled)

    def _executed(self, task: LeasedTask, control: _Control, route: TaskRoute) -> Report | None:
        if route.kind == "async":
            return _awaited(self._app, task, control, route)
        with time_limits(route, ThreadAttempt):
            return self._app.execute(task, control)

    def _may_give(self, *queues: str) -> bool:
        """Return whether one of *queues* has a task that is due or whose lease is over.

        A dequeue is slow, and most minutes of a long time are empty.
        """
        now, store = self._clock.now, self._store
        first = (*store.first_due(queues).values(), *store.first_lapse(queues).values())
        return any(moment <= now for moment in first)

    def next_due(self, *, ticks: bool) -> datetime | None:
        """Return the time at which the next task falls due or its lease ends, or None.

        Ticks of schedules count only with *ticks*: every tick has a successor.
        """
        now, store = self._clock.now, self._store
        moments = list(store.first_lapse(self._app.queues).values())
        for name, due_at in store.first_due(self._app.queues, ticks=ticks).items():
            queue = self._memory.use_cases.queues.get(name)
            if not queue.is_paused(max(now, due_at)):
                moments.append(due_at)
            elif queue.resume_at is not None:
                moments.append(queue.resume_at)
        if not moments:
            return None
        # A due task that was not delivered waits for a slot, a token, or the index.
        return min(moments) if min(moments) > now else now + _A_MOMENT


def _awaited(app: App, task: LeasedTask, control: _Control, route: TaskRoute) -> Report | None:
    """Run an async route in a new event loop, in another thread if a loop is running here."""
    reports: list[Report | None] = []

    async def execute() -> None:
        reports.append(await app.execute_async(task, control))

    async def limited() -> Report | None:
        running = asyncio.ensure_future(execute())
        attempt = CoroutineAttempt(asyncio.get_running_loop(), running)
        with time_limits(route, lambda: attempt):
            try:
                await running
            except asyncio.CancelledError:
                if not reports:  # else the handler cancelled its own task and then returned
                    raise
        return reports[0]

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(limited())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, limited()).result()


@contextmanager
def time_limits(route: TaskRoute, attempt: Callable[[], RunningHandler]) -> Iterator[None]:
    """Interrupt what runs in the block when the limits of *route* are over, in real time.

    *attempt* is called in the thread that runs it.  Without limits no thread is started.
    """
    due = [
        (seconds, why)
        for seconds, why in (
            (route.soft_timeout, Interruption.SOFT_LIMIT),
            (route.hard_timeout, Interruption.HARD_LIMIT),
        )
        if seconds is not None
    ]
    if not due:
        yield
        return
    running, over, lock = attempt(), threading.Event(), threading.Lock()

    def watch() -> None:
        began = time.monotonic()
        for seconds, why in due:
            wait = seconds
            while not over.wait(max(0.0, began + wait - time.monotonic())):
                with lock:
                    if not over.is_set():
                        running.interrupt(why)
                if why is Interruption.SOFT_LIMIT:
                    break
                wait += _AGAIN_SECONDS  # for a handler that swallows it

    watcher = threading.Thread(target=watch, name="headrace-test-limits", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:  # from here on nothing is thrown
            over.set()
            running.ended()
