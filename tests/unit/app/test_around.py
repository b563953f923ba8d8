"""Attempts in an event loop, and what stands around every attempt."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import App, Context, Reject, Report
from headrace.client.app.attempts import cancel
from headrace.client.app.outcomes import HardTimeLimit, SoftTimeLimit, Stopped
from headrace.domain.errors import LeaseLost
from tests.unit.app.app_doubles import FakeControl, FakeHttp, leased, run


class AroundError(Exception):
    pass


def ending_async(handle: Callable[[], Any], held: FakeControl | None = None) -> Report | None:
    app = FakeHttp().app()

    @app.handler(queue="mail", soft_timeout=1, timeout=2)
    async def load(payload: Any) -> Any:
        return await handle()

    return asyncio.run(app.execute_async(leased(5), held or FakeControl()))


def test_an_async_handler_is_awaited() -> None:
    async def handle() -> int:
        await asyncio.sleep(0)
        return 5

    report = ending_async(handle)
    assert report is not None
    assert report.result == 5


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        (SoftTimeLimit(), "FAILED", "SoftTimeLimit"),
        (HardTimeLimit(), "FAILED", "TimeLimit"),
        (Stopped(), "RELEASED", None),
    ],
)
def test_an_async_attempt_is_cancelled_for_a_reason(
    reason: BaseException, status: str, kind: str | None
) -> None:
    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        cancel(task, reason)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(30))

    report = ending_async(handle, FakeControl(stopping=isinstance(reason, Stopped)))
    assert report is not None
    assert report.status == status
    assert (report.error.type if report.error else None) == kind
    if report.error:
        assert "in handle" in report.error.detail


def test_an_async_handler_may_tidy_up_after_a_soft_limit() -> None:
    async def handle() -> str:
        task = asyncio.current_task()
        assert task is not None
        cancel(task, SoftTimeLimit())
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError as error:
            return type(error.args[0]).__name__
        return "never"

    report = ending_async(handle)
    assert report is not None
    assert report.result == "SoftTimeLimit"


def test_an_async_attempt_with_a_lost_lease_says_nothing() -> None:
    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        cancel(task, LeaseLost("gone"))
        await asyncio.sleep(30)

    assert ending_async(handle, FakeControl(lost=True)) is None


async def _raise_cancelled() -> None:
    raise asyncio.CancelledError


async def _cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(30)


async def _cancel_with_the_workers_reason() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel(Stopped())
    await asyncio.sleep(30)


async def _cancel_every_task_of_the_loop() -> None:
    for task in asyncio.all_tasks():
        task.cancel("timeout")
    await asyncio.sleep(30)


async def _raise_stopped() -> None:
    raise Stopped


@pytest.mark.parametrize(
    ("handle", "kind"),
    [
        (_raise_cancelled, "asyncio.exceptions.CancelledError"),
        (_cancel_own_task, "asyncio.exceptions.CancelledError"),
        (_cancel_with_the_workers_reason, "asyncio.exceptions.CancelledError"),
        (_cancel_every_task_of_the_loop, "asyncio.exceptions.CancelledError"),
        (_raise_stopped, "Stopped"),
    ],
)
def test_a_handler_that_ends_itself_has_failed(handle: Callable[[], Any], kind: str) -> None:
    report = ending_async(handle)

    assert report is not None
    assert (report.status, report.error and report.error.type) == ("FAILED", kind)
    assert report.error is not None
    assert "worker" in report.error.message


def test_sys_exit_in_a_coroutine_is_a_failure() -> None:
    async def handle() -> None:
        sys.exit(3)

    report = ending_async(handle)
    assert report is not None
    assert (report.error and report.error.type) == "SystemExit"


# ------------------------------------------------------------------------------------ middlewares


def traced(app: App, seen: list[str]) -> None:
    for name in ("outer", "inner"):

        def around(ctx: Context, name: str = name) -> Iterator[None]:
            seen.append(f"{name} {ctx.id}")
            try:
                yield
            except AroundError:
                seen.append(f"{name} boom")
                raise
            seen.append(f"{name} done")

        app.middleware(around)


def test_middlewares_stand_around_each_attempt_the_first_outermost() -> None:
    app = FakeHttp().app()
    seen: list[str] = []
    traced(app, seen)
    app.handler(queue="mail")(lambda payload: seen.append("handler"))
    run(app, 1)
    assert seen == ["outer tsk_1", "inner tsk_1", "handler", "inner done", "outer done"]


def test_middlewares_see_the_exception_also_of_async_handlers() -> None:
    app = FakeHttp().app()
    seen: list[str] = []
    traced(app, seen)

    @app.handler(queue="mail")
    async def load(payload: Any) -> None:
        raise AroundError

    report = asyncio.run(app.execute_async(leased(1), FakeControl()))
    assert report is not None
    assert report.status == "FAILED"
    assert seen == ["outer tsk_1", "inner tsk_1", "inner boom", "outer boom"]


@pytest.mark.parametrize("before", [True, False])
def test_an_exception_of_a_middleware_is_the_attempts(before: bool) -> None:  # noqa: FBT001 (a case)
    app = FakeHttp().app()

    @app.middleware
    def around(ctx: Context) -> Iterator[None]:
        if before:
            raise Reject("closed today")
        yield
        raise Reject("closed today")

    app.handler(queue="mail")(lambda payload: 5)
    report = run(app, 1)
    assert (report.status, report.retryable, report.result) == ("FAILED", False, None)


def test_what_does_not_yield_is_no_middleware() -> None:
    with pytest.raises(TypeError, match="write a function of ctx that yields"):
        FakeHttp().app().middleware(lambda ctx: iter([None]))
