"""Schedules declared beside functions."""

from datetime import timedelta
from typing import Any

import pytest

from headrace import App
from headrace.domain.errors import Forbidden, InvalidRequest
from headrace.testing import MemoryService
from headrace.wire.tasks import Task
from tests.unit.app.app_doubles import FakeHttp, call, queue_view


def report(kind: str = "daily") -> None: ...


def test_schedules_are_put_with_what_is_declared_for_the_task() -> None:
    sent = FakeHttp()
    app = sent.app()
    task = app.task(
        name="report",
        queue="mail",
        retries=2,
        tags={"a": "1"},
        expires=60,
        keepalive=30,
        dedupe="r",
        dedupe_until="start",
    )(report)
    app.periodic(
        cron="0 8 * * *",
        timezone="Europe/Madrid",
        args={"kind": "weekly"},
        missed="all",
        on_expiry="drop",
    )(task)
    app.sync_schedules()
    stored = sent.schedules["report"]
    assert (stored["cron"], stored["timezone"]) == ("0 8 * * *", "Europe/Madrid")
    assert stored["payload"] == call("report", kind="weekly")
    assert (stored["tags"], stored["dedupe_key"]) == ({"a": "1"}, "r")
    assert (stored["expires_in_seconds"], stored["keepalive_timeout_in_seconds"]) == (60, 30)
    assert stored["retry_strategy"]["max_retries"] == 2
    assert (stored["missed"], stored["on_expiry"]) == ("all", "drop")
    assert stored["dedupe_until"] == "start"
    assert not stored["paused"]


@pytest.mark.parametrize("above", [True, False])
def test_periodic_stands_above_or_below_task(above: bool) -> None:  # noqa: FBT001 (a case)
    sent = FakeHttp(queues={"mail": queue_view("mail")})
    app = sent.app()
    task, periodic = app.task(name="report", queue="mail"), app.periodic(every=timedelta(hours=1))
    if above:
        periodic(task(report))
    else:
        task(periodic(report))
    app.sync_schedules(sent.client())
    assert sent.schedules["report"]["every_seconds"] == 3600


def test_the_same_again_is_not_put_and_a_paused_schedule_stays_paused() -> None:
    sent = FakeHttp()

    def program(every: int) -> Any:
        app = sent.app()
        return app, app.periodic(every=every)(app.task(name="report", queue="mail")(report))

    program(60)[0].sync_schedules()
    sent.schedules["report"]["paused"] = True
    sent.calls.clear()
    program(60)[0].sync_schedules()
    assert not [call for call in sent.calls if not call.startswith("GET ")]
    program(90)[0].sync_schedules()
    assert sent.schedules["report"]["every_seconds"] == 90
    assert sent.schedules["report"]["paused"]


def test_a_key_that_may_not_put_schedules_hears_the_command() -> None:
    sent = FakeHttp(may_schedule=False)
    app = sent.app()
    app.periodic(every=60)(app.task(name="report", queue="mail")(report))
    with pytest.raises(Forbidden, match=r"^schedule report of mail: no$"):
        app.sync_schedules()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "give exactly one of the two"),
        ({"cron": "* * * * *", "every": 5}, "give exactly one of the two"),
        ({"cron": "0 8 * *"}, "cron must have 5 fields .*; it has 4"),
        ({"cron": "0 8 * * * * * *"}, "cron must have 5 fields .*; it has 8"),
        ({"cron": "0 8 * * $"}, "cron must be of letters, digits and"),
        ({"cron": 5}, "cron must be a text, not int"),
        ({"every": 0}, "every must be a number from 1 to 31536000 seconds, not 0"),
        ({"every": 5, "name": "a b"}, "name must be"),
        ({"every": 5, "missed": "some"}, "missed must be one of skip, latest, all, not 'some'"),
        ({"every": 5, "on_expiry": "x"}, "on_expiry must be one of dead, drop, not 'x'"),
        ({"every": 5, "args": {"kind": 5}}, "args.kind expected `str`, got `int`"),
        ({"every": 5, "args": {"sort": "x"}}, "args.sort is no argument of report"),
    ],
)
def test_a_bad_beat_is_refused_at_declaration(given: dict[str, Any], why: str) -> None:
    app = FakeHttp().app()
    with pytest.raises(InvalidRequest, match=why):
        app.periodic(**given)(app.task(report))


def test_several_beats_of_one_task_need_names() -> None:
    sent = FakeHttp()
    app = sent.app()
    task = app.task(name="report", queue="mail")(report)
    app.periodic(every=60)(task)
    with pytest.raises(ValueError, match="two schedules are named report"):
        app.periodic(every=90)(task)
    app.periodic(every=90, name="slow")(task)
    app.sync_schedules()
    assert sent.schedules.keys() == {"report", "slow"}


def test_two_tasks_of_a_queue_cannot_share_a_schedule() -> None:
    app = FakeHttp().app()
    app.periodic(every=60, name="same")(app.task(name="one")(report))
    with pytest.raises(ValueError, match="two schedules are named same"):
        app.periodic(every=60, name="same")(app.task(name="two")(report))


def test_a_function_declared_again_brings_its_schedules_along() -> None:
    sent = FakeHttp()
    app = sent.app()
    for every in (60, 90):
        app.periodic(every=every)(app.task(name="report", queue="mail")(report))
    app.sync_schedules()
    assert sent.schedules["report"]["every_seconds"] == 90


def test_a_name_that_no_schedule_can_have_is_refused() -> None:
    app = FakeHttp().app()
    with pytest.raises(TypeError, match=r"give periodic\(name=…\)"):
        app.periodic(every=60)(app.task(name="my report")(report))


def test_a_periodic_function_that_is_no_task_is_an_error() -> None:
    app = FakeHttp().app()
    app.periodic(every=60)(report)
    with pytest.raises(TypeError, match=r"report is periodic but no task: add @app\.task"):
        app.sync_schedules()


def test_what_only_the_service_finds_wrong_names_the_schedule() -> None:
    app = App()
    app.periodic(cron="61 8 * * *")(app.task(name="per.wake", queue="mail")(report))
    with (
        MemoryService() as service,
        service.serving(app),
        pytest.raises(
            InvalidRequest, match=r"^schedule per\.wake of mail: cron has 61 as its minute"
        ) as caught,
    ):
        app.sync_schedules()
    assert [error.field for error in caught.value.errors] == ["queues.mail.schedules.per.wake.cron"]


def waiting_after_ten_minutes(**options: Any) -> list[Task]:
    """The tasks that wait after ten minutes of a schedule without a worker."""
    app = App()
    app.periodic(every=5)(app.task(name="report", queue="mail", **options)(report))
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        app.sync_schedules()
        service.forward(600)
        return list(service.client.list_tasks("mail", state="pending"))


def test_ticks_that_no_worker_takes_pile_up() -> None:
    assert len(waiting_after_ten_minutes()) > 120


def test_a_dedupe_key_keeps_one_tick_waiting() -> None:
    assert len(waiting_after_ten_minutes(dedupe="report")) == 1


def test_ticks_that_expire_leave_those_of_the_next_three_minutes_and_a_last_one() -> None:
    waiting = waiting_after_ten_minutes(expires=5)
    assert len(waiting) <= 180 / 5 + 1


def test_a_dedupe_key_lets_the_next_tick_in_when_the_one_has_run() -> None:
    app = App()
    app.periodic(every=5)(app.task(name="report", queue="mail", dedupe="report")(report))
    with MemoryService() as service:
        assert 9 <= service.run(app, seconds=600).succeeded <= 22
