"""Traces that travel with tasks: from who enqueues to workers, through spawns and moves."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace.client.app.app import App
from headrace.client.app.context import Context
from headrace.client.sending import NewTask
from headrace.client.worker.telemetry.otel import trace
from headrace.testing import MemoryService

SERVICE, ORDER = "smartcity", "4711"


class Story:
    """An app over a service in memory, and the spans that were made."""

    def __init__(self, *, traces: bool = True) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("tests")
        self.service, self.app = MemoryService(), App()
        if traces:
            trace(self.app, provider=provider)

    def run(self) -> None:
        self.service.run(self.app, until_settled=True)

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return found

    def follows(self, name: str, parent: str) -> bool:
        """Whether the span *name* is a child of the span *parent*."""
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


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_task_enqueued_in_a_span_continues_its_trace_in_a_span_of_its_name(story: Story) -> None:
    @story.app.task(queue="mail", name="letters", tags={"service": SERVICE})
    def letters(to: str) -> None: ...

    with story.service.serving(story.app), story.tracer.start_as_current_span("request"):
        done = letters.enqueue("ada")
    story.run()

    assert story.follows("letters", "request")
    assert story.tags(done.id).keys() == {"service", "traceparent"}


def test_every_way_to_enqueue_carries_the_trace(story: Story) -> None:
    client, asynchronous = story.service.client, story.service.async_client
    client.create_queue("mail")

    @story.app.task(queue="mail")
    def letters(to: str) -> None: ...

    async def more() -> list[str | None]:
        async with asynchronous:
            return [
                (await asynchronous.enqueue("mail", 1)).id,
                (await letters.aenqueue("ada")).id,
            ]

    with story.service.serving(story.app), story.tracer.start_as_current_span("request") as span:
        ids = [client.enqueue("mail", 1).id, letters.enqueue("ada").id, *asyncio.run(more())]
        ids += [each.id for each in client.enqueue_many("mail", [NewTask(payload=1)])]
        ids += [each.id for each in letters.enqueue_many([{"to": "ada"}])]
        with client.batcher() as batcher:
            waiting = batcher.enqueue("mail", 1)
        ids.append(waiting.result().id)

    context = span.get_span_context()
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert [story.tags(each)["traceparent"] for each in ids] == [expected] * 7


def test_spawned_and_enqueued_tasks_follow_the_attempt_that_made_them(story: Story) -> None:
    @story.app.task(queue="mail", name="child")
    def child() -> None: ...

    @story.app.handler(queue="raw", name="raw")
    def raw(payload: Any) -> None: ...

    @story.app.task(queue="mail", name="other")
    def other() -> None: ...

    @story.app.task(queue="mail", name="parent")
    def parent(ctx: Context) -> None:
        ctx.spawn(child)
        ctx.spawn("raw", {"any": 1})
        other.enqueue()

    with story.service.serving(story.app), story.tracer.start_as_current_span("request"):
        parent.enqueue()
    story.run()

    assert story.follows("parent", "request")
    assert story.follows("child", "parent")
    assert story.follows("raw", "parent")
    assert story.follows("other", "parent")


@pytest.mark.parametrize("tags", [{"order": ORDER}])
def test_a_moved_task_follows_the_attempt_that_moved_it(
    story: Story, tags: dict[str, str] | None
) -> None:
    @story.app.handler(queue="second", name="second")
    def second(payload: Any) -> None: ...

    @story.app.handler(queue="first", name="first")
    async def first(ctx: Context, payload: Any) -> None:
        ctx.move("second", tags=tags)

    client = story.service.client
    client.create_queue("first")
    with story.tracer.start_as_current_span("request"):
        done = client.enqueue("first", 1, tags={"service": SERVICE})
    story.run()

    assert story.follows("first", "request")
    assert story.follows("second", "first")
    kept = story.tags(done.id)
    del kept["traceparent"]
    assert kept == (tags or {"service": SERVICE})
