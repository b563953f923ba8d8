"""Who is told of ends, through the API."""

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed

ON_END = {"queue": "ends", "states": ["SUCCEEDED", "DEAD"]}


def test_it_is_shown_with_its_defaults_and_can_be_sent_back(call: Service) -> None:
    call.queue("ends")
    path = call.queue("mail", on_end={"queue": "ends"})
    shown = call("GET", path).json
    assert shown["on_end"] == ON_END
    assert call("PUT", path, shown).json["on_end"] == ON_END
    shown |= {"on_end": None, "version": 2}
    assert call("PUT", path, shown).json["on_end"] is None


def test_a_key_for_some_queues_hears_nothing_of_others_and_changes_nothing(call: Service) -> None:
    call.queue("ends")
    path = call.queue("mail", on_end={"queue": "ends", "states": ["DEAD"]})
    service = keyed(call, Role.ADMIN, "mail", "more")
    shown = service("GET", path).json
    assert shown["on_end"] == {"queue": None, "states": ["DEAD"]}
    assert service("PUT", path, {**shown, "description": "new"}).status == 200
    assert call("GET", path).json["on_end"] == {"queue": "ends", "states": ["DEAD"]}
    for queue in ("ends", "nowhere"):
        answer = service("POST", "/v1/queues", {"name": "more", "on_end": {"queue": queue}})
        assert answer.status == 403
        assert answer.json["detail"] == f"this key is not for queue {queue}"
