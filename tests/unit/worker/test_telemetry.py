"""Spans and metrics, by the real libraries in memory."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from headrace.client.app.app import App
from headrace.client.app.outcomes import Reject
from headrace.client.codec import JsonCodec
from headrace.client.worker.telemetry.otel import trace
from headrace.client.worker.telemetry.prometheus import PrometheusMetrics
from headrace.client.worker.worker import Worker
from tests.unit.worker.worker_harness import FakeService, held, leased


class Traces:
    def __init__(self, codec: JsonCodec | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")
        self.app = App(codec=codec or JsonCodec())
        trace(self.app, provider=self.provider)

    def run(self, tags: dict[str, str] | None = None) -> ReadableSpan:
        task = msgspec.structs.replace(leased(), tags=tags or {})
        if self.app.route(task).kind == "sync":
            self.app.execute(task, held())
        else:
            asyncio.run(self.app.execute_async(task, held()))
        return self.exporter.get_finished_spans()[-1]


@pytest.fixture
def traces() -> Traces:
    return Traces()


def test_an_attempt_is_a_span_that_names_queue_task_and_attempt(traces: Traces) -> None:
    traces.app.handler(queue="mail", name="letters")(lambda payload: None)

    span = traces.run()

    assert (span.name, span.kind) == ("letters", SpanKind.CONSUMER)
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == "task-1"
    assert span.attributes["messaging.destination.name"] == "mail"
    assert span.attributes["headrace.attempt"] == 1
    assert span.status.status_code is StatusCode.UNSET


def test_spans_of_async_handlers_are_the_parents_of_what_they_do(traces: Traces) -> None:
    async def handler(payload: Any) -> None:
        await asyncio.sleep(0)
        with traces.tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)

    traces.app.handler(queue="mail")(handler)

    outer = traces.run()

    inner = traces.exporter.get_finished_spans()[0]
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


def test_a_failure_is_told_with_its_exception(traces: Traces) -> None:
    def handler(payload: Any) -> None:
        raise Reject("the secret address is ada@example.org")

    traces.app.handler(queue="mail")(handler)

    span = traces.run()

    assert span.status.status_code is StatusCode.ERROR
    assert "ada@example.org" in str(span.events[0].attributes)


def test_of_private_payloads_only_the_type_of_the_exception_is_told() -> None:
    class Private(JsonCodec):
        private = True

    traces = Traces(Private())

    def handler(payload: Any) -> None:
        raise Reject("the secret address is ada@example.org")

    traces.app.handler(queue="mail")(handler)

    span = traces.run()

    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Reject"
    assert "ada@example.org" not in span.to_json()


def test_the_metrics_of_a_worker_add_up() -> None:
    registry = CollectorRegistry()
    service = FakeService(time.monotonic)
    app = App()

    def handler(payload: Any) -> None:
        if payload == "fail":
            raise ValueError(payload)

    app.handler(queue="mail", name="letters")(handler)
    service.put("good", "good", "fail")

    Worker(app, queues=["mail"], service=service, observers=[PrometheusMetrics(registry)]).run(
        burst=True
    )

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"queue": "mail", **labels})

    assert sample("headrace_tasks_taken_total") == 3
    assert sample("headrace_tasks_ended_total", task="letters", outcome="SUCCEEDED") == 2
    assert sample("headrace_tasks_ended_total", task="letters", outcome="FAILED") == 1
    assert sample("headrace_tasks_running", task="letters") == 0
    assert sample("headrace_task_run_seconds_count", task="letters") == 3
    assert sample("headrace_task_wait_seconds_count") == 3


def test_what_was_lost_is_counted() -> None:
    registry = CollectorRegistry()

    PrometheusMetrics(registry).lost(leased(), "gone")

    assert registry.get_sample_value("headrace_leases_lost_total", {"queue": "mail"}) == 1


def test_what_was_cancelled_is_counted_apart() -> None:
    registry = CollectorRegistry()

    PrometheusMetrics(registry).cancelled(leased())

    assert registry.get_sample_value("headrace_tasks_cancelled_total", {"queue": "mail"}) == 1
    assert registry.get_sample_value("headrace_leases_lost_total", {"queue": "mail"}) is None
