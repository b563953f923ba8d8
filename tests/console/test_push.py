"""The target of a queue in the console: how it is doing, and that others see no headers."""

from headrace.domain.on_end import OnEnd
from headrace.domain.push import Target
from headrace.domain.push_answers import PushLimit, TargetAnswer
from headrace.ops.shared.push_status import SEATS, PushCounts, seat_name
from headrace.ops.shared.seats import Seat
from tests.console.conftest import Browser

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


def test_a_queue_without_a_target_shows_none(admin: Browser) -> None:
    admin.queue("mail")
    assert "Dispatchers now" not in admin.get("/console/queues/mail").body


def test_the_form_of_settings_leaves_a_target_alone(admin: Browser) -> None:
    admin.queue("hooks", target=TARGET)
    form = admin.get("/console/queues/hooks/settings").page
    shown = admin.submit(form, "/hooks/settings", description="new")
    admin.submit(shown.page, "/hooks/settings")
    settings = admin.use.queues.get("hooks").settings
    assert (settings.description, settings.target) == ("new", TARGET)
