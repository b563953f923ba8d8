"""Schedules declared beside functions."""

from typing import Any

import pytest

from headrace import App
from headrace.domain.errors import Forbidden, InvalidRequest
from headrace.testing import MemoryService
from headrace.wire.queues import Schedule
from tests.unit.app.app_runner import call


def report(kind: str = "daily") -> None: ...


def put(service: MemoryService, app: App) -> Schedule:
    """Put the schedules of an app; return the one named report."""
    with service.serving(app):
        app.ensure_queues()
        app.sync_schedules()
    return service.client.get_schedule("mail", "report")


def test_schedules_are_put_with_what_is_declared_for_the_task(service: MemoryService) -> None:
    app = App()
    app.queue("mail", priority={})
    task = app.task(
        name="report",
        priority="high",
        queue="mail",
        max_retries=2,
        tags={"a": "1"},
        expires=60,
        lease_seconds=30,
        dedupe_key="r",
        dedupe_until="start",
    )(report)
    app.periodic(
        cron="0 8 * * *",
        timezone="Europe/Madrid",
        args={"kind": "weekly"},
        missed="all",
        on_expiry="drop",
    )(task)

    stored = put(service, app)

    assert (stored.cron, stored.timezone) == ("0 8 * * *", "Europe/Madrid")
    assert stored.payload == call("report", kind="weekly")
    assert (stored.tags, stored.dedupe_key) == ({"a": "1"}, "r")
    assert (stored.expires_in_seconds, stored.keepalive_timeout_in_seconds) == (60, 30)
    assert stored.retry_strategy is not None
    assert stored.retry_strategy.max_retries == 2
    assert (stored.missed, stored.on_expiry) == ("all", "drop")
    assert (stored.dedupe_until, stored.priority) == ("start", "high")


def test_a_changed_schedule_is_put_again_and_a_paused_one_stays_paused(
    service: MemoryService,
) -> None:
    def program(every: int) -> App:
        app = App()
        for seconds in (30, every):  # declared again, it brings its schedule along
            app.periodic(every=seconds)(app.task(name="report", queue="mail")(report))
        return app

    first = put(service, program(60))
    service.client.put_schedule(
        "mail", "report", every_seconds=60, payload=first.payload, tags=first.tags, paused=True
    )
    again = put(service, program(60))
    changed = put(service, program(90))

    assert (again.every_seconds, again.paused) == (60, True)
    assert (changed.every_seconds, changed.paused) == (90, True)


def test_a_schedule_that_is_refused_is_named(service: MemoryService) -> None:
    service.client.create_queue("mail")
    worker = service.connect(service.client.create_key("w", "worker", ["*"]).secret)
    app = App()
    app.periodic(cron="61 8 * * *")(app.task(name="report", queue="mail")(report))

    with pytest.raises(InvalidRequest, match=r"^schedule report of mail: cron has 61") as caught:
        put(service, app)
    with pytest.raises(Forbidden, match=r"^schedule report of mail: "):
        app.sync_schedules(worker)

    assert [error.field for error in caught.value.errors] == ["queues.mail.schedules.report.cron"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"cron": "* * * * *", "every": 5}, "give exactly one of the two"),
        ({"cron": "0 8 * *"}, "cron must have 5 fields .*; it has 4"),
        ({"every": 0}, "every must be a number from 1 to 31536000 seconds, not 0"),
        ({"every": 5, "name": "a b"}, "name must be"),
        ({"every": 5, "missed": "some"}, "missed must be one of skip, latest, all, not 'some'"),
        ({"every": 5, "args": {"kind": 5}}, "args.kind expected `str`, got `int`"),
    ],
)
def test_a_bad_schedule_is_refused_at_declaration(given: dict[str, Any], why: str) -> None:
    app = App()
    with pytest.raises(InvalidRequest, match=why):
        app.periodic(**given)(app.task(report))


def test_schedules_of_a_queue_need_different_names() -> None:
    app = App()
    task = app.task(name="report")(report)
    app.periodic(every=60)(task)
    app.periodic(every=90, name="slow")(task)
    with pytest.raises(ValueError, match="two schedules are named slow"):
        app.periodic(every=60, name="slow")(app.task(name="two")(report))
    with pytest.raises(TypeError, match=r"give periodic\(name=…\)"):
        app.periodic(every=60)(app.task(name="my report")(report))
