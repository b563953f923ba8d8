"""What a handler may ask of its context, and do with it."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace import App, Context, Worker
from headrace.domain.errors import InvalidRequest, LeaseLost, PayloadTooLarge
from headrace.domain.task import State
from headrace.testing import MemoryService
from headrace.wire.tasks import Task
from tests.unit.app.app_runner import call, run


def attempt(handle: Callable[[Context], Any], **settings: Any) -> Task:
    """Let *handle* do as it likes with the context, and return the task after it."""
    app = App()

    @app.handler(queue="mail", **settings)
    def load(ctx: Context) -> Any:
        return handle(ctx)

    return run(app, {"a": 1}, tags={"t": "1"})


def test_the_context_says_which_task_this_is() -> None:
    def handle(ctx: Context) -> list[Any]:
        assert ctx.fence == ctx.task.started_at.timestamp() * 1_000_000  # type: ignore[union-attr]
        assert ctx.deadline == ctx.task.lease.expires_at
        return [ctx.id, ctx.queue, ctx.attempt, ctx.payload, ctx.tags, str(ctx)]

    assert attempt(handle).result == [
        "tsk_1",
        "mail",
        1,
        {"a": 1},
        {"t": "1"},
        "Context(id='tsk_1', queue='mail', attempt=1)",
    ]


def test_a_handler_that_was_shown_a_lost_lease_reports_nothing_although_it_returns() -> None:
    """It may have left its work undone, and a late report may still count."""
    app, ahead, begun = App(), 0.0, threading.Event()

    @app.handler(queue="mail")
    def gives_up(ctx: Context) -> str:
        nonlocal ahead
        ahead = 31.0  # its lease has ended by the worker's clock, and not by the service's
        assert ctx.lost
        ahead = 0.0
        assert ctx.lost
        with pytest.raises(LeaseLost, match="the lease of task tsk_1 is over"):
            ctx.check()
        begun.set()
        return "done"

    with MemoryService() as service:
        service.client.create_queue("mail")
        service.client.enqueue("mail", id="tsk_1")
        worker = Worker(app, client=service.client, monotonic=lambda: 1000.0 + ahead)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert begun.wait(10)
        worker.stop()
        thread.join(10)
        assert service.client.get_task("tsk_1").state is State.INFLIGHT


def test_progress_has_a_limit() -> None:
    def handle(ctx: Context) -> None:
        with pytest.raises(
            PayloadTooLarge, match="progress must be at most 4096 bytes of JSON text; it is 5002"
        ):
            ctx.progress("x" * 5_000)
        with pytest.raises(InvalidRequest, match="progress cannot be written as JSON"):
            ctx.progress(object())

    assert attempt(handle).state is State.SUCCEEDED


def test_moves_and_children_end_with_the_attempt_or_not_at_all() -> None:
    app = App()
    app.queue("next")
    app.queue("other")

    @app.task(name="send", queue="out", dedupe_key="mail:{to}")
    def send(to: str) -> None: ...

    @app.handler(queue="mail")
    def load(ctx: Context, payload: str) -> str:
        child = {"n": [1]}
        ctx.spawn("other", child, delay=5)
        child["n"].append(2)
        ctx.spawn(send, {"to": "a"}, tags={"x": "y"}, dedupe_key="own")
        ctx.spawn(send, {"to": "b"}, queue="other")
        ctx.move("nowhere", 1)
        ctx.move("next", {"b": 2}, delay=timedelta(minutes=1), tags={"x": "y"})  # the last counts
        if payload == "fails":
            raise ValueError
        return "not kept"

    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        for queue in ("next", "other", "mail"):
            if queue not in {each.name for each in service.client.list_queues()}:
                service.client.create_queue(queue)
        for payload in ("fails", "moves"):
            service.client.enqueue("mail", payload, id=payload)
        service.client.pause_queue("out")
        service.run(app)
        failed, moved = (service.client.get_task(id, payload=True) for id in ("fails", "moves"))
        out = list(service.client.list_tasks("out", payload=True))
        other = list(service.client.list_tasks("other", payload=True))

    assert failed.queue == "mail"
    assert (moved.queue, moved.payload, moved.tags) == ("next", {"b": 2}, {"x": "y"})
    assert (moved.state, moved.result) == (State.ENQUEUED, None)
    assert [(task.payload, task.dedupe_key, task.tags) for task in out] == [
        (call("send", to="a"), "own", {"x": "y"})
    ]
    assert {str(task.payload) for task in other} == {
        str({"n": [1]}),
        str(call("send", to="b")),
    }


def test_what_the_service_would_refuse_is_refused_in_the_handler() -> None:
    app = App()
    prepared: Any = app.task(name="send", queue="out")(lambda to: None).prepare(to="a")
    given: list[tuple[dict[str, Any], str]] = [
        ({"target": "a b"}, "queue must be"),
        ({"delay": -1}, "delay must be a number from 0"),
        ({"payload": float("nan")}, r"payload cannot be written as JSON"),
        ({"tags": {"": "x"}}, "tags\\. must not be empty"),
    ]

    def handle(ctx: Context) -> None:
        for way in (ctx.spawn, ctx.move):
            for wrong, why in given:
                with pytest.raises(InvalidRequest, match=why):
                    way(**{"target": "next", **wrong})
            with pytest.raises(TypeError, match=r"\(function, \{argument: value\}\), no Prepared"):
                way(prepared)
        with pytest.raises(InvalidRequest, match=r"^queue is raw already, the target$"):
            ctx.spawn("raw", 5, queue="urgent")
        with pytest.raises(InvalidRequest, match=r"^unique_for needs a task function"):
            ctx.spawn("raw", 5, dedupe_key="k", unique_for=60)

    assert attempt(handle).state is State.SUCCEEDED
