"""Which exceptions are tried again, by class: `retry_on` and `reject_on`."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import permutations
from typing import Any, cast

import pytest

from headrace import (
    App,
    Context,
    HardTimeLimit,
    InvalidRequest,
    Reject,
    Report,
    Retry,
    Snooze,
    SoftTimeLimit,
    backoff,
)
from headrace.client.app.failing import ErrorRules
from headrace.testing import MemoryService
from tests.unit.app.app_doubles import FakeControl, FakeHttp, leased

Ending = tuple[bool, float | None]
RETRIED: Ending = (True, None)
REJECTED: Ending = (False, None)


class Down(OSError):
    pass


class WayDown(Down):
    pass


def raiser(error: BaseException) -> Callable[[], Any]:
    def handle() -> None:
        raise error

    return handle


def ending_of(report: Report | None) -> Ending:
    assert report is not None
    assert report.status == "FAILED"
    return report.retryable, report.delay_in_seconds


def ending(error: BaseException, attempt: int = 1, **options: Any) -> Ending:
    """Have a task fail with *error*, and return whether and when it is tried again."""
    app = FakeHttp().app()
    app.task(name="fail", **options)(raiser(error))
    payload = {"task": "fail", "args": {}}
    return ending_of(app.execute(leased(payload, attempts=attempt), FakeControl()))


@pytest.mark.parametrize("one", [OSError, (OSError,), [OSError], {OSError}, {OSError: None}])
def test_only_what_is_named_to_be_retried_is(one: Any) -> None:
    assert ending(OSError(), retry_on=one) == RETRIED
    assert ending(WayDown(), retry_on=one) == RETRIED
    assert ending(ValueError(), retry_on=one) == REJECTED


def test_with_nothing_named_everything_is_retried() -> None:
    assert ending(ValueError()) == RETRIED


def test_what_is_named_to_be_rejected_is_and_all_else_is_retried() -> None:
    options: Any = {"reject_on": (ValueError, KeyError)}
    assert ending(ValueError(), **options) == REJECTED
    assert ending(UnicodeError(), **options) == REJECTED
    assert ending(OSError(), **options) == RETRIED


def test_no_class_to_be_retried_rejects_everything() -> None:
    assert ending(ValueError(), retry_on=()) == REJECTED


def test_the_nearest_class_counts_in_whatever_order_they_are_named() -> None:
    waits = {OSError: 1, Down: 2, Exception: 3}
    for order in permutations(waits):
        rules = ErrorRules.of({kind: waits[kind] for kind in order}, WayDown)
        found = [
            (after.retryable, after.delay_in_seconds)
            for error in (OSError(), Down(), ValueError(), WayDown())
            for after in [rules.after(error, 1, 0.5)]
        ]
        assert found == [(True, 1), (True, 2), (True, 3), REJECTED]

    assert ending(Down(), retry_on=OSError, reject_on=Down) == REJECTED
    assert ending(Down(), retry_on=Down, reject_on=OSError) == RETRIED
    assert ending(ConnectionError(), retry_on=Down, reject_on=OSError) == REJECTED


def test_a_class_may_have_a_wait_of_its_own() -> None:
    waits = {Down: 60, OSError: timedelta(minutes=2), ValueError: None, KeyError: 0}
    assert ending(Down(), retry_on=waits) == (True, 60)
    assert ending(OSError(), retry_on=waits) == (True, 120)
    assert ending(ValueError(), retry_on=waits) == RETRIED
    assert ending(KeyError(), retry_on=waits) == (True, 0)
    assert ending(TypeError(), retry_on=waits) == REJECTED


def test_a_class_may_have_a_backoff_of_its_own_which_ends_when_its_retries_are_used_up() -> None:
    waits = {Down: backoff.exponential(2, retries=3, jitter=0)}
    found = [ending(Down(), attempt, retry_on=waits) for attempt in range(1, 5)]
    assert found == [(True, 2), (True, 4), (True, 8), REJECTED]


def test_a_backoff_of_its_own_is_spread() -> None:
    rules = ErrorRules.of({Down: backoff.fixed(10, jitter=0.5)}, None)
    found = [rules.after(Down(), 1, spread).delay_in_seconds for spread in (0, 0.5, 0.75)]
    assert found == [5, 10, 12.5]


@pytest.mark.parametrize("options", [{"retry_on": ()}, {"reject_on": Exception}])
def test_a_retry_raised_by_hand_wins(options: Any) -> None:
    assert ending(Retry("later", delay=5), **options) == (True, 5)


def test_a_rejection_raised_by_hand_wins() -> None:
    assert ending(Reject("never"), retry_on={Exception: 5}) == REJECTED


@pytest.mark.parametrize("limit", [SoftTimeLimit, HardTimeLimit, SystemExit])
def test_time_limits_and_exits_are_retried_unless_a_class_is_named_for_them(
    limit: type[BaseException],
) -> None:
    assert ending(limit(), retry_on=Down) == RETRIED


def test_a_soft_time_limit_may_be_named() -> None:
    assert ending(SoftTimeLimit(), reject_on=SoftTimeLimit) == REJECTED
    assert ending(SoftTimeLimit(), retry_on={SoftTimeLimit: 9}) == (True, 9)


def test_raw_and_async_handlers_have_them_too() -> None:
    app = FakeHttp().app()

    @app.handler(queue="raw", retry_on={Down: 7})
    def raw(payload: str) -> None:
        raise Down if payload == "down" else ValueError

    @app.handler(queue="async", reject_on=Down)
    async def later() -> None:
        raise Down

    @app.task(name="call", retry_on=OSError)
    async def call() -> None:
        raise ValueError

    def run(payload: Any, queue: str) -> Ending:
        task = leased(payload, queue=queue)
        return ending_of(asyncio.run(app.execute_async(task, FakeControl())))

    assert run("down", "raw") == (True, 7)
    assert run("up", "raw") == REJECTED
    assert run(None, "async") == REJECTED
    assert run({"task": "call", "args": {}}, "mail") == REJECTED


def test_what_a_middleware_raises_is_judged() -> None:
    app = FakeHttp().app()

    @app.middleware
    def translated(_ctx: Context) -> Any:
        try:
            yield
        except KeyError as error:
            raise Down from error

    @app.handler(queue="mail", retry_on=Down)
    def handle() -> None:
        raise KeyError

    assert ending_of(app.execute(leased(), FakeControl())) == RETRIED


def test_what_no_function_is_found_for_is_retried() -> None:
    app = FakeHttp().app()
    app.task(name="other", retry_on=())(raiser(Down()))
    report = app.execute(leased({"task": "unknown", "args": {}}), FakeControl())
    assert ending_of(report) == RETRIED


def test_a_rejection_by_class_keeps_its_traceback_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = FakeHttp().app()
    app.handler(queue="mail", reject_on=Down)(raiser(Down("no such host")))
    report = app.execute(leased(), FakeControl())
    assert report is not None
    assert report.error is not None
    assert report.error.type.endswith("Down")
    assert "raise error" in report.error.detail
    (record,) = caplog.records
    assert record.getMessage().endswith("failed, and is not tried again")
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_on": "OSError"}, "retry_on must be exception classes, not 'OSError'"),
        ({"retry_on": OSError()}, r"retry_on must be exception classes, not OSError\(\)"),
        ({"reject_on": (OSError, int)}, "reject_on must be exception classes, not <class 'int'>"),
        ({"retry_on": {"OSError": 5}}, "retry_on must be exception classes, not 'OSError'"),
        ({"retry_on": SystemExit}, "retry_on takes kinds of Exception, which SystemExit is not"),
        ({"reject_on": HardTimeLimit}, "reject_on takes kinds of Exception, which HardTimeLimit"),
        ({"retry_on": Reject}, "retry_on cannot change what Reject means"),
        ({"retry_on": Snooze}, "retry_on cannot change what Snooze means"),
        ({"reject_on": (Retry,)}, "reject_on cannot change what Retry means"),
        (
            {"retry_on": (OSError, KeyError), "reject_on": KeyError},
            "reject_on has KeyError, which retry_on has too",
        ),
        ({"retry_on": {Down: -1}}, r"retry_on\[Down\] must be a number from 0 to 31536000 seconds"),
        ({"retry_on": {Down: "1"}}, r"retry_on\[Down\] must be seconds or a timedelta, not str"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(options: Any, message: str) -> None:
    app = App()
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        app.task(**options)
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        app.handler(queue="mail", **options)


def test_a_strategy_out_of_its_limits_is_refused_where_it_is_declared() -> None:
    strategy = backoff.fixed(1)
    object.__setattr__(strategy, "jitter", 3)
    with pytest.raises(InvalidRequest, match=r"^retry_on\[Down\].jitter must be a number"):
        App().task(retry_on={Down: strategy})


def test_the_service_rejects_what_is_not_named_and_waits_as_long_as_the_class_has_it() -> None:
    app = App()
    failures: list[Exception] = [Down(), WayDown(), ValueError("wrong address")]

    @app.task(retries=9, retry_on={Down: 60, WayDown: backoff.fixed(600, jitter=0)})
    def send() -> None:
        raise failures.pop(0)

    with MemoryService() as service, service.serving(app):
        task_id = cast("str", send.enqueue().id)
        began = service.clock.now
        ran = service.work(app).run(until_settled=True)
        dead = service.client.get_task(task_id)
        assert len(ran) == 3
        assert (service.clock.now - began) // timedelta(seconds=1) == 60 + 600
        assert dead.dead_reason == "rejected"
        assert [error.type.rpartition(".")[2] for error in dead.errors] == [
            "Down",
            "WayDown",
            "ValueError",
        ]
