"""Alerts of queues, through the API."""

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed

ALERTS = {
    "queue": "ops",
    "oldest_ready_seconds": 300,
    "dead_per_minute": None,
    "no_workers_for_seconds": None,
}


def test_they_are_shown_with_their_defaults_and_can_be_sent_back(call: Service) -> None:
    call.queue("ops")
    path = call.queue("mail", alerts={"queue": "ops", "oldest_ready_seconds": 300})
    shown = call("GET", path).json
    assert shown["alerts"] == ALERTS
    assert shown["stats"]["alerts"] == []
    assert call("PUT", path, shown).json["alerts"] == ALERTS
    shown |= {"alerts": None, "version": 2}
    assert call("PUT", path, shown).json["alerts"] is None
    assert call("GET", path).json["stats"]["alerts"] is None


def test_one_that_is_on_is_shown_with_its_beginning(call: Service) -> None:
    call.queue("ops")
    path = call.queue("mail", alerts={"queue": "ops", "oldest_ready_seconds": 300})
    call("POST", f"{path}/tasks", {"tasks": [{"payload": 1}]})
    call.clock.forward(301)
    call.use.reaping.run()
    (alert,) = call("GET", f"{path}/stats").json["alerts"]
    assert (alert["threshold"], alert["limit"]) == ("oldest_ready_seconds", 300)
    assert alert["value"] >= 300
    assert call("GET", path).json["stats"]["alerts"] == [alert]


def test_a_key_for_some_queues_hears_nothing_of_others_and_changes_nothing(call: Service) -> None:
    call.queue("ops")
    path = call.queue("mail", alerts={"queue": "ops", "oldest_ready_seconds": 300})
    service = keyed(call, Role.ADMIN, "mail", "more")
    shown = service("GET", path).json
    assert shown["alerts"] == {**ALERTS, "queue": None}
    assert service("PUT", path, {**shown, "description": "new"}).status == 200
    assert call("GET", path).json["alerts"] == ALERTS
    for queue in ("ops", "nowhere"):
        alerts = {"queue": queue, "dead_per_minute": 1}
        answer = service("POST", "/v1/queues", {"name": "more", "alerts": alerts})
        assert answer.status == 403
        assert answer.json["detail"] == f"this key is not for queue {queue}"
