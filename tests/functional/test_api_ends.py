"""Who is told of ends, through the API."""

from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("on_end", "field"),
    [
        ({}, "on_end.queue"),
        ({"queue": "bad"}, "on_end.queue"),
        ({"queue": "nowhere"}, "on_end.queue"),
        ({"queue": None}, "on_end.queue"),
        ({"queue": "a b"}, "on_end.queue"),
        ({"queue": "ends", "states": []}, "on_end.states"),
        ({"queue": "ends", "states": ["ENQUEUED"]}, "on_end.states[0]"),
        ({"queue": "ends", "states": ["DEAD", "DEAD", "DEAD"]}, "on_end.states"),
        ({"queue": "ends", "url": "https://example.com/"}, "on_end.url"),
    ],
)
def test_what_is_wrong_is_named(call: Service, on_end: dict[str, Any], field: str) -> None:
    call.queue("ends")
    answer = call("POST", "/v1/queues", {"name": "bad", "on_end": on_end})
    assert answer.status == 400
    assert field in [error["field"] for error in answer.json["errors"]]


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
