"""The target of a queue in the console: how it is doing, and that others see no headers."""

from headrace.domain.alerts import Measured
from headrace.domain.push import Target
from headrace.domain.push_messages import PushLimit, TargetAnswer
from headrace.domain.queue_settings import AlertSettings
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
    assert "Latency</dt><dd>100 ms, at 99 % 300 ms" in body
    assert "The target answers 503: 5 of 10 requests are under way at once" in body
    assert "hush" not in body


def test_alerts_are_shown_with_their_limits(admin: Browser) -> None:
    admin.queue("ops")
    alerts = AlertSettings("ops", 300, dead_per_minute=10, no_workers_for_seconds=120)
    admin.queue("mail", alerts=alerts)
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
