"""Hooks and middlewares: the program's own code around workers, processes and tasks."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace import App, Context, Reject
from tests.unit.app.app_runner import run


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_hooks_are_called_in_their_order_around_worker_process_and_task(kind: str) -> None:
    app, seen = App(), list[str]()
    app.on_worker_start(lambda: seen.append("worker starts"))
    app.on_process_start(lambda: seen.append("process starts"))
    app.on_task_start(lambda ctx: seen.append(f"{ctx.id} starts"))
    app.on_task_end(lambda ctx, outcome: seen.append(f"{ctx.id} {outcome}"))
    app.on_worker_stop(lambda: seen.append("worker stops"))

    @app.middleware
    def around(ctx: Context) -> Iterator[None]:
        seen.append("before")
        yield
        seen.append("after")

    def handle(payload: Any) -> None:
        seen.append("runs")

    async def handle_async(payload: Any) -> None:
        handle(payload)

    app.handler(queue="mail")(handle if kind == "sync" else handle_async)
    run(app)

    assert seen == [
        *("worker starts", "process starts", "tsk_1 starts", "before", "runs", "after"),
        *("tsk_1 SUCCEEDED", "worker stops"),
    ]


def test_an_async_middleware_stands_around_async_handlers_among_the_sync_ones() -> None:
    app, seen = App(), list[str]()

    @app.middleware
    def outer(ctx: Context) -> Iterator[None]:
        seen.append("outer")
        yield

    @app.middleware
    async def inner(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"inner {error}")
            raise Reject("no good") from error

    @app.handler(queue="mail")
    async def handle(payload: Any) -> None:
        raise ValueError("broken")

    @app.handler(queue="news")
    def handle_sync(payload: Any) -> None:
        seen.append("sync")

    assert run(app).dead_reason == "rejected"
    run(app, queue="news")

    assert seen == ["outer", "inner broken", "outer", "sync"]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_error_of_a_start_hook_fails_the_attempt_and_one_of_an_end_hook_is_logged(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    app = App()

    @app.on_task_start
    def refuse(ctx: Context) -> None:
        raise ConnectionError("no database")

    @app.on_task_end
    def fail(ctx: Context, outcome: str) -> None:
        raise error(f"after {outcome}")

    app.handler(queue="mail")(lambda payload: 5)

    assert run(app, retry_strategy={"max_retries": 0}).errors[-1].message == "no database"
    assert f"{error.__name__}: after FAILED" in caplog.text


def test_a_hook_that_cannot_be_called_is_refused_where_it_is_declared() -> None:
    async def hook() -> None: ...
    def around() -> Iterator[None]:
        yield

    with pytest.raises(TypeError, match="on_worker_start takes a plain function"):
        App().on_worker_start(hook)
    with pytest.raises(TypeError, match=r"a middleware is called as around\(ctx\): too many"):
        App().middleware(around)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"on_task_end is called as .*\(ctx, outcome\): too many"):
        App().on_task_end(lambda ctx: None)  # type: ignore[type-var]
