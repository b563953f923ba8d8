"""Prometheus metrics of a worker.

Needs ``headrace[prometheus]``::

    Worker(app, observers=[PrometheusMetrics()])
    prometheus_client.start_http_server(9000, "127.0.0.1")  # to this machine alone
"""

from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from headrace.client.app.execution import TaskRoute
from headrace.client.worker.service import Observer
from headrace.wire.tasks import LeasedTask

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
