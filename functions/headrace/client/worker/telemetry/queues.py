"""Prometheus metrics of queues: their tasks by state, the oldest ready task, and rates.

`headrace run` serves them at ``/metrics``, and a worker with ``--prometheus`` those of its queues.
They need ``headrace[prometheus]``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.client.calls.queues import get_stats
from headrace.client.client import Client
from headrace.domain.errors import HeadraceError, NotFound
from headrace.safe_logging import safe_logger

_GAUGES: Final = {
    "ready": "Tasks that a worker could take now.",
    "scheduled": "Tasks that are due later.",
    "inflight": "Tasks that a worker holds.",
    "dead": "Dead tasks.",
    "oldest_ready_seconds": "How long the oldest ready task has been due; 0 if none is.",
}
_RATE: Final = "Tasks per second in the last one to two minutes, by what happened to them."

_log: Final = safe_logger("headrace.metrics")


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
