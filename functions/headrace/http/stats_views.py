"""How a queue is doing, as the JSON that goes out."""

from typing import Any, Final

from headrace.domain.task import Status
from headrace.history.histogram import Histogram
from headrace.history.metrics import MetricPoint, MetricSeries
from headrace.history.stats import QueueStats
from headrace.history.tally import COUNTED
from headrace.http.views import dumps, rfc3339

_MICROSECONDS: Final = 6  # decimals of a second
_RATE: Final = 4


def stats_fields(stats: QueueStats) -> dict[str, Any]:
    """Return a queue's statistics as they are shown, also inside the queue."""
    rates = {
        "enqueued_per_second": stats.rates.enqueued,
        "dequeued_per_second": stats.rates.dequeued,
        "succeeded_per_second": stats.rates.succeeded,
        "failed_per_second": stats.rates.failed,
    }
    return {
        "counts": {status.value.lower(): stats.counts[status] for status in Status},
        "age_of_oldest_ready_seconds": _seconds(stats.age_of_oldest_ready),
        "age_of_oldest_inflight_seconds": _seconds(stats.age_of_oldest_inflight),
        "rates": {name: round(rate, _RATE) for name, rate in rates.items()},
        "as_of": rfc3339(stats.as_of),
        "staleness_seconds": _seconds(stats.staleness),
    }


def stats_json(stats: QueueStats) -> str:
    """Return a queue's statistics."""
    return dumps(stats_fields(stats))


def metrics_json(metrics: MetricSeries) -> str:
    """Return a series of points."""
    return dumps(
        {
            "points": [_point(point) for point in metrics.points],
            "step_seconds": metrics.step_seconds,
            "as_of": rfc3339(metrics.as_of),
            "staleness_seconds": _seconds(metrics.staleness),
        }
    )


def _point(point: MetricPoint) -> dict[str, Any]:
    counted = point.activity
    return {
        "at": rfc3339(point.at),
        **{event.value: None if counted is None else counted.number(event) for event in COUNTED},
        **_percentiles("wait", None if counted is None else counted.wait),
        **_percentiles("run", None if counted is None else counted.run),
    }


def _percentiles(name: str, histogram: Histogram | None) -> dict[str, float | None]:
    lengths = histogram or Histogram()
    return {
        f"{name}_p50": _seconds(lengths.percentile(0.5)),
        f"{name}_p99": _seconds(lengths.percentile(0.99)),
    }


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, _MICROSECONDS)
