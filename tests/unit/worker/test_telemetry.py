"""Spans, traces that travel with tasks, and metrics, by the real libraries in memory."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from headrace import App, Context, NewTask, Reject, Retry
from headrace.client.codec import JsonCodec
from headrace.client.worker.telemetry.otel import trace
from headrace.client.worker.telemetry.prometheus import PrometheusMetrics
from headrace.testing import MemoryService
from tests.unit.worker.worker_harness import WorkerHarness
from tests.waiting import until


class Private(JsonCodec):
    private = True


class Traces:
    """An app over a service in memory, and the spans that were made."""

    def __init__(self, codec: JsonCodec | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("tests")
        self.service, self.app = MemoryService(), App(codec=codec or JsonCodec())
        trace(self.app, provider=provider)

    def run(self) -> None:
        self.service.run(self.app, until_settled=True)

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found

    def is_child(self, name: str, parent: str) -> bool:
        child, of = self.span(name), self.span(parent)
        assert child.context is not None
        assert of.context is not None
        return (
            child.context.trace_id == of.context.trace_id
            and child.parent is not None
            and child.parent.span_id == of.context.span_id
        )

    def tags(self, task_id: str | None) -> dict[str, str]:
        return self.service.client.get_task(str(task_id)).tags


def test_an_attempt_is_a_span_that_names_queue_task_and_attempt() -> None:
    traces = Traces()
    traces.app.handler(queue="mail", name="letters")(lambda payload: None)
    traces.service.client.create_queue("mail")
    traces.service.client.enqueue("mail", 1, id="task-1")

    traces.run()

    span = traces.span("letters")
    assert span.kind is SpanKind.CONSUMER
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == "task-1"
    assert span.attributes["messaging.destination.name"] == "mail"
    assert span.attributes["headrace.attempt"] == 1
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("private", [False, True])
def test_a_failed_attempt_shows_its_exception_unless_payloads_are_private(*, private: bool) -> None:
    traces = Traces(Private() if private else None)

    @traces.app.handler(queue="mail", name="letters")
    def handler(payload: Any) -> None:
        raise Reject("the secret address is ada@example.org")

    traces.service.client.create_queue("mail")
    traces.service.client.enqueue("mail", 1)
    traces.run()

    span = traces.span("letters")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "Reject"
    assert ("ada@example.org" in span.to_json()) == (not private)


def test_every_way_to_enqueue_carries_the_trace() -> None:
    traces = Traces()
    client, asynchronous = traces.service.client, traces.service.async_client
    client.create_queue("mail")

    @traces.app.task(queue="mail", tags={"service": "smartcity"})
    def letters(to: str) -> None: ...

    async def more() -> list[str | None]:
        async with asynchronous:
            return [
                (await asynchronous.enqueue("mail", 1)).id,
                (await letters.aenqueue("ada")).id,
            ]

    with traces.service.serving(traces.app), traces.tracer.start_as_current_span("web") as span:
        ids = [letters.enqueue("ada").id, client.enqueue("mail", 1).id, *asyncio.run(more())]
        ids += [each.id for each in client.enqueue_many("mail", [NewTask(payload=1)])]
        ids += [each.id for each in letters.enqueue_many([{"to": "ada"}])]

    context = span.get_span_context()
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert [traces.tags(each)["traceparent"] for each in ids] == [expected] * 6
    assert traces.tags(ids[0]).keys() == {"service", "traceparent"}


def test_spawned_moved_and_enqueued_tasks_follow_the_attempt_that_made_them() -> None:
    traces = Traces()
    app = traces.app

    @app.task(queue="mail", name="child")
    def child() -> None: ...

    @app.task(queue="mail", name="other")
    def other() -> None: ...

    @app.handler(queue="raw", name="raw")
    def raw(payload: Any) -> None: ...

    @app.task(queue="mail", name="parent")
    def parent(ctx: Context) -> None:
        ctx.spawn(child)
        other.enqueue()
        ctx.move("raw", {"any": 1}, tags={"order": "4711"})

    with traces.service.serving(app), traces.tracer.start_as_current_span("web"):
        moved = parent.enqueue()
    traces.run()

    assert traces.is_child("parent", "web")
    assert traces.is_child("child", "parent")
    assert traces.is_child("other", "parent")
    assert traces.is_child("raw", "parent")
    assert traces.tags(moved.id).keys() == {"order", "traceparent"}


def test_the_metrics_of_a_worker_add_up(harness: WorkerHarness) -> None:
    registry = CollectorRegistry()

    def handler(payload: Any) -> None:
        if payload == "fail":
            raise ValueError(payload)
        if payload == "reject":
            raise Reject(payload)
        if payload != "good":
            harness.wait()

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"queue": "mail", **labels})

    harness.handle(handler, name="letters")
    harness.put("good", "good", "fail", "reject")
    cancelled, lost = harness.put("cancelled", "lost")
    harness.start(observers=[PrometheusMetrics(registry)], lease_seconds=1)
    harness.wait_begun(2)
    harness.client.cancel_task(cancelled)
    harness.service.lapse([lost])

    until(lambda: sample("headrace_leases_lost_total") == 1)
    until(lambda: sample("headrace_tasks_cancelled_total") == 1)
    until(lambda: sample("headrace_tasks_running", task="letters") == 0)
    until(lambda: sample("headrace_tasks_ended_total", task="letters", outcome="DEAD"))
    assert sample("headrace_tasks_taken_total") == 6
    assert sample("headrace_tasks_ended_total", task="letters", outcome="SUCCEEDED") == 2
    assert sample("headrace_tasks_ended_total", task="letters", outcome="RETRY") == 1
    assert sample("headrace_tasks_ended_total", task="letters", outcome="DEAD") == 1
    assert sample("headrace_task_run_seconds_count", task="letters") == 6
    assert sample("headrace_task_wait_seconds_count") == 6


def test_the_guides_middleware_reports_to_sentry_what_handlers_raise(
    harness: WorkerHarness,
) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "metrics.md").read_text()
    (code,) = re.findall(r"```python\n(from [^`]*\nimport sentry_sdk\n.*?)```", guide, re.DOTALL)
    events: list[Any] = []

    class Kept(Transport):
        def capture_envelope(self, envelope: Envelope) -> None:
            events.append(envelope.get_event())

    def handler(payload: Any) -> None:
        raise Retry("later") if payload == "retry" else KeyError(payload)

    async def handler_async(payload: Any) -> None:
        handler(payload)

    harness.client.create_queue("news")
    harness.handle(handler, name="letters")
    harness.handle(handler_async, queue="news", name="papers")
    exec(code, {"app": harness.app, "Context": Context})  # noqa: S102 (that is what is tested)
    sentry_sdk.init("https://key@sentry.test/1", transport=Kept, default_integrations=False)
    try:
        (first, _), (second,) = harness.put("a", "retry"), harness.put("b", queue="news")
        harness.burst(queues=["mail", "news"])
        sentry_sdk.flush()
    finally:
        sentry_sdk.get_global_scope().set_client(None)

    reported = {event["contexts"]["task"]["id"]: event for event in events}
    assert reported.keys() == {first, second}
    assert [reported[task]["transaction"] for task in (first, second)] == ["letters", "papers"]
    assert reported[second]["exception"]["values"][0]["type"] == "KeyError"
