"""The target of a queue in the console: how it is doing, and that others see no headers."""

from dataclasses import replace

import pytest

from headrace.domain.access import Role
from headrace.domain.alerts import Measured
from headrace.domain.on_end import OnEnd
from headrace.domain.push import MASK, Target
from headrace.domain.push_answers import PushLimit, TargetAnswer
from headrace.domain.queue import AlertSettings
from headrace.domain.task import State
from headrace.ops.shared.push_status import SEATS, PushCounts, seat_name
from headrace.ops.shared.seats import Seat
from tests.console.conftest import Browser, typed_in

TARGET = Target(url="https://example.com/tasks", headers={"Authorization": "Bearer hush"})


def test_a_target_is_shown_with_its_answers_and_that_it_backs_off(admin: Browser) -> None:
    use = admin.use
    admin.queue("hooks", target=TARGET)
    limit, counts = PushLimit(10), PushCounts()
    counts.add(TargetAnswer(200), 0.1)
    assert "The target answers" not in admin.get("/console/queues/hooks").body
    counts.add(TargetAnswer(503), 0.3)
    limit.halve(1.0, sent_at=1.0)
    seat = Seat(use.push.store, use.now, kind=SEATS, name=seat_name("hooks", 0))
    assert seat.take(counts.notes(limit, 1.0))
    body = admin.get("/console/queues/hooks").body
    assert "https://example.com/tasks" in body
    assert "200: 1, 503: 1" in body
    assert "Latency</dt><dd>100 ms, at 99 % 300 ms" in body
    assert "The target answers 503: 5 of 10 requests are under way at once" in body
    assert "hush" not in body


def test_who_is_told_of_ends_is_shown_and_left_alone_by_the_form(admin: Browser) -> None:
    admin.queue("ends")
    admin.queue("mail", on_end=OnEnd("ends"))
    body = admin.get("/console/queues/mail").body
    assert "Told of ends" in body
    assert "ends, of those that end succeeded and dead" in body
    form = admin.get("/console/queues/mail/settings").page
    shown = admin.submit(form, "/mail/settings", description="new")
    admin.submit(shown.page, "/mail/settings")
    assert admin.use.queues.get("mail").settings.on_end == OnEnd("ends")
    assert "Told of ends" not in admin.get("/console/queues/ends").body


def test_alerts_are_shown_with_their_limits_and_left_alone_by_the_form(admin: Browser) -> None:
    admin.queue("ops")
    alerts = AlertSettings("ops", 300, dead_per_minute=10, no_workers_for_seconds=120)
    admin.queue("mail", alerts=alerts)
    form = admin.get("/console/queues/mail/settings").page
    shown = admin.submit(form, "/mail/settings", description="new")
    admin.submit(shown.page, "/mail/settings")
    assert admin.use.queues.get("mail").settings.alerts == alerts
    body = admin.get("/console/queues/mail").body
    words = "oldest ready for 5m or 10 tasks dead in a minute or no worker for 2m"
    assert f"ops, when {words}" in body
    assert "Alert:" not in body
    measured = Measured(oldest_ready=300.0, dead=9)
    admin.use.alerts.settle(admin.use.queues.get("mail"), alerts, measured)
    assert "Alert: oldest ready for 5m, since" in admin.get("/console/queues/mail").body
    home = admin.get("/console").body
    assert home.count("oldest ready for 5m, since") == 1
    assert "dead in a minute" not in home


def test_alerts_are_set_in_the_form_and_taken_away(admin: Browser) -> None:
    admin.queue("ops")
    admin.queue("mail")
    form = admin.get("/console/queues/mail/settings").page
    shown = admin.submit(form, "/mail/settings", alert_queue="ops", alert_dead="3")
    admin.submit(shown.page, "/mail/settings")
    assert admin.use.queues.get("mail").settings.alerts == AlertSettings("ops", dead_per_minute=3)
    form = admin.get("/console/queues/mail/settings").page
    shown = admin.submit(form, "/mail/settings", alert_queue="", alert_dead="")
    admin.submit(shown.page, "/mail/settings")
    assert admin.use.queues.get("mail").settings.alerts is None


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ({"alert_queue": "ops"}, "must be there unless another limit is"),
        ({"alert_dead": "3"}, "must be there: who is told"),
        ({"alert_queue": "ops", "alert_silence": "59"}, "must be a length of time from 1m"),
        ({"alert_queue": "mail", "alert_dead": "1"}, "must be another queue"),
    ],
)
def test_alerts_that_cannot_be_are_refused_at_their_field(
    admin: Browser, typed: dict[str, str], fault: str
) -> None:
    admin.queue("ops")
    admin.queue("mail")
    form = admin.get("/console/queues/mail/settings").page
    shown = admin.submit(form, "/mail/settings", **typed)
    assert shown.status == 400
    assert fault in shown.body


def test_who_may_not_know_who_is_told_of_alerts_leaves_that_alone(admin: Browser) -> None:
    admin.queue("ops")
    admin.queue("mail", alerts=AlertSettings("ops", dead_per_minute=3))
    other = admin.as_role(Role.ADMIN, "mail")
    form = other.get("/console/queues/mail/settings")
    assert "ops" not in form.body
    shown = other.submit(form.page, "/mail/settings", alert_dead="4")
    other.submit(shown.page, "/mail/settings")
    assert admin.use.queues.get("mail").settings.alerts == AlertSettings("ops", dead_per_minute=4)


def save(admin: Browser, queue: str, **fields: str) -> None:
    form = admin.get(f"/console/queues/{queue}/settings").page
    shown = admin.submit(form, f"/{queue}/settings", **fields)
    assert shown.status == 200, shown.text
    admin.follow(admin.submit(shown.page, f"/{queue}/settings"))


def test_the_form_sets_a_target_changes_it_and_takes_it_away(admin: Browser) -> None:
    admin.queue("hooks")
    url = "https://example.com/tasks"
    save(admin, "hooks", target_url=url, target_timeout="2.5", target_concurrency="7")
    assert admin.use.queues.get("hooks").settings.target == Target(url, None, 2.5, 7)
    save(admin, "hooks", target_url="https://example.com/other")
    target = admin.use.queues.get("hooks").settings.target
    assert target == Target("https://example.com/other", None, 2.5, 7)
    save(admin, "hooks", target_url="")
    assert admin.use.queues.get("hooks").settings.target is None


def test_the_form_masks_headers_keeps_what_they_say_and_drops_the_unnamed(admin: Browser) -> None:
    headers = {"Authorization": "Bearer hush", "X-One": "hush too"}
    admin.queue("hooks", target=replace(TARGET, headers=headers))
    form = admin.get("/console/queues/hooks/settings")
    shown = typed_in(form.page.one("textarea", name="target_headers"))
    assert shown == f"Authorization: {MASK}\r\nX-One: {MASK}"
    assert "hush" not in form.body
    kept = f"authorization: {MASK}"
    save(admin, "hooks", target_url="https://example.com/other", target_headers=kept)
    target = admin.use.queues.get("hooks").settings.target
    assert target == Target("https://example.com/other", headers={"authorization": "Bearer hush"})


def test_the_form_sets_headers_and_a_mask_keeps_what_there_was(admin: Browser) -> None:
    admin.queue("hooks")
    first = "Authorization: Bearer a:b\r\n\r\n X-Empty:"
    save(admin, "hooks", target_url="https://example.com/tasks", target_headers=first)
    target = admin.use.queues.get("hooks").settings.target
    assert target is not None
    assert target.headers == {"Authorization": "Bearer a:b", "X-Empty": ""}
    save(admin, "hooks", target_headers=f"Authorization: {MASK}\r\nX-New: 1")
    target = admin.use.queues.get("hooks").settings.target
    assert target is not None
    assert target.headers == {"Authorization": "Bearer a:b", "X-New": "1"}


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ("X-One", "must be one a line, as Name: value"),
        (f"X-One: {MASK}", "X-One is masked: say what it is"),
        ("X-One: 1\nx-one: 2", "x-one must be there once"),
        ("Host: a.example", "Host is set by the service"),
    ],
)
def test_headers_that_cannot_be_are_refused_at_their_field(
    admin: Browser, typed: str, fault: str
) -> None:
    admin.queue("hooks")
    form = admin.get("/console/queues/hooks/settings").page
    fields = {"target_url": "https://example.com", "target_headers": typed}
    refused = admin.submit(form, "/hooks/settings", **fields)
    assert refused.status == 400
    assert refused.page.one("p", id="e-target_headers").text == fault
    assert admin.use.queues.get("hooks").settings.target is None


def test_the_form_sets_who_is_told_of_which_ends(admin: Browser) -> None:
    admin.queue("ends")
    admin.queue("mail")
    save(admin, "mail", told_queue="ends", told_states="dead")
    assert admin.use.queues.get("mail").settings.on_end == OnEnd("ends", (State.DEAD,))
    save(admin, "mail", told_states="succeeded and dead")
    assert admin.use.queues.get("mail").settings.on_end == OnEnd("ends")
    save(admin, "mail", told_queue="")
    assert admin.use.queues.get("mail").settings.on_end is None


def test_who_may_not_know_the_queue_that_is_told_keeps_it_unnamed(admin: Browser) -> None:
    admin.queue("ends")
    admin.queue("mail", on_end=OnEnd("ends"))
    other = admin.as_role(Role.ADMIN, "mail")
    form = other.get("/console/queues/mail/settings")
    assert form.page.one("input", name="told_queue").attributes["value"] == MASK
    assert "ends" not in [one.attributes.get("value") for one in form.page.all("input")]
    save(other, "mail", told_states="dead")
    assert admin.use.queues.get("mail").settings.on_end == OnEnd("ends", (State.DEAD,))
    refused = other.submit(form.page, "/mail/settings", told_queue="ends2")
    assert "there is no queue ends2" in refused.page.one("p", id="e-told_queue").text


@pytest.mark.parametrize(
    ("given", "name", "fault"),
    [
        ({"target_url": "http://example.com"}, "target_url", "must begin with https://"),
        ({"target_url": "https://127.0.0.1/"}, "target_url", "into a private network"),
        ({"target_lambda": "resize"}, "target_lambda", "must be the ARN of a Lambda function"),
        ({"told_queue": "nowhere"}, "told_queue", "there is no queue nowhere"),
    ],
)
def test_what_is_wrong_with_a_target_or_who_is_told_stands_at_its_field(
    admin: Browser, given: dict[str, str], name: str, fault: str
) -> None:
    admin.queue("mail")
    form = admin.get("/console/queues/mail/settings").page
    refused = admin.submit(form, "/mail/settings", **given)
    assert refused.status == 400
    assert fault in refused.page.one("p", id=f"e-{name}").text
    settings = admin.use.queues.get("mail").settings
    assert (settings.target, settings.on_end) == (None, None)
