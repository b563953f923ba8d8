"""Spans and metrics, by the real libraries in memory."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from headrace import App, Reject
from headrace.client.codec import JsonCodec
from headrace.client.worker.telemetry.otel import trace
from headrace.client.worker.telemetry.prometheus import PrometheusMetrics
from headrace.testing import MemoryService
from tests.unit.worker.worker_harness import WorkerHarness
from tests.waiting import until


class Private(JsonCodec):
    private = True


class Traces:
    def __init__(self, codec: JsonCodec | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")
        self.app = App(codec=codec or JsonCodec())
        trace(self.app, provider=self.provider)

    def run(self) -> ReadableSpan:
        with MemoryService() as service:
            service.client.create_queue("mail")
            service.client.enqueue("mail", 1, id="task-1")
            service.run(self.app)
        return self.exporter.get_finished_spans()[-1]


def test_an_attempt_is_a_span_that_names_queue_task_and_attempt() -> None:
    traces = Traces()
    traces.app.handler(queue="mail", name="letters")(lambda payload: None)

    span = traces.run()

    assert (span.name, span.kind) == ("letters", SpanKind.CONSUMER)
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == "task-1"
    assert span.attributes["messaging.destination.name"] == "mail"
    assert span.attributes["headrace.attempt"] == 1
    assert span.status.status_code is StatusCode.UNSET


def test_spans_of_async_handlers_are_the_parents_of_what_they_do() -> None:
    traces = Traces()

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


@pytest.mark.parametrize("private", [False, True])
def test_a_failure_is_told_with_its_exception_unless_payloads_are_private(*, private: bool) -> None:
    traces = Traces(Private() if private else None)

    def handler(payload: Any) -> None:
        raise Reject("the secret address is ada@example.org")

    traces.app.handler(queue="mail")(handler)

    span = traces.run()

    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Reject"
    assert ("ada@example.org" in span.to_json()) == (not private)


def test_the_metrics_of_a_worker_add_up(harness: WorkerHarness) -> None:
    registry = CollectorRegistry()

    def handler(payload: Any) -> None:
        if payload == "fail":
            raise ValueError(payload)
        if payload != "good":
            harness.wait()

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"queue": "mail", **labels})

    harness.handle(handler, name="letters")
    harness.put("good", "good", "fail")
    cancelled, lost = harness.put("cancelled", "lost")
    harness.start(observers=[PrometheusMetrics(registry)], keepalive=1)
    harness.wait_begun(2)
    harness.client.cancel_task(cancelled)
    harness.service.lapse([lost])

    until(lambda: sample("headrace_leases_lost_total") == 1)
    until(lambda: sample("headrace_tasks_cancelled_total") == 1)
    until(lambda: sample("headrace_tasks_running", task="letters") == 0)
    assert sample("headrace_tasks_taken_total") == 5
    assert sample("headrace_tasks_ended_total", task="letters", outcome="SUCCEEDED") == 2
    assert sample("headrace_tasks_ended_total", task="letters", outcome="FAILED") == 1
    assert sample("headrace_task_run_seconds_count", task="letters") == 5
    assert sample("headrace_task_wait_seconds_count") == 5
