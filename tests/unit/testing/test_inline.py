"""Inline mode: enqueue, and it is done; by the same rules as anywhere."""

import threading
from datetime import datetime

import pytest

from headrace import App, Context
from headrace.testing import TaskDied, inline


def test_a_function_has_run_when_enqueue_returns_in_the_same_thread() -> None:
    app, threads = App(), []

    @app.task(queue="mail")
    def send(to: str) -> dict[str, object]:
        threads.append(threading.current_thread())
        return {"sent": to, "at": datetime(2026, 1, 1)}  # noqa: DTZ001 (what it becomes as JSON)

    with inline(app) as line:
        made = send.enqueue(to="ada")
        result = line.result(made.id)

    assert made.outcome == "CREATED"
    assert threads == [threading.current_thread()]
    assert result == {"sent": "ada", "at": "2026-01-01T00:00:00"}
    assert line.ran.succeeded == 1


def test_a_task_that_dies_raises_where_it_was_enqueued() -> None:
    app = App()

    @app.task(queue="mail", max_retries=1)
    def send() -> None:
        raise OSError("no connection")

    died = pytest.raises(TaskDied, match=r"dead \(exhausted\), attempt 2: OSError: no connection")
    with inline(app), died as e:
        send.enqueue()

    assert e.value.attempt.task.attempts == 2
    assert 'raise OSError("no connection")' in str(e.value)


def test_what_is_spawned_moved_or_enqueued_on_the_way_runs_too() -> None:
    app, order = App(), []

    @app.task(queue="b", name="second")
    def second(n: int) -> None:
        order.append(f"second {n}")

    @app.task(queue="a", name="first")
    def first(ctx: Context) -> None:
        second.enqueue(n=1)
        ctx.spawn(second, {"n": 2})
        ctx.move("c", {"moved": True})
        order.append("first")

    @app.handler(queue="c")
    def third(payload: dict[str, bool]) -> None:
        order.append(f"third {payload}")

    with inline(app):
        first.enqueue()

    assert order[0] == "first"
    assert sorted(order[1:]) == ["second 1", "second 2", "third {'moved': True}"]
