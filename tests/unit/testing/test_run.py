"""Running an app's functions in the test's thread: everything happens but the waiting."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace import App, Context, Snooze, Stopped
from headrace.client.queue_fields import RetryFields
from headrace.testing import ManualClock, MemoryService
from headrace.testing.work import MemoryTables

FIXED: RetryFields = {"kind": "fixed", "base_seconds": 60, "max_retries": 3, "jitter": 0}


def test_ready_tasks_run_in_their_order(service: MemoryService) -> None:
    app, seen = App(), list[str]()

    @app.task(queue="mail")
    def note(what: str) -> str:
        seen.append(what)
        return what.upper()

    with service.serving(app):
        made = note.enqueue_many({"what": letter} for letter in "abc")
        note.options(delay=60).enqueue(what="later")

    ran = service.run(app)

    assert seen == ["a", "b", "c"]
    assert (len(ran), ran.succeeded, ran.failed, ran.lost) == (3, 3, 0, 0)
    assert service.client.get_task(str(made[0].id)).result == "A"
    service.clock.forward(60)
    assert [attempt.task.payload["args"] for attempt in service.run(app)] == [{"what": "later"}]


def test_a_schedule_ticks_in_simulated_time(service: MemoryService) -> None:
    app, seen = App(), []

    @app.periodic(cron="0 8,20 * * *", timezone="Europe/Madrid")
    @app.task(queue="reports", name="daily")
    def daily(ctx: Context) -> None:
        seen.append(ctx.task.scheduled_at)

    ran = service.run(app, seconds=timedelta(hours=12))

    assert ran.succeeded == 1
    assert [at.hour for at in seen] == [19]
    assert len(service.run(app, until_settled=True)) == 0  # tomorrow's tick is not waited for


def test_a_run_without_an_end_stops_at_its_limit(service: MemoryService) -> None:
    app = App()

    @app.task(queue="mail", name="again")
    def again() -> None:
        again.enqueue()

    with service.serving(app):
        again.enqueue()
        with pytest.raises(RuntimeError, match="after 20 attempts there is still work"):
            service.run(app, limit=20)


# ------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize("how", ["waits", "returns", "raises Stopped"])
def test_a_handler_that_ends_itself_uses_its_attempts(how: str) -> None:
    app = App()
    app.queue("mail", retry_strategy=FIXED)

    @app.task(queue="mail", name="impatient")
    async def impatient() -> str:
        if how == "raises Stopped":
            raise Stopped
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if how == "waits":
            await asyncio.Event().wait()
        return "returned"

    with MemoryService(seed=1) as service, service.serving(app):
        made = impatient.enqueue()
        ran = service.run(app, until_settled=True)
        task = service.client.get_task(str(made.id))

    if how == "returns":
        assert (task.status, task.result) == ("SUCCEEDED", "returned")
    else:
        assert (ran.failed, task.dead_reason) == (4, "exhausted")


def test_a_snoozed_task_uses_no_attempt_and_sees_its_last_progress() -> None:
    app, seen = App(), list[tuple[int, object]]()
    app.queue("mail", retry_strategy=FIXED)

    @app.task(queue="mail", name="poll", max_retries=0)
    def poll(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.last_progress))
        if len(seen) < 4:
            ctx.progress({"polls": len(seen)})
            raise Snooze(delay=timedelta(minutes=10))
        return "ready"

    with MemoryService(seed=1) as service, service.serving(app):
        made = poll.enqueue()
        began = service.clock.now
        ran = service.run(app, until_settled=True)
        task = service.client.get_task(str(made.id))
        elapsed = service.clock.now - began

    assert (ran.released, ran.succeeded, ran.failed) == (3, 1, 0)
    assert seen == [(1, None), (1, {"polls": 1}), (1, {"polls": 2}), (1, {"polls": 3})]
    assert (task.result, task.errors) == ("ready", [])
    assert elapsed >= timedelta(minutes=30)


# -- the clock and the timers ----------------------------------------------------------------------


def test_a_clock_never_goes_back_and_knows_its_zone() -> None:
    with pytest.raises(ValueError, match="seconds must be 0 or more, not -1"):
        ManualClock().forward(-1)
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 (that is what is refused)


def test_the_timers_run_when_told(service: MemoryService) -> None:
    service.client.create_queue("mail")
    service.client.put_schedule("mail", "nightly", every_seconds=60)
    service.client.enqueue("mail", expires_at=service.clock.now + timedelta(seconds=5))
    service.clock.forward(65)

    timers = service.tick()

    assert timers.reaped.expired == 1
    assert timers.ticked.enqueued >= 1
    assert timers.recorded.counted >= 3
    assert service.client.get_stats("mail").counts.dead == 1


# -- cancel ----------------------------------------------------------------------------------------


def test_a_handler_sees_a_cancel_when_a_third_of_its_lease_is_over(service: MemoryService) -> None:
    app, seen = App(), list[tuple[bool, bool]]()

    @app.handler(queue="mail")
    def work(ctx: Context, payload: Any) -> None:
        service.client.cancel_task(ctx.id)
        seen.append((ctx.cancelled, ctx.lost))
        service.clock.forward(10)  # of 30
        seen.append((ctx.cancelled, ctx.lost))
        ctx.check()

    service.client.create_queue("mail")
    service.client.enqueue("mail", 1)
    ran = service.run(app, until_settled=True)

    assert seen == [(False, False), (True, True)]
    assert (ran.cancelled, ran.lost, ran.failed, ran.succeeded) == (1, 0, 0, 0)
    assert "cancelled" in repr(ran)


def test_idle_minutes_cost_no_look_at_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[str]()
    app = App()
    for number in range(30):
        app.handler(queue=f"q-{number}")(lambda payload: None)
    with MemoryService() as service:
        service.run(app)
        reaping, first_due = service.use_cases.reaping, MemoryTables.first_due
        run = reaping.run

        def reaped() -> Any:
            looks.append("reaper")
            return run()

        def counting(*args: Any, **which: Any) -> dict[str, datetime]:
            looks.append("due")
            return first_due(*args, **which)

        monkeypatch.setattr(reaping, "run", reaped)
        monkeypatch.setattr(MemoryTables, "first_due", counting)
        service.run(app, seconds=timedelta(hours=2))

    assert looks.count("reaper") < 10
    assert looks.count("due") < 300


def test_what_expires_or_lapses_in_idle_time_does_so_within_a_minute() -> None:
    with MemoryService() as service:
        client, began = service.client, service.clock.now
        client.create_queue("mail", keepalive_timeout_in_seconds=1800)
        client.create_queue("news")
        expired = client.enqueue("news", expires_at=began + timedelta(minutes=20))
        (leased,) = (client.enqueue("mail"), client.dequeue("mail").tasks)[1]
        service.forward(timedelta(hours=2))

        dead, lapsed = client.get_task(str(expired.id)), client.get_task(leased.id)
    assert dead.finished_at is not None
    assert timedelta(minutes=20) <= dead.finished_at - began < timedelta(minutes=22)
    assert [error.kind for error in lapsed.errors] == ["lease_expired"]
    assert lapsed.errors[0].at - began < timedelta(minutes=32)
