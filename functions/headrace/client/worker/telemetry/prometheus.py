"""Prometheus metrics of a worker and of queues.

Needs ``headrace[prometheus]``::

    Worker(app, observers=[PrometheusMetrics()])
    prometheus_client.start_http_server(9000, "127.0.0.1")  # to this machine alone
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.client.app.execution import TaskRoute
from headrace.client.calls.queues import get_stats
from headrace.client.client import Client
from headrace.client.worker.service import Observer
from headrace.domain.errors import HeadraceError, NotFound
from headrace.safe_logging import safe_logger
from headrace.wire.tasks import LeasedTask

_GAUGES: Final = {
    "ready": "Tasks that a worker could take now.",
    "scheduled": "Tasks that are due later.",
    "inflight": "Tasks that a worker holds.",
    "dead": "Dead tasks.",
    "oldest_ready_seconds": "How long the oldest ready task has been due; 0 if none is.",
}
_RATE: Final = "Tasks per second in the last one to two minutes, by what happened to them."

_log: Final = safe_logger("headrace.metrics")
_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class PrometheusMetrics(Observer):
    """Counts and times tasks; one may serve several workers of a process."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        by_queue = ["queue"]
        by_task = ["queue", "task"]
        self._taken = Counter("headrace_tasks_taken", "Tasks leased.", by_queue, registry=registry)
        self._ended = Counter(
            "headrace_tasks_ended",
            "Attempts that ended: SUCCEEDED, RETRY, DEAD, RELEASED, MOVED, LOST or CANCELLED.",
            [*by_task, "outcome"],
            registry=registry,
        )
        self._lost = Counter(
            "headrace_leases_lost",
            "Leases, or results, that were lost.",
            by_queue,
            registry=registry,
        )
        self._cancelled = Counter(
            "headrace_tasks_cancelled",
            "Leased tasks that were cancelled, as far as the worker has heard of it.",
            by_queue,
            registry=registry,
        )
        self._running = Gauge(
            "headrace_tasks_running", "Handlers at work.", by_task, registry=registry
        )
        self._run = Histogram(
            "headrace_task_run_seconds",
            "How long handlers ran.",
            by_task,
            buckets=_SECONDS,
            registry=registry,
        )
        self._wait = Histogram(
            "headrace_task_wait_seconds",
            "From when a task was due to its lease, by the service's clock.",
            by_queue,
            buckets=_SECONDS,
            registry=registry,
        )

    def taken(self, queue: str, count: int) -> None:
        """Count leases."""
        self._taken.labels(queue).inc(count)

    def started(self, task: LeasedTask, route: TaskRoute) -> None:
        """Note a handler at work."""
        self._running.labels(task.queue, route.name).inc()
        if task.started_at is not None:
            waited = (task.started_at - task.scheduled_at).total_seconds()
            self._wait.labels(task.queue).observe(max(0.0, waited))

    def ended(self, task: LeasedTask, route: TaskRoute, outcome: str, seconds: float) -> None:
        """Time an attempt, and count one without a report."""
        self._running.labels(task.queue, route.name).dec()
        if outcome in {"LOST", "CANCELLED"}:
            self.settled(task, route, outcome)
        self._run.labels(task.queue, route.name).observe(seconds)

    def settled(self, task: LeasedTask, route: TaskRoute, outcome: str) -> None:
        """Count an attempt."""
        self._ended.labels(task.queue, route.name, outcome).inc()

    def lost(self, task: LeasedTask, why: str) -> None:  # noqa: ARG002 (told to all)
        """Count what was lost."""
        self._lost.labels(task.queue).inc()

    def cancelled(self, task: LeasedTask) -> None:
        """Count what was cancelled."""
        self._cancelled.labels(task.queue).inc()


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The state of one queue; *rates* are events per second by their name."""

    queue: str
    ready: int
    scheduled: int
    inflight: int
    dead: int
    oldest_ready_seconds: float
    rates: Mapping[str, float]


class QueueMetrics(Collector):
    """Reads the state of the queues each time Prometheus asks."""

    def __init__(self, read: Callable[[], Iterable[QueueFigures]]) -> None:
        self._read = read

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the metrics without reading anything."""
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"headrace_queue_{name}", text, labels=["queue"])
        yield GaugeMetricFamily("headrace_queue_rate", _RATE, labels=["queue", "event"])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the queues."""
        *gauges, rate = self.describe()
        for one in self._read():
            for metric, name in zip(gauges, _GAUGES, strict=True):
                metric.add_metric([one.queue], getattr(one, name))
            for event, per_second in one.rates.items():
                rate.add_metric([one.queue, event], per_second)
        yield from (*gauges, rate)


def queues_of(client: Client, queues: Sequence[str]) -> Iterator[QueueFigures]:
    """Yield the state of *queues* as the service of *client* knows it.

    A queue that does not exist is left out.  If the service does not answer, this is logged, and
    the other queues are left out.
    """
    for queue in queues:
        try:
            stats = client.send(get_stats(queue))
        except NotFound:
            continue
        except HeadraceError as error:
            _log.warning("The queues cannot be read: %s", error.detail)
            return
        counts, rates = stats.counts, stats.rates
        yield QueueFigures(
            queue,
            counts.ready,
            counts.scheduled,
            counts.inflight,
            counts.dead,
            stats.age_of_oldest_ready_seconds or 0.0,
            {
                "enqueued": rates.enqueued_per_second,
                "dequeued": rates.dequeued_per_second,
                "succeeded": rates.succeeded_per_second,
                "failed": rates.failed_per_second,
            },
        )
