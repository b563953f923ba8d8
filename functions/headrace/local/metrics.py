"""The metrics of all queues at ``/metrics``, in the text format of Prometheus.

The request needs a key.  It sees the queues of that key.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from headrace.client.worker.telemetry.prometheus import QueueFigures, QueueMetrics
from headrace.domain.access import Permission
from headrace.domain.errors import HeadraceError, Unauthenticated, Unavailable
from headrace.domain.limits import LIST_PAGE
from headrace.domain.task import Status
from headrace.http.events import GatewayAnswer
from headrace.http.request import bearer
from headrace.local.requests import LocalRequest, RequestRefused
from headrace.runtime.function import ALWAYS
from headrace.runtime.service import Service
from headrace.runtime.wiring import current_service
from headrace.store.call_scope import acting

PATH: Final = "/metrics"


def metrics(request: LocalRequest) -> GatewayAnswer:
    """Answer a request for the metrics.  Raises RequestRefused without a valid key."""
    if request.method != "GET":
        raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} takes GET.")
    use = current_service()
    registry = CollectorRegistry()
    try:
        key = use.keys.verify(bearer(request.headers.get("authorization")))
        with acting(key):
            key.require(Permission.READ)
            registry.register(QueueMetrics(lambda: _figures(use)))
            text = generate_latest(registry)
    except Unauthenticated as error:
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, error.detail) from None
    except Unavailable as error:
        raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, error.detail) from None
    except HeadraceError as error:
        raise RequestRefused(HTTPStatus.FORBIDDEN, error.detail) from None
    headers = [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4), *ALWAYS.items()]
    return GatewayAnswer(HTTPStatus.OK, headers, text)


def _figures(use: Service) -> Iterator[QueueFigures]:
    cursor = None
    while True:
        page = use.queues.list(limit=LIST_PAGE, cursor=cursor)
        for name, glance in use.stats.overview(page.shown).queues.items():
            counts, rates = glance.counts, glance.rates
            yield QueueFigures(
                name,
                counts[Status.READY],
                counts[Status.SCHEDULED],
                counts[Status.INFLIGHT],
                counts[Status.DEAD],
                glance.age_of_oldest_ready or 0.0,
                {
                    "enqueued": rates.enqueued,
                    "dequeued": rates.dequeued,
                    "succeeded": rates.succeeded,
                    "failed": rates.failed,
                },
            )
        cursor = page.cursor
        if cursor is None:
            return
