"""Prometheus metrics of an outbox: how many rows wait, since when, and how many were refused.

Needs ``headrace[prometheus]``::

    REGISTRY.register(OutboxMetrics(outbox.open(engine)))
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.client.settings import utc_now
from headrace.domain.errors import HeadraceError
from headrace.outbox.table import OutboxTable
from headrace.safe_logging import safe_logger

_log: Final = safe_logger("headrace.outbox")


class OutboxMetrics(Collector):
    """Counts the rows when Prometheus asks; an unavailable database has no metrics."""

    def __init__(self, table: OutboxTable, *, now: Callable[[], datetime] = utc_now) -> None:
        self._table, self._now = table, now

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the metrics without reading the database."""
        yield GaugeMetricFamily("headrace_outbox_waiting", "Rows that wait for a relay.")
        yield GaugeMetricFamily("headrace_outbox_refused", "Rows that were refused, and are kept.")
        yield GaugeMetricFamily("headrace_outbox_oldest_seconds", "How long the oldest has waited.")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Count the rows."""
        try:
            state = self._table.state()
        except HeadraceError as error:
            _log.warning("The outbox cannot be counted: %s", error.detail)
            return
        values = (state.waiting, state.refused, state.oldest_seconds(self._now()))
        for metric, value in zip(self.describe(), values, strict=True):
            metric.add_metric([], value)
            yield metric
