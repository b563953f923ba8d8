"""Harness of the worker's tests: a service in memory, a clock moved by hand, some tasks."""

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headrace.client.app.app import App
from headrace.client.app.execution import TaskRoute
from headrace.client.calls.work import ExtendedLease
from headrace.client.codec import PLAIN, Codec, remember_codec
from headrace.client.sending import Report, reports_body
from headrace.client.worker.inflight import InflightTask, Interruption, RunningHandler
from headrace.client.worker.service import ServiceClock, WorkerService
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import HeadraceError, LeaseLost, Unavailable
from headrace.domain.task import State, Status
from headrace.wire.tasks import Dequeued, Lease, LeasedTask, Reported

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
KEEPALIVE = 30.0
SOON = 10.0  # seconds until a test gives up on what should happen at once


class Monotonic:
    """A monotonic clock that moves when told."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += seconds


def leased(
    number: int = 1, *, queue: str = "mail", payload: Any = None, at: datetime = START
) -> LeasedTask:
    """Return a task leased at *at*."""
    lease = Lease(id=f"lease-{number}", expires_at=at + timedelta(seconds=KEEPALIVE))
    task = LeasedTask(
        id=f"task-{number}",
        queue=queue,
        state=State.INFLIGHT,
        status=Status.INFLIGHT,
        tags={},
        dedupe_key=None,
        created_at=at,
        scheduled_at=at,
        expires_at=None,
        attempts=1,
        max_retries=5,
        keepalive_timeout_in_seconds=None,
        lease_expires_at=lease.expires_at,
        worker="ada:1",
        started_at=at,
        finished_at=None,
        dead_reason=None,
        errors=[],
        trail=[],
        retained_until=None,
        schedule=None,
        payload_json=msgspec.Raw(PLAIN.encode(payload)),
        lease=lease,
    )
    remember_codec(task, PLAIN)
    return task


def held(
    number: int = 1, *, now: float = 1000.0, route: TaskRoute | None = None, queue: str = "mail"
) -> InflightTask:
    """Return a task that has just been taken."""
    return InflightTask(
        leased(number, queue=queue),
        route or TaskRoute("sync", "mail.send"),
        now=now,
        lease_ends=now + KEEPALIVE,
    )


class FakeService(WorkerService):
    """Queues in memory.  ``fault`` is raised by every call; ``lose_answers`` after its effect."""

    codec: Codec = PLAIN

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.waiting: dict[str, deque[LeasedTask]] = defaultdict(deque)
        self.leases: dict[str, str] = {}  # lease: task; under a group, task: group
        self.groups: dict[str, float] = {}  # those that are open, with their length
        self.group_calls: list[str] = []
        self.done: dict[str, Report] = {}  # by task
        self.calls: list[tuple[str, list[Report]]] = []
        self.polled: list[tuple[str, int]] = []
        self.keys: list[tuple[str, int]] = []  # of each question, with its attempt
        self.waits: list[float] = []  # likewise
        self.batches: dict[str, list[LeasedTask]] = {}  # what was leased under a key, till heard
        self.lose_dequeues = 0  # answers that get lost
        self.signs: list[dict[str, Any]] = []
        self.fault: HeadraceError | None = None
        self.lose_answers = False
        self.command: str | None = None
        self.poll_after = 0.01
        self.within = 0.0
        self.refusals: dict[str, str] = {}  # outcome by status
        self.cancelled: set[str] = set()
        self.keeps_dead = True
        self.settled = threading.Condition()
        self._number = 0

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic() - 1000.0)

    def put(self, *payloads: Any, queue: str = "mail") -> list[str]:
        """Enqueue tasks and return their ids."""
        ids = []
        for payload in payloads:
            self._number += 1
            task = leased(self._number, queue=queue, payload=payload)
            self.waiting[queue].append(task)
            ids.append(task.id)
        return ids

    def lease(self, *tasks: InflightTask) -> None:
        """Know the leases of what a test made by itself."""
        for each in tasks:
            self.leases[each.task.lease.id] = each.task.id

    def cancel(self, *task_ids: str) -> None:
        """End tasks as an operator does."""
        self.cancelled.update(task_ids)

    def prepare(self, app: App, settings: WorkerSettings) -> None: ...

    def check_queue(self, queue: str) -> None:
        self._may_fail()

    def open_lease(self, *, keepalive: float) -> Lease:
        self._may_fail()
        self._number += 1
        group = f"group-{self._number}"
        self.groups[group] = keepalive
        self.group_calls.append(f"open {group}")
        return Lease(id=group, expires_at=self.now + timedelta(seconds=keepalive))

    def extend_lease(self, id: str, *, within: float) -> ExtendedLease:
        self.within = within
        self.group_calls.append(f"extend {id}")
        self._may_fail()
        if id not in self.groups:
            raise LeaseLost("the lease has lapsed")
        expires_at = self.now + timedelta(seconds=self.groups[id])
        return ExtendedLease(id=id, expires_at=expires_at, cancelled=sorted(self.cancelled))

    def close_lease(self, id: str) -> None:
        self._may_fail()
        self.group_calls.append(f"close {id}")
        if self.groups.pop(id, None) is None:
            raise LeaseLost("the lease has lapsed")

    def dequeue(
        self,
        queues: Sequence[str],
        *,
        batch_size: int,
        wait_seconds: float = 0.0,
        worker: str,
        keepalive: float | None,
        lease_id: str | None = None,
        key: str,
        attempt: int,
    ) -> Dequeued:
        self._may_fail()
        if lease_id is not None and lease_id not in self.groups:
            raise LeaseLost("the lease has lapsed")
        self.polled.append((queues[0] if len(queues) == 1 else ",".join(queues), batch_size))
        self.keys.append((key, attempt))
        self.waits.append(wait_seconds)
        if key not in self.batches:
            self.batches[key] = self._lease_some(queues, batch_size, lease_id)
        if self.lose_dequeues:
            self.lose_dequeues -= 1
            raise Unavailable("the answer was lost")
        tasks = self.batches.pop(key)
        return Dequeued(tasks=tasks, now=self.now, poll_after_seconds=self.poll_after)

    def _lease_some(
        self, queues: Sequence[str], most: int, lease_id: str | None
    ) -> list[LeasedTask]:
        tasks: list[LeasedTask] = []
        waiting = [self.waiting[queue] for queue in queues]
        while len(tasks) < most and any(waiting):
            task = next(filter(None, waiting)).popleft()
            lasts = KEEPALIVE if lease_id is None else self.groups[lease_id]
            lease = Lease(
                id=lease_id or task.lease.id, expires_at=self.now + timedelta(seconds=lasts)
            )
            self.leases[task.id if lease_id else lease.id] = lease_id or task.id
            tasks.append(msgspec.structs.replace(task, lease=lease))
        return tasks

    def report(self, queue: str, reports: Sequence[Report], *, within: float) -> list[Reported]:
        self.within = within
        reports_body(reports, self.codec)  # may refuse them
        self.calls.append((queue, list(reports)))
        self._may_fail()
        results = [self._settle(report) for report in reports]
        with self.settled:
            self.settled.notify_all()
        if self.lose_answers:
            raise Unavailable("the answer was lost")
        return results

    def sign(self, name: str, **sign: Any) -> str | None:
        self._may_fail()
        self.signs.append({"name": name, **sign})
        return self.command

    def wait_for(self, *ids: str) -> None:
        """Wait until the service has heard how the tasks ended."""
        with self.settled:
            assert self.settled.wait_for(lambda: set(ids) <= self.done.keys(), SOON), self.done

    def statuses(self) -> dict[str, str]:
        """What was reported last of each task."""
        return {task_id: report.status for task_id, report in self.done.items()}

    def _settle(self, report: Report) -> Reported:
        lease = None
        gone = report.task_id in self.cancelled
        if gone:
            outcome = "NOT_INFLIGHT" if self.keeps_dead else "NOT_FOUND"
        elif report.status in self.refusals:
            outcome = self.refusals[report.status]
        elif self._under_a_group(report) or self.leases.get(report.lease_id) == report.task_id:
            outcome = "OK"
            if report.status == "INFLIGHT":
                lease = Lease(
                    id=report.lease_id, expires_at=self.now + timedelta(seconds=KEEPALIVE)
                )
            else:
                self.done[report.task_id] = report
        else:
            outcome = "STALE_LEASE"
        return Reported(
            task_id=report.task_id,
            outcome=outcome,  # type: ignore[arg-type]
            state=State.DEAD if outcome == "NOT_INFLIGHT" else None,
            scheduled_at=None,
            lease=lease,
            spawned=[],
            detail=None,
            dead_reason="cancelled" if outcome == "NOT_INFLIGHT" else None,
            now=self.now,
        )

    def _under_a_group(self, report: Report) -> bool:
        lease = report.lease_id
        return lease in self.groups and self.leases.get(report.task_id) == lease

    def _may_fail(self) -> None:
        if self.fault is not None:
            raise self.fault


class Noted(RunningHandler):
    """An attempt that notes how it was interrupted."""

    def __init__(self) -> None:
        self.interruptions: list[Interruption] = []
        self.killed = 0

    def interrupt(self, why: Interruption) -> None:
        self.interruptions.append(why)

    def kill(self) -> None:
        self.killed += 1


class Losses:
    """Notes what was lost, and why; marks it as a worker would."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def __call__(self, lost: InflightTask, why: str) -> None:
        lost.interrupt(Interruption.LEASE_LOST)
        self.all.append((lost.task.id, why))


def heard(monotonic: Monotonic) -> ServiceClock:
    """Return a clock that knows the service's time exactly."""
    clock = ServiceClock(monotonic)
    now = START + timedelta(seconds=monotonic() - 1000.0)
    clock.heard(now, sent_at=monotonic())
    return clock


def dice() -> random.Random:
    """Return chance that repeats itself."""
    return random.Random(7)
