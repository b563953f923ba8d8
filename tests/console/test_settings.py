"""A queue's settings: what would change is shown before it is saved, and nothing else changes."""

from dataclasses import replace

import pytest

from headrace.domain.access import Role
from headrace.domain.queue import DeadLetterConfig, PrioritySettings, QueueSettings, RateLimiting
from headrace.domain.retry import Backoff, RetryStrategy
from tests.console.conftest import Browser, Shown


def edit(browser: Browser, **fields: str) -> Shown:
    form = browser.get("/console/queues/mail/settings").page
    return browser.submit(form, "/mail/settings", **fields)


def changes_of(shown: Shown) -> list[list[str]]:
    return [
        [cell.text for cell in (*row.all("th"), *row.all("td"))]
        for row in shown.page.one("table", class_="diff").one("tbody").all("tr")
    ]


def test_what_would_change_is_shown_and_then_saved(admin: Browser) -> None:
    admin.queue("mail", description="Letters")
    shown = edit(admin, keepalive="45.5", description="Letters & cards")

    assert changes_of(shown) == [
        ["Description", "Letters", "Letters & cards"],
        ["Lease", "30s", "45.5s"],
    ]
    assert admin.use.queues.get("mail").version == 1
    done = admin.follow(admin.submit(shown.page, "/mail/settings"))
    assert "Settings of mail are saved, as version 2." in done.text
    saved = admin.use.queues.get("mail").settings
    assert saved == QueueSettings(description="Letters & cards", keepalive_timeout_in_seconds=45.5)


def test_every_setting_goes_through_the_form_unchanged(admin: Browser) -> None:
    settings = QueueSettings(
        description="x",
        retry_strategy=RetryStrategy(Backoff.INTERVALS, 3, intervals=(1, 2.5, 600), jitter=0),
        dead_letter_queue_config=DeadLetterConfig(enable=False, max_size=7),
        shards=4,
        priority=PrioritySettings(90),
    )
    limited = replace(settings.dequeuing_settings, rate_limiting=RateLimiting(5, 2))
    settings = replace(settings, dequeuing_settings=limited)
    admin.use.queues.create("mail", settings)
    admin.submit(edit(admin, history="60").page, "/mail/settings")

    assert admin.use.queues.get("mail").settings == replace(
        settings, history_retention_in_seconds=60
    )


def test_nothing_changed_is_nothing_to_save(admin: Browser) -> None:
    admin.queue("mail")
    shown = edit(admin)

    assert "Nothing would change." in shown.text
    assert "Save" not in shown.text


def test_a_change_by_somebody_else_is_shown_on_both_sides_and_kept(admin: Browser) -> None:
    admin.queue("mail")
    shown = edit(admin, keepalive="45")
    theirs = QueueSettings(keepalive_timeout_in_seconds=10, shards=2)
    admin.use.queues.replace("mail", theirs)
    conflict = admin.submit(shown.page, "/mail/settings")

    assert conflict.status == 409
    assert "from version 1 to 2" in conflict.text
    assert changes_of(conflict) == [
        ["Lease", "30s", "10s", "45s"],
        ["Shards", "1", "2", "not changed by you"],
    ]
    assert admin.use.queues.get("mail").version == 2
    done = admin.follow(admin.submit(conflict.page, "/mail/settings"))
    assert "version 3" in done.text
    assert admin.use.queues.get("mail").settings == replace(theirs, keepalive_timeout_in_seconds=45)


def test_a_pause_stays_a_pause(admin: Browser) -> None:
    admin.queue("mail")
    admin.use.queues.pause("mail", resume_in_seconds=60)
    admin.submit(edit(admin, keepalive="45").page, "/mail/settings")

    queue = admin.use.queues.get("mail")
    assert queue.settings.dequeuing_settings.dequeuing_paused
    assert queue.resume_at is not None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("keepalive", "0", "must be a length of time from 1s to 12h"),
        ("shards", "65", "must be a whole number from 1 to 64"),
        ("jitter", "1.1", "must be a number from 0 to 1"),
        ("retry_kind", "sometimes", "must be one of exponential"),
    ],
)
def test_a_wrong_field_is_named_with_its_limit_and_keeps_what_was_typed(
    admin: Browser, name: str, value: str, says: str
) -> None:
    admin.queue("mail")
    refused = edit(admin, **{name: value})

    assert refused.status == 400
    assert says in refused.page.one("p", id=f"e-{name}").text
    if name not in ("retry_kind", "dead_enable"):
        assert refused.page.one("input", name=name).attributes["value"] == value


@pytest.mark.parametrize("base", ["{", "null"])
def test_a_broken_record_of_what_was_there_breaks_nothing(admin: Browser, base: str) -> None:
    admin.queue("mail")

    assert "Nothing would change." in edit(admin, base=base, version="x").text


def test_only_admins_of_the_queue_edit(admin: Browser) -> None:
    admin.queue("mail")

    for browser in (
        admin.as_role(Role.OPERATOR),
        admin.as_role(Role.VIEWER),
        admin.as_role(Role.ADMIN, "sms"),
    ):
        assert browser.get("/console/queues/mail/settings").status == 403
    assert "Edit settings" not in admin.as_role(Role.OPERATOR).get("/console/queues/mail").text
    assert edit(admin, token="forged").status == 403


def test_lengths_of_time_are_typed_as_people_write_them(admin: Browser) -> None:
    admin.queue("mail")
    shown = edit(
        admin, keepalive="1h30m", history="14d", expires="0", retry_kind="intervals",
        intervals="10s, 1m,10 min",
    )  # fmt: skip

    assert ["Lease", "30s", "1h30m"] in changes_of(shown)
    assert ["Waits", "nothing", "10s, 1m, 10m"] in changes_of(shown)
    page = admin.follow(admin.submit(shown.page, "/mail/settings"))
    saved = admin.use.queues.get("mail").settings
    assert saved.keepalive_timeout_in_seconds == 5400
    assert saved.history_retention_in_seconds == 1_209_600
    assert saved.retry_strategy.intervals == (10, 60, 600)
    assert "Lease 1h30m" in page.text
    assert "Succeeded are kept 14d" in page.text
    assert "Retries 3, after 10s, 1m, 10m" in page.text
    form = admin.get("/console/queues/mail/settings").page
    assert form.one("input", name="keepalive").attributes["value"] == "1h30m"
