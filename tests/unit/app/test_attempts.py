"""How an attempt ends, and what is reported of it.

Long, because it is a list: each way in which an attempt may end.
"""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from headrace import Cancelled, Context, Reject, Report, Retry, Snooze
from headrace.client.app import attempts
from headrace.client.app.outcomes import HardTimeLimit, SoftTimeLimit, Stopped
from headrace.client.codec import PLAIN, Unreadable, remember_codec
from headrace.client.sending import Failure, reports_body
from headrace.domain import limits
from headrace.domain.errors import InvalidRequest, LeaseLost
from tests.unit.app.app_doubles import FakeControl, FakeHttp, call, leased, run


class Boom(Exception):
    pass


class Backwards:
    """A codec that hides what it writes, from those who cannot read backwards."""

    private = True

    def encode(self, value: object) -> bytes:
        return json.dumps(PLAIN.encode(value).decode()[::-1]).encode()

    def decode(self, text: bytes) -> Any:
        return PLAIN.decode(json.loads(text)[::-1].encode())


def ending(
    handle: Callable[[], Any], held: FakeControl | None = None, **more: Any
) -> Report | None:
    """Run a raw handler that does as told, and return its report."""
    app = FakeHttp().app()
    app.handler(queue="mail", timeout=9, soft_timeout=8)(lambda _payload: handle())
    return app.execute(leased(5, **more), held or FakeControl())


def failing(error: BaseException, held: FakeControl | None = None) -> Report | None:
    def handle() -> None:
        raise error

    return ending(handle, held)


def failed(error: BaseException) -> Report:
    report = failing(error)
    assert report is not None
    assert (report.status, report.task_id, report.lease_id) == ("FAILED", "tsk_1", "lse_1")
    assert report.error is not None
    return report


# ------------------------------------------------------------------------------------ cancelled


@pytest.mark.parametrize("error", [Cancelled(), Boom("while it was undone"), Retry("later")])
def test_of_a_task_that_was_cancelled_nothing_is_reported_and_nothing_is_an_error(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.task")

    assert failing(error, FakeControl(lost=True, cancelled=True)) is None

    (record,) = caplog.records
    assert (record.levelname, "its task was cancelled" in record.message) == ("INFO", True)


def test_who_raises_cancelled_by_itself_has_failed() -> None:
    assert failed(Cancelled("by me")).status == "FAILED"


# -------------------------------------------------------------------------------------- success


def test_what_the_handler_returns_is_the_result() -> None:
    assert ending(lambda: {"n": [1]}) == Report(
        task_id="tsk_1", lease_id="lse_1", status="SUCCEEDED", result={"n": [1]}
    )


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (object(), "cannot be written as JSON: Encoding objects of type object is unsupported"),
        (float("nan"), "cannot be written as JSON: Out of range float values"),
        ("x" * 40_000, "must be at most 32768 bytes of JSON text; it is 40002"),
    ],
)
def test_an_attempt_whose_result_cannot_be_kept_has_failed_and_is_not_repeated(
    result: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    report = ending(lambda: result)
    assert report is not None
    assert report.error is not None
    assert (report.status, report.retryable, report.result) == ("FAILED", False, None)
    assert report.error.message.startswith(f"result {why}")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.records[0].name == "headrace.task"


def test_the_result_of_a_codec_that_fails_cannot_be_kept() -> None:
    class Broken(Backwards):
        def encode(self, value: object) -> bytes:
            raise KeyError(value)

    report = returning("x", "drop", Broken())
    assert (report.status, report.retryable) == ("FAILED", False)
    assert report.error is not None
    assert report.error.type == "KeyError"


def returning(result: object, choice: Any, codec: Any = PLAIN) -> Report:
    app = FakeHttp().app(codec=codec)
    app.handler(queue="mail", on_large_result=choice)(lambda _payload: result)
    report = app.execute(leased(5), FakeControl())
    assert report is not None
    return report


@pytest.mark.parametrize("codec", [PLAIN, Backwards()], ids=["plain", "codec"])
@pytest.mark.parametrize("text", ["x" * 40_000, "é" * 20_000, '"' * 40_000])
def test_of_a_text_that_is_too_large_a_task_may_keep_what_fits(text: str, codec: Any) -> None:
    report = returning(text, "truncate", codec)

    assert report.status == "SUCCEEDED"
    assert report.result.endswith("… [cut]")
    beginning = report.result.removesuffix("… [cut]")
    assert text.startswith(beginning)
    size = len(codec.encode(report.result))
    assert limits.RESULT_BYTES - 8 < size <= limits.RESULT_BYTES


def test_of_any_other_result_that_is_too_large_a_task_may_keep_how_it_begins() -> None:
    report = returning({"rows": list(range(20_000))}, "truncate")

    assert report.status == "SUCCEEDED"
    assert report.result["headrace"] == (
        "result truncated: must be at most 32768 bytes of JSON text; it is 108900"
    )
    assert report.result["beginning"].startswith('{"rows":[0,1,2')
    assert len(PLAIN.encode(report.result)) <= limits.RESULT_BYTES


def test_a_task_may_drop_a_result_that_is_too_large(caplog: pytest.LogCaptureFixture) -> None:
    report = returning("x" * 40_000, "drop")

    assert (report.status, report.result) == ("SUCCEEDED", None)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert returning("small", "drop").result == "small"


@pytest.mark.parametrize("choice", ["truncate", "drop"])
def test_a_result_that_is_no_json_fails_whatever_becomes_of_large_ones(choice: str) -> None:
    assert returning(object(), choice).status == "FAILED"


def test_what_becomes_of_a_large_result_is_said_with_a_word_there_is() -> None:
    app, message = FakeHttp().app(), "on_large_result must be one of truncate, drop"
    with pytest.raises(InvalidRequest, match=message):
        app.task(on_large_result="cut")  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match=message):
        app.handler(queue="mail", on_large_result="cut")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- failures


def test_a_result_is_kept_as_it_was_whatever_the_handler_does_to_it_later() -> None:
    seen = [1]
    report = ending(lambda: seen)
    seen.append(2)
    assert report is not None
    assert report.result == [1]


def test_an_exception_is_a_failure_to_be_retried_with_its_traceback() -> None:
    report = failed(Boom("no luck"))
    assert report.error is not None
    assert report.retryable
    assert report.error.type.endswith("test_attempts.Boom")
    assert report.error.message == "no luck"
    assert report.error.detail.startswith("Traceback (most recent call last):\n  File")
    assert report.error.detail.endswith("Boom: no luck\n")
    assert "attempts.py" not in report.error.detail.replace("test_attempts.py", "")


def test_everyday_exceptions_are_called_by_their_short_names() -> None:
    assert getattr(failed(ValueError("x")).error, "type", "") == "ValueError"


def test_a_long_traceback_keeps_its_end_and_fits_what_the_service_keeps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(
        logging.CRITICAL, logger="headrace.task"
    )  # xdist cannot carry half of a surrogate pair

    def deep(n: int) -> None:
        if not n:
            raise Boom("é" * 5_000 + "\ud800")
        deep(n - 1)

    report = ending(lambda: deep(80))
    assert report is not None
    assert report.error is not None
    assert report.error.message.endswith("[cut]")
    assert report.error.detail.startswith("… [cut] ")
    texts = (report.error.type, report.error.message, report.error.detail)
    written = "".join(json.dumps(text, ensure_ascii=False) for text in texts)
    assert 3_000 < len(written.encode()) <= limits.ERROR_BYTES - 512 + 6
    assert b"RELEASED" not in reports_body([report], PLAIN)


def test_an_exception_that_cannot_speak_is_reported_too() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise Boom

    assert "str() failed" in getattr(failed(Mute()).error, "message", "")


def test_retry_says_when() -> None:
    report = failed(Retry("later", delay=timedelta(minutes=1)))
    assert (report.delay_in_seconds, report.retryable) == (60, True)
    assert (report.error and report.error.type) == "Retry"
    assert (report.error and report.error.message) == "later"
    assert failed(Retry()).delay_in_seconds is None


def test_a_retry_delay_over_the_limit_is_refused_where_it_is_raised() -> None:
    with pytest.raises(InvalidRequest, match="delay must be a number from 0 to 31536000 seconds"):
        Retry(delay=-1)


def test_reject_ends_the_task() -> None:
    report = failed(Reject("no such customer"))
    assert not report.retryable
    assert (report.error and report.error.type) == "Reject"


def test_an_unknown_name_is_a_failure_to_be_retried() -> None:
    report = run(FakeHttp().app(), call("not.deployed"))
    assert report.retryable
    assert report.error is not None
    assert (report.error.type, report.error.message) == (
        "UnknownTask",
        (
            "no task here is named 'not.deployed': import the module that declares it where the"
            " worker's app is, or give the task that name. If another app enqueues into queue"
            " mail, give each app its own queue: apps that share one fail each other's tasks"
        ),
    )
    report = run(FakeHttp().app(), {"x": 1})
    assert report.error == Failure(
        "UnknownTask",
        'the payload is not a call: it needs {"task": "module.function", "args": {…}}, '
        'or declare @app.handler(queue="mail")',
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Boom("no luck"), "letters failed"),
        (Reject("no such customer"), "letters is rejected: no such customer"),
        (Retry("later"), "letters asks for a retry: later"),
    ],
)
def test_a_line_names_the_function_and_carries_the_id_beside_it(
    error: Exception, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="headrace.task")
    app = FakeHttp().app()

    @app.handler(queue="mail", name="letters")
    def handle() -> None:
        raise error

    run(app)

    (record,) = caplog.records
    assert record.getMessage() == line
    assert vars(record)["task_id"] == "tsk_1"
    assert "attempts.py" not in caplog.text.replace("test_attempts.py", "").partition("\n")[2]


def test_an_unreadable_payload_ends_the_task() -> None:
    app = FakeHttp().app(codec=Backwards())
    app.handler(queue="mail")(lambda payload: payload)
    unreadable = leased("x")
    remember_codec(unreadable, Unlucky(Unreadable("no key")))
    report = app.execute(unreadable, FakeControl())
    assert report is not None
    assert report.error is not None
    assert (report.error.type, report.retryable) == ("Unreadable", False)
    assert report.error.message.startswith("withheld")


def test_a_codec_that_fails_otherwise_is_a_failure_to_be_retried() -> None:
    app = FakeHttp().app()
    app.handler(queue="mail")(lambda payload: payload)
    unreadable = leased("x")
    remember_codec(unreadable, Unlucky(ZeroDivisionError()))
    assert app.route(unreadable).name == "unknown"
    report = app.execute(unreadable, FakeControl())
    assert report is not None
    assert report.error is not None
    assert (report.error.type, report.retryable) == ("ZeroDivisionError", True)


class Unlucky(Backwards):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def decode(self, text: bytes) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_program_is_a_failure_in_a_workers_thread(error: BaseException) -> None:
    reports: list[Report | None] = []
    thread = threading.Thread(target=lambda: reports.append(failing(error)))
    thread.start()
    thread.join()
    assert [report and report.status for report in reports] == ["FAILED"]


def test_a_person_can_interrupt_what_runs_in_the_main_thread() -> None:
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt())


def test_a_handler_that_forgot_async_def_fails_and_says_so() -> None:
    async def inner() -> None: ...

    report = ending(inner)
    assert report is not None
    assert report.error is not None
    assert "declare it with async def" in report.error.message


# ------------------------------------------------------------------------ what the worker throws


def test_a_hard_limit_is_a_failure_that_the_handler_cannot_swallow() -> None:
    def handle() -> None:
        with suppress(Exception):  # as handlers do
            raise HardTimeLimit

    report = ending(handle)
    assert report is not None
    assert report.error is not None
    assert (report.status, report.retryable, report.error.type) == ("FAILED", True, "TimeLimit")
    assert report.error.message == "the hard time limit of 9 seconds is over"


def test_a_soft_limit_may_be_caught() -> None:
    def handle() -> str:
        with suppress(SoftTimeLimit):
            raise SoftTimeLimit
        return "tidied"

    report = ending(handle)
    assert report is not None
    assert report.result == "tidied"
    assert failed(SoftTimeLimit()).error is not None
    assert (failed(SoftTimeLimit()).error or report).type == "SoftTimeLimit"  # type: ignore[union-attr]


def cancelled(
    handle: Callable[[], Any], *reasons: BaseException, held: FakeControl | None = None
) -> Report | None:
    """Run an async handler, cancel it for one reason after the other, and return its report."""
    app = FakeHttp().app()

    @app.handler(queue="mail", timeout=9, soft_timeout=8)
    async def handler(_payload: Any) -> Any:
        return await handle()

    async def attempt() -> Report | None:
        running = asyncio.ensure_future(app.execute_async(leased(5), held or FakeControl()))
        for reason in reasons:
            await asyncio.sleep(0)
            attempts.cancel(running, reason)
        return await running

    return asyncio.run(attempt())


async def _forgetful() -> None:
    """Raise a CancelledError without a reason, as some libraries do."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise asyncio.CancelledError from None


@pytest.mark.parametrize(
    ("limit", "kind"), [(HardTimeLimit, "TimeLimit"), (SoftTimeLimit, "SoftTimeLimit")]
)
def test_a_time_limit_stays_one_though_the_handler_forgets_why_it_was_cancelled(
    limit: type[BaseException], kind: str
) -> None:
    report = cancelled(_forgetful, limit())
    assert report is not None
    assert report.error is not None
    assert (report.status, report.error.type) == ("FAILED", kind)


def test_the_latest_reason_counts() -> None:
    async def tidy_for_ever() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await _forgetful()

    report = cancelled(tidy_for_ever, SoftTimeLimit(), HardTimeLimit())
    assert report is not None
    assert report.error is not None
    assert "hard time limit of 9" in report.error.message


def test_a_stop_that_the_handler_forgot_is_still_one() -> None:
    report = cancelled(_forgetful, Stopped(), held=FakeControl(stopping=True))
    assert report is not None
    assert report.status == "RELEASED"


def test_a_stopped_attempt_is_released() -> None:
    report = failing(Stopped(), FakeControl(stopping=True))
    assert report == Report(task_id="tsk_1", lease_id="lse_1", status="RELEASED")


def test_stopped_raised_by_a_handler_itself_is_a_failure() -> None:
    assert (failed(Stopped()).error or Failure("", "")).type == "Stopped"


# --------------------------------------------------------------------------------------- snooze


def test_a_task_that_is_put_off_is_released_with_the_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headrace.task")

    report = failing(Snooze("the carrier sleeps", delay=timedelta(minutes=5)))

    assert report == Report(
        task_id="tsk_1", lease_id="lse_1", status="RELEASED", delay_in_seconds=300
    )
    (message,) = caplog.messages
    assert message.endswith(" is put off for 300 s: the carrier sleeps")


def test_a_delay_over_the_limit_is_refused_where_it_is_raised() -> None:
    with pytest.raises(InvalidRequest, match="delay"):
        Snooze(delay=limits.DELAY_SECONDS[1] + 1)


def test_an_async_handler_puts_its_task_off_too() -> None:
    async def later() -> None:
        raise Snooze(delay=7)

    report = cancelled(later)
    assert report is not None
    assert (report.status, report.delay_in_seconds) == ("RELEASED", 7)


def test_of_a_lost_lease_there_is_nothing_to_say() -> None:
    assert failing(LeaseLost("gone"), FakeControl(lost=True)) is None
    assert failing(HardTimeLimit(), FakeControl(lost=True)) is None


def test_a_lease_lost_that_is_not_the_tasks_own_is_a_failure() -> None:
    assert failed(LeaseLost("another")).error is not None


# -------------------------------------------------------------------------------- a private codec


def test_with_a_private_codec_errors_tell_their_type_only() -> None:
    app = FakeHttp().app(codec=Backwards())

    @app.task(name="send")
    def send(to: str) -> None:
        raise ValueError(to)

    report = run(app, call("send", to="secret"), codec=Backwards())
    assert report.error is not None
    assert report.error.type == "ValueError"
    assert report.error.message.startswith("withheld")
    assert report.error.detail == ""


def test_with_a_private_codec_nothing_travels_in_clear() -> None:
    sent = FakeHttp(queues={"mail": {}})
    app = sent.app(codec=Backwards())

    @app.task(name="send", queue="mail")
    def send(ctx: Context, to: str) -> str:
        ctx.spawn("next", {"to": to})
        ctx.spawn(send, {"to": to})
        return to

    send.enqueue(to="secret")
    assert "secret" not in json.dumps(sent.tasks)
    assert "send" not in json.dumps(sent.tasks)
    report = run(app, call("send", to="secret"), codec=Backwards())
    assert report.result == "secret"
    assert b"secret" not in reports_body([report], Backwards())


# ---------------------------------------------------------------------------------------- forks


def returns() -> str:
    return "the child's"


def raises() -> None:
    raise Boom


def says() -> None:
    sys.exit("what it has to say")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("end", "code"),
    [(returns, 0), (raises, 1), (lambda: sys.exit(3), 3), (sys.exit, 0), (says, 1)],
    ids=["returns", "raises", "exits with 3", "exits", "says"],
)
def test_a_process_that_a_handler_forks_ends_where_it_comes_back(
    kind: str, end: Callable[[], Any], code: int
) -> None:
    """It would go on as a second worker."""

    def forks() -> Any:
        pid = os.fork()
        return end() if pid == 0 else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    async def forks_async() -> Any:
        return forks()

    test = os.getpid()
    try:
        if kind == "sync":
            report = ending(forks)
        else:
            app = FakeHttp().app()
            app.handler(queue="mail")(lambda _payload: forks_async())
            report = asyncio.run(app.execute_async(leased(5), FakeControl()))
    finally:
        if os.getpid() != test:
            os._exit(99)
    assert report is not None
    assert (report.status, report.result) == ("SUCCEEDED", code)
