"""A service in memory with faults on request: lost answers, lapsed leases, and so on.

A test asks for faults, and the seed of the service draws them.  Each fault really happens.
"""

import json
import random
import re
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Self, TypeAlias

import httpx2 as httpx

from headrace.domain.errors import NotFound
from headrace.domain.ids import group_of, names_lease
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.ops.shared.leases import find_group, with_present_ends
from headrace.testing import MemoryService

Call: TypeAlias = Literal["enqueue", "dequeue", "report"]
Kind: TypeAlias = Literal[
    "duplicate delivery",
    "lost answer",
    "lost request",
    "lapsed lease",
    "unavailable",
]

_CALLS: Final[dict[str, Call]] = {"tasks": "enqueue", "dequeue": "dequeue", "reports": "report"}
_PATH: Final = re.compile(r"/v1/(?:queues/[^/]+/(?=tasks|reports|dequeue)|(?=dequeue))(\w+)")
_A_MOMENT: Final = timedelta(milliseconds=1)


@dataclass(eq=False)
class Fault:
    """One thing that goes wrong: the next ``times`` times, or by chance in a ``rate`` of cases.

    ``struck`` says how often it has happened.  As a context manager it ends with the block.
    """

    faults: "Faults"
    kind: Kind
    times: int | None
    rate: float | None
    of: Call | None = None
    struck: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.faults.requested = [fault for fault in self.faults.requested if fault is not self]

    def strikes(self) -> bool:
        """Whether it happens this time, and count it."""
        if self.rate is not None:
            happens = self.faults.chance.random() < self.rate
        else:
            happens = self.struck < (self.times or 0)
        self.struck += happens
        return happens


class Faults:
    """The faults of one service.  All chance is drawn from *seed*: the same seed, the same story.

    The story is the same as long as one thread at a time talks to the service.  Each fault is
    requested with ``times`` (1 unless given) or ``rate`` (0 to 1), and lasts until it has happened
    so often, or its block or `clear` ends it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.requested: list[Fault] = []
        self._lock = threading.Lock()

    def duplicate_delivery(self, *, times: int | None = None, rate: float | None = None) -> Fault:
        """Let a task be delivered again though its handler has run to the end.

        The final report comes too late: the clock jumps to the end of the lease, the reaper takes
        the task back, and the report changes nothing.  It happens at most once to a task, and not
        to one without retries left.
        """
        return self._ask("duplicate delivery", times, rate)

    def lapse_leases(self, *, times: int | None = None, rate: float | None = None) -> Fault:
        """Let the lease of a task be over before its handler has begun.

        The clock jumps to the end of the lease and the reaper takes the task back while the
        answer of the dequeue is under way; the handler runs all the same, and its report changes
        nothing.  It costs the task an attempt, as any lapsed lease.
        """
        return self._ask("lapsed lease", times, rate)

    def lose_answers(
        self, *, times: int | None = None, rate: float | None = None, of: Call | None = None
    ) -> Fault:
        """Let calls take effect while their answers get lost (`httpx2.ReadTimeout`)."""
        return self._ask("lost answer", times, rate, of)

    def lose_requests(
        self, *, times: int | None = None, rate: float | None = None, of: Call | None = None
    ) -> Fault:
        """Let calls never arrive (`httpx2.ConnectError`)."""
        return self._ask("lost request", times, rate, of)

    def unavailable(
        self, *, times: int | None = None, rate: float | None = None, of: Call | None = None
    ) -> Fault:
        """Let calls be answered 503 with ``Retry-After``; they change nothing."""
        return self._ask("unavailable", times, rate, of)

    def clear(self) -> None:
        self.requested = []

    def active(self, kind: Kind) -> bool:
        """Whether a fault of this kind is requested."""
        return any(fault.kind == kind for fault in self.requested)

    def struck(self, kind: Kind, call: Call | None = None) -> Fault | None:
        """Return the fault of this kind that happens now, if one does."""
        with self._lock:
            for fault in self.requested:
                if fault.kind == kind and fault.of in (None, call) and fault.strikes():
                    return fault
        return None

    def _ask(
        self, kind: Kind, times: int | None, rate: float | None, of: Call | None = None
    ) -> Fault:
        fault = Fault(self, kind, 1 if times is None and rate is None else times, rate, of)
        self.requested.append(fault)
        return fault


class FaultyService(MemoryService):
    """A service in memory to which *faults* happen, drawn from *seed*."""

    def __init__(self, *, seed: int = 0, **arguments: Any) -> None:
        self.faults = Faults(seed)
        self._repeated: set[str] = set()
        super().__init__(seed=seed, **arguments)

    def respond(self, request: httpx.Request) -> httpx.Response:
        faults, call = self.faults, _call(request)
        if faults.struck("unavailable", call):
            return _away()
        if faults.struck("lost request", call):
            raise httpx.ConnectError("the request was lost, as asked for", request=request)
        if call == "report" and faults.active("duplicate delivery"):
            self.lapse([task for task, lease in _finished(request) if self._repeats(task, lease)])
        response = super().respond(request)
        if call == "dequeue" and faults.active("lapsed lease"):
            self.lapse([task for task in _leased(response) if faults.struck("lapsed lease")])
        if faults.struck("lost answer", call):
            raise httpx.ReadTimeout("the answer was lost, as asked for", request=request)
        return response

    def _repeats(self, task_id: str, lease_id: str) -> bool:
        if task_id in self._repeated or not self._may_repeat(task_id, lease_id):
            return False
        if not self.faults.struck("duplicate delivery"):
            return False
        self._repeated.add(task_id)
        return True

    def lapse(self, task_ids: Sequence[str]) -> None:
        """Let the leases of these tasks lapse: the clock jumps to their end, the reaper runs.

        Leases of other tasks that end by then are renewed, as the heartbeats of whoever holds
        them would have done; but tasks that are under one lease lose it together.
        """
        tasks = with_present_ends(self.store, list(self.store.read(task_ids).values()))
        ends = [task.lease_expires_at for task in tasks if task.lease_expires_at is not None]
        if not ends:
            return
        self._extend_others({group_of(task.lease_id) for task in tasks}, max(ends))
        self.clock.forward_to(max(ends))
        for task in self.store.everything():
            over = task.lease_expires_at is not None and task.lease_expires_at <= self.clock.now
            if over and task.id not in task_ids and group_of(task.lease_id) is None:
                beat = TaskReport(task.id, task.lease_id or "", ReportStatus.INFLIGHT)
                self.use_cases.reports.report(task.queue, [beat])
        self.use_cases.reaping.run()

    def _extend_others(self, lapsing: Collection[str | None], until: datetime) -> None:
        """Extend all other group leases in time, as often as it takes *until* then."""
        while True:
            used = {group_of(task.lease_id) for task in self.store.everything()} - {*lapsing, None}
            groups = [find_group(self.store, str(group_id)) for group_id in used]
            held = [group for group in groups if group and group.holds(self.clock.now)]
            soonest = min(held, key=lambda group: group.expires_at, default=None)
            if soonest is None or soonest.expires_at > until:
                return
            self.clock.forward_to(soonest.expires_at - _A_MOMENT)
            self.use_cases.leases.extend(soonest.id)

    def _may_repeat(self, task_id: str, lease: str) -> bool:
        task = self.store.read([task_id]).get(task_id)
        if task is None or task.state is not State.INFLIGHT or not names_lease(lease, task):
            return False
        group = group_of(task.lease_id)
        if group is None:
            return self._has_retries(task)
        together = [one for one in self.store.everything() if group_of(one.lease_id) == group]
        return all(map(self._has_retries, together))

    def _has_retries(self, task: Task) -> bool:
        with suppress(NotFound):
            queue = self.use_cases.queues.cached(task.queue)
            return task.attempts <= (task.retry or queue.settings.retry_strategy).max_retries
        return False


def _call(request: httpx.Request) -> Call | None:
    path = _PATH.fullmatch(request.url.path)
    return _CALLS[path[1]] if path and request.method == "POST" else None


def _away() -> httpx.Response:
    problem = {"type": "about:blank", "title": "Unavailable", "status": 503, "code": "unavailable"}
    headers = {"Content-Type": "application/problem+json", "Retry-After": "1"}
    return httpx.Response(503, headers=headers, content=json.dumps(problem))


def _finished(request: httpx.Request) -> list[tuple[str, str]]:
    """Return task and lease of the reports that would end an attempt."""
    reports: list[dict[str, str]] = _json(request.content).get("reports", [])
    return [
        (report.get("task_id", ""), report.get("lease_id", ""))
        for report in reports
        if report.get("status") != "INFLIGHT"
    ]


def _leased(response: httpx.Response) -> list[str]:
    return [task["id"] for task in _json(response.content).get("tasks", [])]


def _json(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
