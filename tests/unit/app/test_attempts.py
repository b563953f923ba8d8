"""How an attempt ends, and what is kept of it: one test for each way."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from headrace import App, Cancelled, Context, LeaseLost, Reject, Retry, Snooze
from headrace.client.app.outcomes import Stopped
from headrace.client.codec import PLAIN, JsonCodec, Unreadable
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest
from headrace.domain.task import State
from headrace.testing import MemoryService
from tests.unit.app.app_runner import Backwards, ending, failing, run


class Boom(Exception):
    pass


# -------------------------------------------------------------------------------------- results


def test_what_the_handler_returns_is_the_result() -> None:
    seen = {"n": [1]}
    task = ending(lambda: seen)

    assert (task.state, task.result) == (State.SUCCEEDED, {"n": [1]})


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (object(), "cannot be written as JSON: Encoding objects of type object is unsupported"),
        (float("nan"), "cannot be written as JSON: Out of range float values"),
        ("x" * 40_000, "must be at most 32768 bytes of JSON text; it is 40002"),
    ],
)
def test_an_attempt_whose_result_cannot_be_kept_has_failed_and_is_not_repeated(
    result: object, why: str
) -> None:
    task = ending(lambda: result)

    assert (task.state, task.dead_reason, task.result) == (State.DEAD, "rejected", None)
    assert task.errors[0].message.startswith(f"result {why}")


@pytest.mark.parametrize("codec", [PLAIN, Backwards()], ids=["plain", "codec"])
@pytest.mark.parametrize("text", ["x" * 40_000, "é" * 20_000])
def test_of_a_text_that_is_too_large_a_task_may_keep_what_fits(text: str, codec: Any) -> None:
    result = ending(lambda: text, codec, on_large_result="truncate").result

    assert result.endswith("… [cut]")
    assert text.startswith(result.removesuffix("… [cut]"))
    assert limits.RESULT_BYTES - 8 < len(codec.encode(result)) <= limits.RESULT_BYTES


def test_of_another_large_result_a_task_may_keep_how_it_begins_or_nothing() -> None:
    large = {"rows": list(range(20_000))}

    cut = ending(lambda: large, on_large_result="truncate").result
    dropped = ending(lambda: large, on_large_result="drop")

    assert cut["headrace"] == (
        "result truncated: must be at most 32768 bytes of JSON text; it is 108900"
    )
    assert cut["beginning"].startswith('{"rows":[0,1,2')
    assert (dropped.state, dropped.result) == (State.SUCCEEDED, None)
    assert ending(object, on_large_result="drop").state is State.DEAD
    with pytest.raises(InvalidRequest, match="on_large_result must be one of truncate, drop"):
        App().task(on_large_result="cut")  # type: ignore[call-overload]


# ------------------------------------------------------------------------------------- failures


def test_an_exception_is_a_failure_with_its_traceback() -> None:
    error = failing(Boom("no luck"))

    assert error.type.endswith("test_attempts.Boom")
    assert error.message == "no luck"
    assert error.detail.startswith("Traceback (most recent call last):\n  File")
    assert error.detail.endswith("Boom: no luck\n")
    assert "/client/app/" not in error.detail
    assert failing(ValueError("x")).type == "ValueError"


def test_a_long_traceback_keeps_its_end_and_fits_what_the_service_keeps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # xdist cannot carry half of a surrogate pair.
    caplog.set_level(logging.CRITICAL, logger="headrace.task")

    def deep(n: int = 80) -> None:
        if not n:
            raise Boom("é" * 5_000 + "\ud800")
        deep(n - 1)

    error = ending(deep).errors[0]

    assert error.message.endswith("[cut]")
    assert error.detail.startswith("… [cut] ")
    texts = (error.type, error.message, error.detail)
    written = "".join(json.dumps(text, ensure_ascii=False) for text in texts)
    assert 3_000 < len(written.encode()) <= limits.ERROR_BYTES - 512 + 6


def test_an_exception_that_cannot_speak_is_reported_too() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise Boom

    assert "str() failed" in failing(Mute()).message


def test_retry_reject_and_snooze_say_what_becomes_of_the_task() -> None:
    def outcome(error: Exception) -> tuple[str, int | None, float]:
        app = App()

        def handle() -> None:
            raise error

        app.handler(queue="mail")(handle)
        with MemoryService(seed=1) as service:
            service.client.create_queue("mail")
            service.client.enqueue("mail", id="tsk_1")
            service.run(app)
            task = service.client.get_task("tsk_1")
            return task.state, task.attempts, (task.scheduled_at - service.clock.now).seconds

    assert outcome(Retry("later", delay=timedelta(minutes=10)))[:2] == ("ENQUEUED", 1)
    assert 500 < outcome(Retry("later", delay=timedelta(minutes=10)))[2] <= 600
    assert outcome(Reject("no such customer"))[:2] == ("DEAD", 1)
    state, attempts, seconds = outcome(Snooze("the carrier sleeps", delay=300))
    assert (state, attempts) == ("ENQUEUED", 0)
    assert 290 < seconds <= 300
    for wrong in (-1, limits.DELAY_SECONDS[1] + 1):
        for ask in (Retry, Snooze):
            with pytest.raises(InvalidRequest, match="delay must be a number from 0 to 31536000"):
                ask(delay=wrong)


def test_a_payload_that_cannot_be_decoded_ends_the_task_and_a_fault_of_the_codec_does_not() -> None:
    class Unlucky(JsonCodec):
        private = True
        error: Exception | None = None

        def decode(self, text: bytes) -> Any:
            if self.error is not None:
                raise self.error
            return super().decode(text)

    for error, state in ((Unreadable("no key"), State.DEAD), (KeyError(), State.ENQUEUED)):
        codec = Unlucky()
        app = App(codec=codec)
        app.handler(queue="mail")(lambda payload: payload)
        with MemoryService(seed=1) as service:
            service.client.create_queue("mail")
            service.client.enqueue("mail", "secret", id="tsk_1")
            codec.error = error
            service.run(app)
            task = service.client.get_task("tsk_1")
        assert (task.state, task.errors[0].type) == (state, type(error).__name__)
        assert task.errors[0].message.startswith("withheld")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SystemExit(1), "SystemExit"),
        (GeneratorExit(), "GeneratorExit"),
        (Stopped(), "Stopped"),
        (Cancelled("by me"), "Cancelled"),
        (LeaseLost("another"), "LeaseLost"),
    ],
)
def test_a_handler_that_raises_what_only_the_worker_may_has_failed(
    error: BaseException, kind: str
) -> None:
    assert failing(error).type.endswith(kind)


async def _cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


async def _cancel_with_the_workers_reason() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel(Stopped())
    await asyncio.Event().wait()


async def _raise_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "handle", [_cancel_own_task, _cancel_with_the_workers_reason, _raise_cancelled]
)
def test_a_handler_that_ends_itself_has_failed(handle: Callable[[], Any]) -> None:
    app = App()

    @app.handler(queue="mail")
    async def load(payload: Any) -> None:
        await handle()

    (error,) = run(app).errors
    assert error.type == "asyncio.exceptions.CancelledError"
    assert "worker" in error.message


# ---------------------------------------------------------------------------------- middlewares


def traced(app: App, seen: list[str]) -> None:
    for name in ("outer", "inner"):

        def around(ctx: Context, name: str = name) -> Iterator[None]:
            seen.append(f"{name} {ctx.id}")
            try:
                yield
            except Boom:
                seen.append(f"{name} boom")
                raise
            seen.append(f"{name} done")

        app.middleware(around)


@pytest.mark.parametrize(("kind", "end"), [("sync", "done"), ("async", "boom")])
def test_middlewares_stand_around_each_attempt_the_first_outermost(kind: str, end: str) -> None:
    app, seen = App(), list[str]()
    traced(app, seen)

    def handle(payload: Any) -> None:
        if end == "boom":
            raise Boom

    async def handle_async(payload: Any) -> None:
        handle(payload)

    app.handler(queue="mail")(handle if kind == "sync" else handle_async)
    run(app)

    assert seen == ["outer tsk_1", "inner tsk_1", f"inner {end}", f"outer {end}"]


@pytest.mark.parametrize("before", [True, False])
def test_an_exception_of_a_middleware_is_the_attempts(before: bool) -> None:  # noqa: FBT001 (a case)
    app = App()

    @app.middleware
    def around(ctx: Context) -> Iterator[None]:
        if before:
            raise Reject("closed today")
        yield
        raise Reject("closed today")

    app.handler(queue="mail")(lambda payload: 5)
    task = run(app)

    assert (task.state, task.dead_reason, task.result) == (State.DEAD, "rejected", None)
    with pytest.raises(TypeError, match="write a function of ctx that yields"):
        app.middleware(lambda ctx: iter([None]))


# ------------------------------------------------------------------------------- a private codec


def test_with_a_private_codec_nothing_travels_in_clear() -> None:
    app = App(codec=Backwards())

    @app.task(name="send", queue="mail", max_retries=0)
    def send(ctx: Context, to: str) -> str:
        if ctx.attempt and to == "secret failure":
            raise ValueError(to)
        ctx.spawn("next", {"to": to})
        return to

    with MemoryService(seed=1) as service, service.serving(app):
        service.client.create_queue("next")
        ids = [str(send.enqueue(to=to).id) for to in ("secret", "secret failure")]
        service.run(app)
        stored = [service.client.get_task(id, payload=True) for id in ids]
        stored += list(service.client.list_tasks("next", payload=True))
        assert "secret" not in repr([(task.payload_json, task.result_json) for task in stored])
        assert app.client.get_task(ids[0]).result == "secret"
    error = stored[1].errors[0]
    assert (error.type, error.detail) == ("ValueError", "")
    assert error.message.startswith("withheld")
