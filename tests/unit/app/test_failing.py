"""Retries: by the class of an exception (`retry_on`, `reject_on`), and how long they wait."""

from datetime import timedelta
from typing import Any

import pytest

from headrace import App, Context, InvalidRequest, Reject, Retry, RetryStrategy, Snooze, backoff
from headrace.testing import MemoryService
from tests.unit.app.app_runner import ending, run


class Down(OSError):
    pass


class WayDown(Down):
    pass


def after(error: BaseException, **options: Any) -> tuple[bool, float]:
    """Return whether a task that failed with *error* is tried again, and after what time."""

    def handle() -> None:
        raise error

    task = ending(handle, **options)
    waits = (task.scheduled_at - task.errors[0].at).total_seconds()
    return task.dead_reason is None, waits if task.dead_reason is None else 0


def is_retried(error: BaseException, **options: Any) -> bool:
    return after(error, **options)[0]


@pytest.mark.parametrize("one", [OSError, [OSError], {OSError: None}])
def test_only_the_classes_in_retry_on_are_retried(one: Any) -> None:
    assert is_retried(OSError(), retry_on=one)
    assert is_retried(WayDown(), retry_on=one)
    assert not is_retried(ValueError(), retry_on=one)
    assert not is_retried(ValueError(), retry_on=())
    assert is_retried(ValueError())


def test_the_nearest_class_counts_in_whatever_order_they_are_named() -> None:
    for order in ((OSError, Down, Exception), (Exception, Down, OSError)):
        waits = {kind: {OSError: 10, Down: 20, Exception: 30}[kind] for kind in order}
        assert after(OSError(), retry_on=waits) == (True, 10)
        assert after(WayDown(), retry_on=waits) == (True, 20)
        assert after(ValueError(), retry_on=waits) == (True, 30)
    assert not is_retried(Down(), retry_on=OSError, reject_on=Down)
    assert is_retried(Down(), retry_on=Down, reject_on=OSError)


def test_retry_and_reject_override_the_options() -> None:
    assert after(Retry("later", delay=50), retry_on=()) == (True, 50)
    assert after(Retry("later", delay=50), reject_on=Exception) == (True, 50)
    assert not is_retried(Reject("never"), retry_on={Exception: 5})


def test_async_handlers_and_middlewares_are_judged_too() -> None:
    app = App()

    @app.middleware
    def translated(_ctx: Context) -> Any:
        try:
            yield
        except KeyError as error:
            raise Down from error

    @app.handler(queue="mail", retry_on=Down)
    async def handle(payload: str) -> None:
        raise KeyError if payload == "down" else ValueError

    assert run(app, "down").dead_reason is None
    assert run(app, "up").dead_reason == "rejected"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_on": "OSError"}, "retry_on must be exception classes, not 'OSError'"),
        ({"reject_on": (OSError, int)}, "reject_on must be exception classes, not <class 'int'>"),
        ({"retry_on": SystemExit}, "retry_on takes kinds of Exception, which SystemExit is not"),
        ({"retry_on": Snooze}, "retry_on cannot change what Snooze means"),
        (
            {"retry_on": (OSError, KeyError), "reject_on": KeyError},
            "reject_on has KeyError, which retry_on has too",
        ),
        ({"retry_on": {Down: -1}}, r"retry_on\[Down\] must be a number from 0 to 31536000 seconds"),
    ],
)
def test_wrong_options_are_refused_at_declaration(options: Any, message: str) -> None:
    for declare in (App().task, App().handler):
        with pytest.raises(InvalidRequest, match=f"^{message}"):
            declare(queue="mail", **options)


def test_a_class_may_have_a_backoff_of_its_own_which_ends_when_its_retries_are_used_up() -> None:
    app = App()

    @app.task(max_retries=9, retry_on={Down: backoff.exponential(20, max_retries=2, jitter=0)})
    def send() -> None:
        raise Down

    with MemoryService() as service, service.serving(app):
        task_id = str(send.enqueue().id)
        began = service.clock.now
        service.work(app).run(until_settled=True)
        dead = service.client.get_task(task_id)
        assert (service.clock.now - began) // timedelta(seconds=1) == 20 + 40
    assert (dead.dead_reason, len(dead.errors)) == ("rejected", 3)


# -- retry strategies by name ----------------------------------------------------------------------


def waits(strategy: RetryStrategy) -> list[float]:
    """The first four waits, without jitter."""
    return [strategy.delay_seconds(retry, 0.5) for retry in range(1, 5)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (backoff.exponential(timedelta(minutes=1), max_delay=100), [60, 100, 100, 100]),
        (backoff.linear(1.5), [1.5, 3, 4.5, 6]),
        (backoff.quadratic(2), [2, 8, 18, 32]),
        (backoff.fixed(7), [7, 7, 7, 7]),
        (backoff.intervals([1, timedelta(hours=3), 5]), [1, 10800, 5, 5]),
    ],
)
def test_a_backoff_waits_as_its_name_says(strategy: RetryStrategy, expected: list[float]) -> None:
    assert waits(strategy) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: backoff.exponential(-1), "base must be a number from 0 to 86400 seconds, not -1"),
        (lambda: backoff.quadratic(1, jitter=2), "jitter must be a number from 0 to 1, not 2"),
        (
            lambda: backoff.exponential(7200),
            "max_delay must be at least base, 7200, not 3600",
        ),
        (lambda: backoff.intervals([1, -1]), r"waits\[1\] must be a number from 0 to 2592000"),
    ],
)
def test_an_argument_out_of_its_limits_is_named(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        make()
