"""The queue as the benchmark calls it: in this process, over HTTP, or below the API."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

import urllib3

from benchmarks.bare import PAYLOAD
from headrace.client.client import Client
from headrace.client.sending import NewTask, Report, Status
from headrace.domain.plan import TaskSpec
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport
from headrace.ops.tasks.enqueue import EnqueueOutcome
from headrace.runtime.service import Service
from headrace.store.call_scope import metered

WORKER: Final = "bench:1"


class CallFailed(Exception):
    """A call did not do what it was asked to."""


@dataclass(frozen=True, slots=True)
class LeasedTarget:
    """A task under a lease, as its worker knows it."""

    task_id: str
    lease_id: str


@dataclass(frozen=True, slots=True)
class Units:
    """What a call cost in DynamoDB's write and read units."""

    write: float
    read: float


class Target(Protocol):
    """A queue that can be called."""

    name: str

    def enqueue(self, count: int) -> Units:
        """Enqueue *count* small tasks in one call."""

    def dequeue(self, count: int) -> tuple[list[LeasedTarget], Units]:
        """Lease up to *count* tasks in one call."""

    def heartbeat(self, held: Sequence[LeasedTarget]) -> Units:
        """Lengthen leases in one call."""

    def succeed(self, held: Sequence[LeasedTarget]) -> Units:
        """Finish tasks in one call."""


class UseCaseCalls:
    """The use cases over a store, without the API: the units are those that the store tells."""

    def __init__(self, name: str, use: Service, queue: str) -> None:
        """*queue* must exist."""
        self.name = name
        self._use = use
        self._queue = queue
        self._payload = json.dumps(PAYLOAD)

    def enqueue(self, count: int) -> Units:
        """Enqueue *count* small tasks in one call."""
        with metered() as meter:
            new = [TaskSpec(self._payload) for _ in range(count)]
            results = self._use.tasks.enqueue(self._queue, new)
        _check([result.outcome for result in results], EnqueueOutcome.CREATED)
        return Units(meter.write, meter.read)

    def dequeue(self, count: int) -> tuple[list[LeasedTarget], Units]:
        """Lease up to *count* tasks in one call."""
        with metered() as meter:
            found = self._use.deliveries.dequeue(self._queue, batch_size=count, worker=WORKER)
            held = [LeasedTarget(task.id, task.lease_id or "") for task in found.tasks]
        return held, Units(meter.write, meter.read)

    def heartbeat(self, held: Sequence[LeasedTarget]) -> Units:
        """Lengthen leases in one call."""
        return self._report(held, ReportStatus.INFLIGHT)

    def succeed(self, held: Sequence[LeasedTarget]) -> Units:
        """Finish tasks in one call."""
        return self._report(held, ReportStatus.SUCCEEDED)

    def _report(self, held: Sequence[LeasedTarget], status: ReportStatus) -> Units:
        with metered() as meter:
            reports = [TaskReport(one.task_id, one.lease_id, status) for one in held]
            results = self._use.reports.report(self._queue, reports)
        _check([result.outcome for result in results], ReportOutcome.OK)
        return Units(meter.write, meter.read)


class InProcess:
    """The SDK over a `file:` URL, as a program without a server uses it."""

    name = "in process"

    def __init__(self, url: str, queue: str) -> None:
        """*queue* must exist when it is called."""
        self._client = Client(url)
        self._queue = queue

    def __enter__(self) -> Self:
        """Return the target."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self._client.close()

    def enqueue(self, count: int) -> Units:
        """Enqueue *count* small tasks in one call."""
        with self._spent() as units:
            new = [NewTask(payload=PAYLOAD) for _ in range(count)]
            results = self._client.enqueue_many(self._queue, new)
        _check([result.outcome for result in results], "CREATED")
        return units()

    def dequeue(self, count: int) -> tuple[list[LeasedTarget], Units]:
        """Lease up to *count* tasks in one call."""
        with self._spent() as units:
            found = self._client.dequeue(self._queue, batch_size=count, worker=WORKER)
        return [LeasedTarget(task.id, task.lease.id) for task in found.tasks], units()

    def heartbeat(self, held: Sequence[LeasedTarget]) -> Units:
        """Lengthen leases in one call."""
        return self._report(held, "INFLIGHT")

    def succeed(self, held: Sequence[LeasedTarget]) -> Units:
        """Finish tasks in one call."""
        return self._report(held, "SUCCEEDED")

    def _report(self, held: Sequence[LeasedTarget], status: Status) -> Units:
        with self._spent() as units:
            reports = [
                Report(task_id=one.task_id, lease_id=one.lease_id, status=status) for one in held
            ]
            results = self._client.report(self._queue, reports)
        _check([result.outcome for result in results], "OK")
        return units()

    @contextmanager
    def _spent(self) -> Iterator[Callable[[], Units]]:
        before = self._client.consumed
        yield lambda: Units(
            self._client.consumed.write_units - before.write_units,
            self._client.consumed.read_units - before.read_units,
        )


class OverHttp:
    """The API over one kept connection."""

    name = "over HTTP"

    def __init__(self, url: str, key: str, queue: str) -> None:
        """Prepare the connection; *key* goes out as the Bearer token of each call."""
        self._pool = urllib3.connection_from_url(url, maxsize=1, retries=False, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._queue = queue

    def __enter__(self) -> Self:
        """Return the target."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._pool.close()

    def create_queue(self) -> None:
        """Create the queue with the settings every queue begins with."""
        self._call("POST", "/v1/queues", {"name": self._queue})

    def count(self) -> dict[str, int]:
        """Return how many tasks of the queue are in each state."""
        answer, _ = self._call("GET", f"/v1/queues/{self._queue}/count")
        by_state: dict[str, int] = answer["by_state"]
        return by_state

    def enqueue(self, count: int) -> Units:
        """Enqueue *count* small tasks in one call."""
        body = {"tasks": [{"payload": PAYLOAD}] * count}
        answer, units = self._call("POST", f"/v1/queues/{self._queue}/tasks", body)
        _check([result["outcome"] for result in answer["results"]], "CREATED")
        return units

    def dequeue(self, count: int) -> tuple[list[LeasedTarget], Units]:
        """Lease up to *count* tasks in one call."""
        body = {"batch_size": count, "worker": WORKER}
        answer, units = self._call("POST", f"/v1/queues/{self._queue}/dequeue", body)
        return [LeasedTarget(task["id"], task["lease"]["id"]) for task in answer["tasks"]], units

    def heartbeat(self, held: Sequence[LeasedTarget]) -> Units:
        """Lengthen leases in one call."""
        return self._report(held, "INFLIGHT")

    def succeed(self, held: Sequence[LeasedTarget]) -> Units:
        """Finish tasks in one call."""
        return self._report(held, "SUCCEEDED")

    def _report(self, held: Sequence[LeasedTarget], status: str) -> Units:
        reports = [
            {"task_id": one.task_id, "lease_id": one.lease_id, "status": status} for one in held
        ]
        answer, units = self._call(
            "POST", f"/v1/queues/{self._queue}/reports", {"reports": reports}
        )
        _check([result["outcome"] for result in answer["results"]], "OK")
        return units

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[Any, Units]:
        data = None if body is None else json.dumps(body).encode()
        response = self._pool.request(method, path, body=data, headers=self._headers)
        if response.status >= 300:
            raise CallFailed(f"{method} {path}: {response.status} {response.data[:300]!r}")
        return json.loads(response.data), _units(response.headers["X-Consumed-Units"])


def _units(header: str) -> Units:
    """Read the header ``w=75, r=0.5``."""
    parts = dict(part.strip().split("=") for part in header.split(","))
    return Units(float(parts["w"]), float(parts["r"]))


def _check(outcomes: Sequence[str], expected: str) -> None:
    other = [outcome for outcome in outcomes if outcome != expected]
    if other:
        raise CallFailed(f"{len(other)} of {len(outcomes)} entries were {other[0]}")
