"""Targets and signing secrets through the API."""

from headrace.domain.push import MASK
from tests.functional.conftest import Service

TARGET = {"url": "https://example.com/tasks", "headers": {"Authorization": "Bearer x"}}


def test_what_get_shows_can_be_sent_back_and_a_mask_keeps_what_there_was(call: Service) -> None:
    path = call.queue(target=TARGET)
    shown = call("GET", path).json
    assert call("PUT", path, shown).json["target"] == shown["target"]
    shown["target"]["headers"] = {"authorization": MASK, "X-New": "1"}
    del shown["version"]
    kept = call("PUT", path, shown).json["target"]["headers"]
    assert kept == {"authorization": "Bearer x", "X-New": "1"}


def test_a_worker_gets_nothing_and_explain_is_silent_while_the_target_is_well(
    call: Service,
) -> None:
    path = call.queue(target=TARGET)
    made = call("POST", f"{path}/tasks", {"tasks": [{"payload": 1}]}).json["results"][0]
    answer = call("POST", f"{path}/dequeue", {"batch_size": 5}).json
    assert answer["tasks"] == []
    assert answer["poll_after_seconds"] >= 5
    assert call("GET", f"/v1/tasks/{made['id']}/explain").json["reasons"] == []


def test_secrets_are_shown_and_rotated(call: Service) -> None:
    path = call.queue(target=TARGET)
    first = call("GET", f"{path}/signing-secret").json
    assert first["secret"].startswith("whsec_")
    assert (first["previous"], first["previous_until"]) == (None, None)
    second = call("POST", f"{path}/signing-secret/rotate").json
    assert second["previous"] == first["secret"] != second["secret"]
    assert second["previous_until"] is not None
    assert call("GET", f"{path}/signing-secret").json == second
    audit = call("GET", "/v1/audit").json["entries"]
    assert "rotate_signing_secret" in [entry["action"] for entry in audit]


def test_a_queue_that_is_created_again_has_another_secret(call: Service) -> None:
    path = call.queue(target=TARGET)
    leaked = call("GET", f"{path}/signing-secret").json["secret"]
    rotated = call("POST", f"{path}/signing-secret/rotate").json["secret"]
    assert call("DELETE", path).status in {202, 204}
    call.clock.forward(1)
    call.use.reaping.run()

    call.queue(target=TARGET)
    again = call("GET", f"{path}/signing-secret").json["secret"]
    later = call("POST", f"{path}/signing-secret/rotate").json["secret"]

    assert {again, later}.isdisjoint({leaked, rotated})
