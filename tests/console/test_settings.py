"""A queue's settings: what would change is shown before it is saved, and nothing else changes."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.push import MASK, Target
from headrace.domain.queue_settings import (
    AlertSettings,
    DeadLetterConfig,
    OnEnd,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.settings import Kind, Setting, declared_settings
from headrace.domain.task import State
from headrace.domain.task_groups import GroupMode, GroupSettings
from tests.console.conftest import Browser, Shown, typed_in

URL = "https://example.com/tasks"
FAIR = GroupSettings(GroupMode.FAIR, {"acme": 4.0, "a=b": 0.5}, 3)


def edit(browser: Browser, **fields: str) -> Shown:
    form = browser.get("/console/queues/mail/settings").page
    return browser.submit(form, "/mail/settings", **fields)


def changes_of(shown: Shown) -> list[list[str]]:
    return [
        [cell.text for cell in (*row.all("th"), *row.all("td"))]
        for row in shown.page.one("table", class_="diff").one("tbody").all("tr")
    ]


@pytest.mark.parametrize("order", [{"priority": PrioritySettings(90)}, {"groups": FAIR}])
def test_every_setting_goes_through_the_form_unchanged(
    admin: Browser, order: dict[str, Any]
) -> None:
    admin.queue("ops")
    settings = QueueSettings(
        description="x",
        retry_strategy=RetryStrategy(Backoff.INTERVALS, 3, intervals=(1, 2.5, 600), jitter=0),
        dead_letter_queue_config=DeadLetterConfig(enable=False, max_size=7),
        shards=4,
        target=Target(URL, headers={"Authorization": "Bearer hush"}),
        on_end=OnEnd("ops"),
        alerts=AlertSettings("ops", 300, dead_per_minute=10, no_workers_for_seconds=120),
        **order,
    )
    limited = replace(settings.dequeuing_settings, rate_limiting=RateLimiting(5, 2))
    settings = replace(settings, dequeuing_settings=limited)
    admin.use.queues.create("mail", settings)
    admin.use.queues.pause("mail", resume_in_seconds=60)
    admin.save("mail", history="60")

    saved = admin.settings("mail")
    assert saved.dequeuing_settings.dequeuing_paused
    assert replace(saved, dequeuing_settings=limited) == replace(
        settings, history_retention_in_seconds=60
    )


@pytest.mark.parametrize(
    "setting",
    [one for one in declared_settings(QueueSettings) if one.about.short],
    ids=lambda one: one.about.short,
)
def test_every_declared_setting_with_a_short_name_has_a_field(
    admin: Browser, setting: Setting
) -> None:
    typed, value = {
        Kind.TEXT: ("<one>", "<one>"),
        Kind.FLAG: ("no", False),
        Kind.NUMBER: ("0.5", 0.5),
        Kind.SECONDS: ("2m", 120),
        Kind.WHOLE: ("7", 7),
    }[setting.kind]
    admin.queue("mail")
    admin.save("mail", **{setting.about.short: typed})

    assert setting.value_in(admin.settings("mail")) == value
    if setting.kind is Kind.TEXT:
        shown = "" if setting.name == "description" else "?tab=settings"
        assert "<one>" in admin.get(f"/console/queues/mail{shown}").text


@pytest.mark.parametrize(
    ("typed", "name", "value", "off"),
    [
        (
            {"groups_mode": "fair", "group_limit": "3", "group_weights": "acme=4, a=b=0.5"},
            "groups", FAIR, {"groups_mode": "none"},
        ),
        ({"aging": "60"}, "priority", PrioritySettings(60), {"aging": ""}),
        (
            {"alert_queue": "ops", "alert_dead": "3"},
            "alerts", AlertSettings("ops", dead_per_minute=3),
            {"alert_queue": "", "alert_dead": ""},
        ),
        (
            {"told_queue": "ops", "told_states": "dead"},
            "on_end", OnEnd("ops", (State.DEAD,)), {"told_queue": ""},
        ),
        (
            {"target_url": URL, "target_timeout": "2.5", "target_concurrency": "7"},
            "target", Target(URL, None, 2.5, 7), {"target_url": ""},
        ),
        (
            {"target_url": URL, "target_headers": "Authorization: Bearer a:b\r\n\r\n X-Empty:"},
            "target", Target(URL, headers={"Authorization": "Bearer a:b", "X-Empty": ""}),
            {"target_url": "", "target_headers": ""},
        ),
    ],
    ids=["groups", "priority", "alerts", "on_end", "target", "headers"],
)  # fmt: skip
def test_a_group_of_settings_is_set_and_removed(
    admin: Browser, typed: dict[str, str], name: str, value: object, off: dict[str, str]
) -> None:
    admin.queue("ops")
    admin.queue("mail")
    admin.save("mail", **typed)
    assert getattr(admin.settings("mail"), name) == value
    admin.save("mail", **off)
    assert getattr(admin.settings("mail"), name) is None


@pytest.mark.parametrize(
    ("name", "typed", "says"),
    [
        ("lease_seconds", {"lease_seconds": "0"}, "must be a length of time from 1s to 12h"),
        ("shards", {"shards": "65"}, "must be a whole number from 1 to 64"),
        ("jitter", {"jitter": "1.1"}, "must be a number from 0 to 1"),
        ("retry_kind", {"retry_kind": "sometimes"}, "must be one of exponential"),
        ("aging", {"groups_mode": "fair", "aging": "60"}, "must be empty: the queue has groups"),
        ("group_weights", {"groups_mode": "fair", "group_weights": "a=0"}, "from 0.01 to 1,000"),
        ("alert_queue", {"alert_dead": "3"}, "is needed: the queue that gets"),
        ("told_queue", {"told_queue": "nowhere"}, "there is no queue nowhere"),
        ("target_url", {"target_url": "https://127.0.0.1/"}, "into a private network"),
        ("target_lambda", {"target_lambda": "resize"}, "must be the ARN of a Lambda function"),
        (
            "target_headers",
            {"target_url": URL, "target_headers": "X-One"},
            "must be one a line, as Name: value",
        ),
        (
            "target_headers",
            {"target_url": URL, "target_headers": f"X-One: {MASK}"},
            "X-One is masked: give its value",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_limit_and_keeps_what_was_typed(
    admin: Browser, name: str, typed: dict[str, str], says: str
) -> None:
    admin.queue("mail")
    before = admin.settings("mail")
    refused = edit(admin, **typed)

    assert refused.status == 400
    assert says in refused.page.one("p", id=f"e-{name}").text
    for field in refused.page.all("input"):
        named = field.attributes.get("name", "")
        assert field.attributes.get("value") == typed.get(named, field.attributes.get("value"))
    assert admin.settings("mail") == before


def test_what_would_change_is_shown_and_then_saved(admin: Browser) -> None:
    admin.queue("mail", description="Letters")
    shown = edit(admin, lease_seconds="45.5", description="Letters & cards")

    assert changes_of(shown) == [
        ["Description", "Letters", "Letters & cards"],
        ["Lease", "30s", "45.5s"],
    ]
    assert admin.use.queues.get("mail").version == 1
    done = admin.follow(admin.submit(shown.page, "/mail/settings"))
    assert "Settings of mail saved as version 2." in done.text
    saved = admin.settings("mail")
    assert saved == QueueSettings(description="Letters & cards", keepalive_timeout_in_seconds=45.5)


def test_a_change_by_somebody_else_is_shown_on_both_sides_and_kept(admin: Browser) -> None:
    admin.queue("mail")
    shown = edit(admin, lease_seconds="45")
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
    assert admin.settings("mail") == replace(theirs, keepalive_timeout_in_seconds=45)


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
        admin, lease_seconds="1h30m", history="14d", expires="0", retry_kind="intervals",
        intervals="10s, 1m,10 min",
    )  # fmt: skip

    assert ["Lease", "30s", "1h30m"] in changes_of(shown)
    assert ["Waits", "nothing", "10s, 1m, 10m"] in changes_of(shown)
    page = admin.follow(admin.submit(shown.page, "/mail/settings"))
    saved = admin.settings("mail")
    assert saved.keepalive_timeout_in_seconds == 5400
    assert saved.history_retention_in_seconds == 1_209_600
    assert saved.retry_strategy.intervals == (10, 60, 600)
    assert "Lease 1h30m" in page.text
    assert "History 14d" in page.text
    assert "Retries 3, after 10s, 1m, 10m" in page.text
    form = admin.get("/console/queues/mail/settings").page
    assert form.one("input", name="lease_seconds").attributes["value"] == "1h30m"


def test_the_form_masks_headers_keeps_what_they_say_and_drops_the_unnamed(admin: Browser) -> None:
    headers = {"Authorization": "Bearer hush", "X-One": "hush too"}
    admin.queue("hooks", target=Target(URL, headers=headers))
    form = admin.get("/console/queues/hooks/settings")
    shown = typed_in(form.page.one("textarea", name="target_headers"))
    assert shown == f"Authorization: {MASK}\r\nX-One: {MASK}"
    assert "hush" not in form.body
    kept = f"authorization: {MASK}"
    admin.save("hooks", target_url="https://example.com/other", target_headers=kept)
    target = admin.settings("hooks").target
    assert target == Target("https://example.com/other", headers={"authorization": "Bearer hush"})


def test_who_may_not_know_the_queue_that_is_told_keeps_it_unnamed(admin: Browser) -> None:
    admin.queue("ends")
    admin.queue("mail", on_end=OnEnd("ends"))
    other = admin.as_role(Role.ADMIN, "mail")
    form = other.get("/console/queues/mail/settings")
    assert form.page.one("input", name="told_queue").attributes["value"] == MASK
    assert "ends" not in [one.attributes.get("value") for one in form.page.all("input")]
    other.save("mail", told_states="dead")
    assert admin.settings("mail").on_end == OnEnd("ends", (State.DEAD,))
    refused = other.submit(form.page, "/mail/settings", told_queue="ends2")
    assert "there is no queue ends2" in refused.page.one("p", id="e-told_queue").text
