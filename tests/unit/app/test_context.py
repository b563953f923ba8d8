"""What a handler may ask of its context, and do with it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import Cancelled, Context, Report
from headrace.client.codec import PLAIN
from headrace.client.sending import SpawnedTask, reports_body
from headrace.domain.errors import InvalidRequest, LeaseLost, PayloadTooLarge
from tests.unit.app.app_doubles import LEASE_END, NOW, FakeControl, FakeHttp, call, leased


def attempt(
    handle: Callable[[Context], Any], held: FakeControl | None = None, **settings: Any
) -> Report:
    """Let *handle* do as it likes with the context, and return the report."""
    report = run(handle, held, **settings)
    assert report is not None
    assert report.status in {"SUCCEEDED", "MOVED"}, report.error
    reports_body([report], PLAIN)  # it can be sent
    return report


def run(
    handle: Callable[[Context], Any], held: FakeControl | None = None, **settings: Any
) -> Report | None:
    app = FakeHttp().app()

    @app.handler(queue="mail", **settings)
    def load(ctx: Context) -> Any:
        return handle(ctx)

    return app.execute(leased({"a": 1}, tags={"t": "1"}), held or FakeControl())


def test_the_context_says_which_task_this_is() -> None:
    def handle(ctx: Context) -> list[Any]:
        return [ctx.id, ctx.queue, ctx.attempt, ctx.payload, ctx.tags, ctx.task.lease.id, str(ctx)]

    assert attempt(handle).result == [
        "tsk_1",
        "mail",
        1,
        {"a": 1},
        {"t": "1"},
        "lse_1",
        "Context(id='tsk_1', queue='mail', attempt=1)",
    ]


def test_the_context_comes_whatever_its_parameter_is_called() -> None:
    app = FakeHttp().app()

    @app.task(name="send")
    def send(to: str, here: Context) -> str:
        return here.id + to

    report = app.execute(leased(call("send", to="a")), FakeControl())
    assert report is not None
    assert report.result == "tsk_1a"


def test_the_fence_is_the_start_of_the_attempt_in_microseconds() -> None:
    assert attempt(lambda ctx: ctx.fence).result == int(NOW.timestamp()) * 1_000_000
    later = datetime(2026, 11, 21, 8, 0, 0, 1, tzinfo=UTC)
    app = FakeHttp().app()
    app.handler(queue="mail")(_fence)
    report = app.execute(leased(started_at=later), FakeControl())
    assert report is not None
    assert report.result == int(NOW.timestamp()) * 1_000_000 + 1


def _fence(ctx: Context) -> int:
    return ctx.fence


def test_the_deadline_is_the_time_limit_else_the_end_of_the_lease() -> None:
    assert attempt(lambda ctx: ctx.deadline.isoformat()).result == LEASE_END.isoformat()
    limited = attempt(lambda ctx: ctx.deadline.isoformat(), timeout=90)
    assert limited.result == (NOW + timedelta(seconds=90)).isoformat()


def test_a_handler_can_ask_whether_its_lease_is_lost() -> None:
    def handle(ctx: Context) -> None:
        ctx.check()
        held.lost = True
        with pytest.raises(LeaseLost, match="the lease of task tsk_1 is over"):
            ctx.check()
        seen.append(ctx.lost)

    held, seen = FakeControl(), list[bool]()
    run(handle, held)
    assert seen == [True]


def test_a_handler_that_was_shown_a_lost_lease_reports_nothing_although_it_returns() -> None:
    """It may have left its work undone, and a late report may still count."""

    def gives_up(ctx: Context) -> None:
        held.lost = True
        if ctx.lost:
            held.lost = False  # such as by a heartbeat that got through after all
            assert ctx.lost

    def does_not_look(ctx: Context) -> str:
        held.lost = True
        return "done"

    held = FakeControl()
    assert run(gives_up, held) is None
    assert attempt(does_not_look, held).result == "done"


def test_a_handler_can_ask_whether_its_task_was_cancelled() -> None:
    def handle(ctx: Context) -> None:
        seen.append(ctx.cancelled)
        held.cancelled = held.lost = True
        seen.append(ctx.cancelled)
        ctx.check()

    held, seen = FakeControl(), list[bool]()
    with pytest.raises(Cancelled, match="task tsk_1 was cancelled"):
        handle(Context(leased(), held, codec=PLAIN, now=lambda: NOW))
    assert seen == [False, True]


def test_progress_goes_to_the_worker_and_has_a_limit() -> None:
    def handle(ctx: Context) -> None:
        ctx.progress({"done": 5})
        with pytest.raises(
            PayloadTooLarge, match="progress must be at most 4096 bytes of JSON text; it is 5002"
        ):
            ctx.progress("x" * 5_000)
        with pytest.raises(InvalidRequest, match="progress cannot be written as JSON"):
            ctx.progress(object())

    held = FakeControl()
    attempt(handle, held)
    assert held.shown == [{"done": 5}]


def test_a_moved_task_goes_on_in_another_queue_and_keeps_no_result() -> None:
    def handle(ctx: Context) -> str:
        ctx.move("next", {"b": 2}, delay=timedelta(minutes=1), tags={"x": "y"})
        return "not kept"

    assert attempt(handle) == Report(
        task_id="tsk_1",
        lease_id="lse_1",
        status="MOVED",
        to_queue="next",
        payload={"b": 2},
        delay_in_seconds=60,
        tags={"x": "y"},
    )


def test_a_move_keeps_the_payload_unless_told_and_the_last_one_counts() -> None:
    def handle(ctx: Context) -> None:
        ctx.move("one", 1)
        ctx.move("two")

    report = attempt(handle)
    assert (report.to_queue, report.payload, report.tags) == ("two", None, None)


def test_a_move_and_children_end_with_the_attempt_or_not_at_all() -> None:
    def handle(ctx: Context) -> None:
        ctx.move("next")
        ctx.spawn("other", {"c": 3}, delay=5)

    report = attempt(handle)
    assert report.spawn == (SpawnedTask(queue="other", payload={"c": 3}, delay_in_seconds=5),)

    def failing(ctx: Context) -> None:
        handle(ctx)
        raise ValueError

    app = FakeHttp().app()

    @app.handler(queue="mail")
    def load(ctx: Context) -> None:
        failing(ctx)

    failed = app.execute(leased(), FakeControl())
    assert failed is not None
    assert (failed.status, failed.to_queue, failed.spawn) == ("FAILED", None, ())


def test_task_functions_can_be_spawned_and_moved_to_with_their_arguments() -> None:
    app = FakeHttp().app()

    @app.task(name="send", queue="out", retries=1, dedupe="mail:{to}")
    def send(to: str) -> None: ...

    @app.handler(queue="mail")
    def load(ctx: Context) -> None:
        ctx.spawn(send, {"to": "a"}, tags={"x": "y"}, key="own")
        ctx.spawn(send, {"to": "b"})
        with pytest.raises(InvalidRequest, match=r"args.to expected `str`, got `int`"):
            ctx.spawn(send, {"to": 5})
        ctx.move(send, {"to": "c"})

    report = app.execute(leased(), FakeControl())
    assert report is not None
    assert (report.to_queue, report.payload) == ("out", call("send", to="c"))
    assert [(task.queue, task.payload, task.dedupe_key) for task in report.spawn] == [
        ("out", call("send", to="a"), "own"),
        ("out", call("send", to="b"), "mail:b"),
    ]


def test_what_is_neither_queue_nor_function_is_no_target() -> None:
    app = FakeHttp().app()

    @app.task(name="send", queue="out")
    def send(to: str) -> None: ...

    prepared: Any = send.prepare("a")

    def handle(ctx: Context) -> None:
        with pytest.raises(TypeError, match=r"spawn\(function, \{argument: value\}\), no Prepared"):
            ctx.spawn(prepared)
        with pytest.raises(TypeError, match=r"move\(function, \{argument: value\}\), no Prepared"):
            ctx.move(prepared)

    assert attempt(handle).status == "SUCCEEDED"


def test_what_is_spawned_is_what_it_was_at_the_time() -> None:
    def handle(ctx: Context) -> None:
        payload = {"n": [1]}
        ctx.spawn("next", payload)
        payload["n"].append(2)
        ctx.spawn("next", payload)

    assert [task.payload for task in attempt(handle).spawn] == [{"n": [1]}, {"n": [1, 2]}]


def test_more_than_two_mebibytes_of_children_are_refused_at_once() -> None:
    def handle(ctx: Context) -> None:
        for _ in range(8):
            ctx.spawn("next", "x" * (256 * 1024 - 2))
        with pytest.raises(PayloadTooLarge, match="spawn payloads take 2097153 bytes; at most"):
            ctx.spawn("next", 1)

    assert len(attempt(handle).spawn) == 8


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"target": "a b"}, "queue must be"),
        ({"delay": -1}, "delay must be a number from 0"),
        ({"payload": float("nan")}, r"payload cannot be written as JSON"),
        ({"payload": "x" * 300_000}, "payload must be at most 262144 bytes"),
        ({"tags": {"": "x"}}, "tags\\. must not be empty"),
    ],
)
def test_what_the_service_would_refuse_is_refused_in_the_handler(
    given: dict[str, Any], why: str
) -> None:
    def handle(ctx: Context) -> None:
        for way in (ctx.spawn, ctx.move):
            with pytest.raises(InvalidRequest, match=why):
                way(**{"target": "next", **given})

    assert attempt(handle).spawn == ()
