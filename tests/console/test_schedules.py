"""Schedules: what is shown of them, and the journey from an empty form to a run."""

from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest

from headrace.domain.access import Role
from headrace.domain.schedule import ScheduleSettings
from tests.console.conftest import Browser

HERE = "/console/queues/mail/schedules/nightly"
NIGHTLY = ScheduleSettings(
    cron="0 3 * * *",
    timezone="Europe/Madrid",
    payload='{"token": "in the payload"}',
    tags={"service": "smartcity"},
)


@pytest.fixture
def planned(filled: Browser) -> Browser:
    """Give an admin a console with a schedule."""
    filled.use.schedules.put("mail", "nightly", NIGHTLY)
    return filled


def test_a_schedule_is_told_in_words_with_its_next_runs(planned: Browser) -> None:
    now = planned.clock().astimezone(ZoneInfo("Europe/Madrid"))
    first = now.replace(hour=3, minute=0, second=0, microsecond=0)
    first += timedelta(days=first <= now)  # of the wall's clock, whatever summer time does
    text = planned.get("/console/schedules").page.one("table", class_="blocks").text

    assert "at 03:00 every day, Europe/Madrid time" in text
    assert (
        f"{first:%a %Y-%m-%d %H:%M:%S %Z} {first.astimezone(UTC):%Y-%m-%d %H:%M:%S.000} UTC" in text
    )
    assert f"{first + timedelta(days=4):%a %Y-%m-%d %H:%M:%S %Z}" in text
    assert "none yet" in text


def test_a_schedule_is_made_after_its_runs_were_seen(filled: Browser) -> None:
    form = filled.get("/console/create-schedule?queue=mail").page
    typed = {
        "name": "beat",
        "cron": "30 8 * * 1-5",
        "timezone": "Europe/Madrid",
        "payload": "[1.0]",
    }
    seen = filled.submit(form, "/create-schedule", **typed, do="preview")

    assert seen.status == 200
    assert "Runs at 08:30 on Monday through Friday, Europe/Madrid time" in seen.text
    assert "Mon 2026-11-23 08:30:00 CET 2026-11-23 07:30:00.000 UTC" in seen.text
    assert "Nothing is saved yet." in seen.text
    assert filled.use.schedules.list().shown == ()
    assert seen.page.one("input", name="cron").attributes["value"] == "30 8 * * 1-5"

    made = filled.submit(seen.page, "/create-schedule", payload="[1.0]", do="save")
    shown = filled.follow(made)
    assert "Schedule beat of mail saved." in shown.text
    settings = filled.use.schedules.get("mail", "beat").schedule.settings
    assert (settings.payload, settings.timezone) == ("[1.0]", "Europe/Madrid")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("cron", "61 * * * *", "as its minute, which takes 0-59"),
        ("every_seconds", "60", "give exactly one of cron"),
        ("timezone", "Europe/Madird", "did you mean Europe/Madrid?"),
        ("payload", "{", "is not JSON"),
        ("intervals", "1, two", "must be 1 to 100 lengths of time such as 10s, 1m, 10m"),
        ("queue", "nowhere", "no queue nowhere"),
        ("name", "", "must be 1 to 128 ASCII letters"),
    ],
)
def test_a_wrong_field_is_named(planned: Browser, field: str, value: str, says: str) -> None:
    form = planned.get("/console/create-schedule").page
    typed = {"queue": "mail", "name": "new", "cron": "* * * * *", "payload": "{}",
             "retry_kind": "fixed", field: value}  # fmt: skip
    refused = planned.submit(form, "/create-schedule", **typed, do="save")

    tag = "textarea" if field == "payload" else "input"
    wrong = refused.page.one(tag, name=field)
    assert refused.status == 400
    assert wrong.attributes["aria-invalid"] == "true"
    assert says in refused.page.one("p", id=wrong.attributes["aria-describedby"]).text
    assert len(planned.use.schedules.list().shown) == 1


def test_an_edit_keeps_what_the_form_does_not_have(planned: Browser) -> None:
    planned.submit(planned.get(f"{HERE}/pause").page, "/pause")
    form = planned.get(f"{HERE}/edit").page
    assert "in the payload" in form.one("textarea", name="payload").text
    payload = NIGHTLY.payload
    done = planned.submit(form, "/edit", cron="", every_seconds="90", payload=payload, do="save")

    assert "every 90s" in planned.follow(done).text
    settings = planned.use.schedules.get("mail", "nightly").schedule.settings
    assert settings.paused
    assert dict(settings.tags) == {"service": "smartcity"}


def test_a_viewer_sees_when_but_no_payload_and_no_action(planned: Browser) -> None:
    viewer = planned.as_role(Role.VIEWER)
    shown = viewer.get(HERE)

    assert "at 03:00 every day" in shown.text
    assert "in the payload" not in shown.body
    assert "The payload is not shown to viewer keys." in shown.text
    assert "Edit…" not in shown.text
    assert "Create a schedule" not in viewer.get("/console/schedules").text
    token = shown.page.all("input", name="token")[0].attributes["value"]
    for path in ("edit", "pause", "run", "delete"):
        assert viewer.get(f"{HERE}/{path}").status == 403
        assert viewer.post(f"{HERE}/{path}", {"token": token}).status == 403
    assert viewer.post("/console/create-schedule", {"token": token}).status == 403


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 8 * * MON,thu", "at 08:30 on Monday and Thursday"),
        ("*/10 * * * * *", "every 10th second"),
        ("0 9 15W * *", "0 9 15W * *"),
    ],
)
def test_cron_expressions_are_shown_in_words(admin: Browser, cron: str, expected: str) -> None:
    admin.queue("mail")
    admin.use.schedules.put("mail", "nightly", ScheduleSettings(cron=cron))

    assert expected in admin.get("/console/schedules").text
