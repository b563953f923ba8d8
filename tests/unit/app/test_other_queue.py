"""Single calls that go to another queue than their function's."""

import asyncio
from typing import Any

import pytest

from headrace import App, Context, InvalidRequest
from headrace.testing import MemoryService, inline
from tests.unit.app.app_doubles import FakeHttp, call, run


def send(to: str) -> str:
    return f"hi {to}"


def where(sent: FakeHttp) -> list[tuple[str, str]]:
    return [(task["queue"], task["payload"]["args"]["to"]) for task in sent.tasks]


def test_a_call_may_go_to_another_queue_which_is_made_as_declared() -> None:
    sent = FakeHttp()
    app = sent.app()
    app.queue("urgent", shards=2)
    task = app.task(queue="mail", tags={"a": "1"})(send)

    task.options(queue="urgent", delay=5).enqueue("a")
    asyncio.run(task.options(queue="new").aenqueue("b"))
    task.enqueue("c")

    assert where(sent) == [("urgent", "a"), ("new", "b"), ("mail", "c")]
    assert sent.tasks[0]["delay_in_seconds"] == 5
    assert sent.tasks[0]["tags"] == {"a": "1"}
    assert sent.queues["urgent"] == {"name": "urgent", "shards": 2}
    assert sent.queues["new"] == {"name": "new"}


def test_many_calls_and_prepared_ones_may_go_to_another_queue() -> None:
    sent = FakeHttp()
    task = sent.app().task(queue="mail")(send)

    task.options(queue="bulk").enqueue_many([{"to": "a"}, {"to": "b"}])
    prepared = task.options(queue="bulk").prepare("c")

    assert where(sent) == [("bulk", "a"), ("bulk", "b")]
    assert prepared.queue == "bulk"
    assert task.prepare("c").queue == "mail"


def test_a_spawned_call_may_go_to_another_queue() -> None:
    app = FakeHttp().app()
    task = app.task(queue="mail", name="send")(send)

    @app.handler(queue="orders")
    def handle(ctx: Context) -> None:
        ctx.spawn(task, {"to": "a"}, queue="urgent")
        ctx.spawn(task, {"to": "b"})
        with pytest.raises(InvalidRequest, match=r"^queue is raw already, the target$"):
            ctx.spawn("raw", 5, queue="urgent")

    report = run(app, queue="orders")
    assert [(each.queue, each.payload) for each in report.spawn] == [
        ("urgent", call("send", to="a")),
        ("mail", call("send", to="b")),
    ]


@pytest.mark.parametrize("queue", ["no spaces", "", 5, "x" * 129])
def test_a_name_that_cannot_be_one_is_refused_at_once(queue: Any) -> None:
    task = FakeHttp().app().task(queue="mail")(send)
    with pytest.raises(InvalidRequest, match=r"^queue must be"):
        task.options(queue=queue)


def test_workers_take_tasks_from_a_queue_that_is_declared_for_it() -> None:
    app = App()
    app.queue("kept")
    app.queue("urgent", work=True, shards=3)
    task = app.task(queue="mail")(send)
    assert app.queues == ["urgent", "mail"]

    with inline(app) as line:
        found = task.options(queue="urgent").enqueue("a")
        assert line.result(found.id) == "hi a"
        assert line.service.client.get_queue("urgent").shards == 3


def test_a_key_holds_in_the_queue_that_the_call_goes_to() -> None:
    app = App()
    task = app.task(queue="mail", dedupe="{to}")(send)
    with MemoryService() as service, service.serving(app):
        outcomes = [
            chosen.enqueue("a").outcome
            for chosen in (task, task, task.options(queue="b"), task.options(queue="b"))
        ]
    assert outcomes == ["CREATED", "DUPLICATE", "CREATED", "DUPLICATE"]
