"""Home: what needs attention, the worst first, and below it all queues, sorted by their heads."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.domain.access import Role
from headrace.domain.alerts import Measured
from headrace.domain.push import Target
from headrace.domain.push_messages import PushLimit, TargetAnswer
from headrace.domain.queue_settings import AlertSettings, DequeuingSettings
from headrace.domain.worker import WorkerHeartbeat
from headrace.ops.shared.push_status import SEATS, PushCounts, seat_name
from headrace.ops.shared.seats import Seat
from tests.console.conftest import Browser, Shown


def troubles(shown: Shown) -> dict[str, str]:
    """What home says of each queue that needs attention, in its order."""
    return {
        each.one("a", class_="trouble-name").text: each.one("ul").text
        for each in shown.page.all("li", class_="trouble")
    }


def listening(admin: Browser, *queues: str) -> None:
    beat = WorkerHeartbeat("ada:1", queues, admin.clock(), 8)
    admin.use.workers.alive(beat)


def test_home_lists_troubled_queues_with_the_worst_first(admin: Browser) -> None:
    for name in ("calm", "stalled", "silent", "paused"):
        admin.queue(name)
    admin.queue("full", dequeuing_settings=DequeuingSettings(max_inflight_tasks=1))
    admin.put("silent", "{}")
    admin.put("stalled", "{}", "{}")
    admin.put("full", "{}", "{}")
    admin.take("full")
    admin.use.queues.pause("paused")
    admin.clock.forward(200)
    admin.record()
    listening(admin, "stalled", "full", "calm")

    said = troubles(admin.get("/console"))

    assert list(said) == ["stalled", "full", "silent", "paused"]
    assert "nothing was started in the last minute, though it has 1 worker" in said["stalled"]
    assert "its limit of 1 in flight is reached" in said["full"]
    assert "no workers 1 ready" in said["silent"]


def test_a_snoozed_incident_leaves_the_list_with_its_reason_until_its_time_is_over(
    admin: Browser,
) -> None:
    admin.queue("silent")
    admin.put("silent")
    admin.clock.forward(61)
    operator = admin.as_role(Role.OPERATOR)
    viewer = admin.as_role(Role.VIEWER)
    page = operator.get("/console").page
    assert "Snooze…" not in viewer.get("/console").text
    [link] = [a for a in page.all("a") if a.text == "Snooze…"]
    asked = operator.get(link.attributes["href"])
    refused = operator.submit(asked.page, "/snooze/silent", snooze_for="8d")
    assert refused.status == 400

    sent = operator.submit(refused.page, "/snooze/silent", snooze_for="1h", reason="deploying")
    shown = operator.follow(sent)

    assert troubles(shown) == {}
    assert "Nothing needs attention. 1 snoozed silent no workers ends" in shown.text
    assert "by the operator: deploying" in shown.text
    assert "deploying" not in viewer.get("/console").text
    [entry] = admin.audited("snooze")
    assert (entry.queue, entry.reason) == ("silent", "deploying")
    operator.submit(shown.page, "/snooze/silent", do="wake")
    assert list(troubles(operator.get("/console"))) == ["silent"]
    operator.submit(asked.page, "/snooze/silent", snooze_for="1h")
    assert troubles(operator.get("/console")) == {}
    admin.clock.forward(3_601)
    assert list(troubles(admin.another().sign_in().get("/console"))) == ["silent"]


def test_home_shows_the_ten_worst_and_leads_to_the_others(admin: Browser) -> None:
    names = [f"q{number:02}" for number in range(12)]
    for name in names:
        admin.queue(name)
        admin.put(name)
    admin.clock.forward(61)

    home = admin.get("/console")
    assert list(troubles(home)) == names[:10]
    [more] = [a for a in home.page.all("a") if a.text == "and 2 more"]
    assert list(troubles(admin.get(more.attributes["href"]))) == names


def test_the_bar_has_six_places_and_the_menu_the_keys(admin: Browser) -> None:
    def places(browser: Browser) -> list[str]:
        page = browser.get("/console").page
        menu = page.one("div", class_="who").all("a")
        return [a.text for a in page.one("nav", class_="places").all("a") + menu]

    six = ["Queues", "Errors", "Workers", "Schedules", "Workflows", "Activity"]
    assert places(admin) == [*six, "Keys"]
    assert places(admin.as_role(Role.VIEWER)) == six[:-1]
    assert places(admin.as_role(Role.PRODUCER)) == ["Queues", "Schedules", "Workflows"]
    assert "Proof" not in admin.get("/console").text
    assert "Pipelines" not in admin.get("/console").text


def test_a_pause_says_why_at_home_on_its_queue_and_in_the_audit(admin: Browser) -> None:
    admin.queue()
    operator = admin.as_role(Role.OPERATOR)
    form = operator.get("/console/queues/mail").page
    operator.submit(form, "/mail/pause", reason=" mail provider is down ")
    admin.clock.forward(600)

    assert troubles(admin.get("/console"))["mail"].endswith(": mail provider is down Snooze…")
    told = "Paused by the operator 10 min ago : mail provider is down."
    assert told in admin.get("/console/queues/mail").text
    audit = admin.get("/console/activity?q=action:pause").text
    assert "the operator Paused mail: mail provider is down" in audit
    viewer = admin.as_role(Role.VIEWER)
    for path in ("/console", "/console/queues/mail"):
        assert "mail provider" not in viewer.get(path).text

    admin.use.queues.replace("mail", replace(admin.settings("mail"), shards=2))
    assert told in admin.get("/console/queues/mail").text, "other settings change nothing of it"

    operator.submit(operator.get("/console/queues/mail").page, "/mail/resume")
    admin.clock.forward(60)
    operator.submit(operator.get("/console/queues/mail").page, "/mail/pause")
    assert "mail provider" not in admin.get("/console/queues/mail").text


# -- the tour of the guide leads over pages that are there, and names what stands on them ----------

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "console.md"
STOPS = re.split(r"^Open `([^`]+)`\.$", GUIDE.read_text(), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(("address", "told"), list(zip(STOPS[::2], STOPS[1::2], strict=True)))
def test_the_tour_leads_to_what_it_tells_of(filled: Browser, address: str, told: str) -> None:
    filled.put("ngsi.notify")
    filled.clock.forward(120)
    shown = filled.get(address)

    assert shown.status == 200
    named = re.findall(r"\*\*([^*]+)\*\*", told.split("\n## ", maxsplit=1)[0])
    assert [name for name in named if name not in shown.text] == []


# -- targets and alerts ----------------------------------------------------------------------------

TARGET = Target(url="https://example.com/tasks", headers={"Authorization": "Bearer hush"})


def test_a_target_is_shown_with_its_answers_and_that_it_backs_off(admin: Browser) -> None:
    use = admin.use
    admin.queue("hooks", target=TARGET)
    limit, counts = PushLimit(10), PushCounts()
    counts.add(TargetAnswer(200), 0.1)
    assert "Backing off" not in admin.get("/console/queues/hooks").body
    counts.add(TargetAnswer(503), 0.3)
    limit.halve(1.0, sent_at=1.0)
    seat = Seat(use.push.store, use.now, kind=SEATS, name=seat_name("hooks", 0))
    assert seat.take(counts.notes(limit, 1.0))
    told = "Backing off: target answered 503; 5 of 10 slots, +1 each second."
    assert told in admin.get("/console/queues/hooks").body
    home = admin.get("/console")
    said = "backing off 0 ready, target answered 503; 5 of 10 slots, +1 each second"
    assert said in troubles(home)["hooks"]
    assert "backing off" in home.page.one("table", class_="queues").text
    body = admin.get("/console/queues/hooks?tab=settings").body
    assert "https://example.com/tasks" in body
    assert "200: 1, 503: 1" in body
    assert "Latency</dt><dd>p50 100 ms, p99 300 ms" in body
    assert "hush" not in body


def test_alerts_are_shown_with_their_limits(admin: Browser) -> None:
    admin.queue("ops")
    alerts = AlertSettings("ops", 300, dead_per_minute=10, no_workers_for_seconds=120)
    admin.queue("mail", alerts=alerts)
    body = admin.get("/console/queues/mail?tab=settings").body
    words = "oldest ready for 5m or 10 tasks dead in a minute or no worker for 2m"
    assert f"ops, when {words}" in body
    assert "Alert:" not in body
    measured = Measured(oldest_ready=300.0, dead=9)
    admin.use.alerts.settle(admin.use.queues.get("mail"), alerts, measured)
    assert "Alert: oldest ready for 5m, since" in admin.get("/console/queues/mail").body
    home = admin.get("/console").body
    assert home.count("oldest ready for 5m, since") == 1
    assert "dead in a minute" not in home
