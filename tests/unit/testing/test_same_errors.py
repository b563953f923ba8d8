"""The test kit and a worker give the same errors, case by case."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import App, Context, Reject, Retry, Worker
from headrace.client.codec import JsonCodec
from headrace.client.queue_fields import RetryFields
from headrace.testing import MemoryService

AGAIN: RetryFields = {"max_retries": 1, "kind": "fixed", "base_seconds": 60, "jitter": 0}


class Sealed(JsonCodec):
    """A codec that cannot read what is in the queue, and shows nothing of it."""

    private = True


@dataclass(frozen=True)
class Ended:
    """What is left of a task, as an operator sees it."""

    state: str
    dead_reason: str | None
    errors: list[tuple[str, str]]
    waits: float | None
    result: Any


Handler = Callable[[Context, Any], Any]


def not_json(ctx: Context, _: Any) -> object:
    return object()


def broken(ctx: Context, _: Any) -> None:
    raise ValueError("broken")


def rejected(ctx: Context, _: Any) -> None:
    raise Reject("no such address")


def retried(ctx: Context, _: Any) -> None:
    raise Retry("come back", delay=90)


def left(ctx: Context, _: Any) -> None:
    raise SystemExit(3)


def moved_nowhere(ctx: Context, _: Any) -> None:
    ctx.move("missing")


def spawned_nowhere(ctx: Context, _: Any) -> None:
    ctx.spawn("missing", 1)


def an_awaitable(ctx: Context, _: Any) -> Any:
    return asyncio.sleep(0)


async def broken_async(ctx: Context, _: Any) -> None:
    raise ValueError("broken")


async def cancelled_async(ctx: Context, _: Any) -> None:
    raise asyncio.CancelledError


async def too_slow(ctx: Context, _: Any) -> None:
    await asyncio.Event().wait()


HANDLERS: tuple[Handler, ...] = (
    not_json,
    broken,
    rejected,
    retried,
    left,
    moved_nowhere,
    spawned_nowhere,
    an_awaitable,
    broken_async,
    cancelled_async,
    too_slow,
)

PAYLOADS: dict[str, Any] = {
    "no call": {"to": "ada"},
    "unknown task": {"task": "gone", "args": {}},
    "wrong argument": {"task": "send", "args": {"to": [1]}},
}


def by_kit(service: MemoryService, app: App) -> None:
    service.run(app)


def by_worker(service: MemoryService, app: App) -> None:
    client = service.connect(codec=app.codec)
    with service.serving(app):
        Worker(app, client=client, concurrency=1).run(burst=True)


RUNNERS = (by_kit, by_worker)


def ended(run: Callable[[MemoryService, App], None], app: App, payload: Any) -> Ended:
    """Run *app* over a task with *payload* until nothing is ready."""
    with MemoryService(seed=1) as service:
        service.client.create_queue("mail", retry_strategy=AGAIN)
        service.client.enqueue("mail", payload, id="task", expires_at=None)
        run(service, app)
        task = service.client.get_task("task")
        wait = (task.scheduled_at - service.clock.now).total_seconds()
        return Ended(
            state=task.state,
            dead_reason=task.dead_reason,
            errors=[(error.type, error.message) for error in task.errors],
            waits=round(wait, -1) if task.state == "ENQUEUED" else None,
            result=task.result,
        )


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_ends_alike_in_both(handler: Handler) -> None:
    def app() -> App:
        made = App()
        timeout = 0.1 if handler is too_slow else None
        made.handler(queue="mail", name="letters", timeout=timeout)(handler)
        return made

    kit, worker = (ended(run, app(), {"to": "ada"}) for run in RUNNERS)

    assert kit == worker
    assert kit.errors
    assert kit.state != "INFLIGHT"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_that_does_not_fit_is_refused_alike(payload: Any) -> None:
    def app() -> App:
        made = App()

        @made.task(queue="mail", name="send")
        def send(to: str) -> None: ...

        return made

    kit, worker = (ended(run, app(), payload) for run in RUNNERS)

    assert kit == worker
    assert kit.errors


def test_private_payloads_are_withheld_alike() -> None:
    def app() -> App:
        made = App(codec=Sealed())
        made.handler(queue="mail")(broken)
        return made

    kit, worker = (ended(run, app(), {"to": "ada"}) for run in RUNNERS)

    assert kit == worker
    assert "broken" not in str(kit.errors)
