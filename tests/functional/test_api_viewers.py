"""Viewers: they see that a task is there, and never what is in it."""

import pytest

from tests.functional.conftest import HIDDEN, Service
from tests.functional.roles import (
    KEYED,
    OPERATIONS,
    OPERATOR,
    VIEWER,
    keyed,
    send,
    tasks,
)


@pytest.mark.parametrize("route", [route for route in KEYED if route.startswith("GET ")])
def test_a_viewer_never_sees_payload_result_or_progress(filled: Service, route: str) -> None:
    viewer = keyed(filled, VIEWER)
    for task in tasks(filled, "ngsi.notify"):
        answer = send(viewer, route, queue="ngsi.notify", id=task["id"], name="nightly")

        assert answer.status in {200, 403, 404}
        assert not [text for text in HIDDEN.values() if text in answer.body]


@pytest.mark.parametrize(
    "route",
    [
        route
        for route in KEYED
        if "payload" in [of["name"] for of in OPERATIONS[route].get("parameters", [])]
    ],
)
def test_a_viewer_that_asks_for_payloads_is_refused(filled: Service, route: str) -> None:
    viewer, operator = keyed(filled, VIEWER), keyed(filled, OPERATOR)
    task_id = tasks(filled, "mail")[0]["id"]
    path = route.removeprefix("GET ").replace("{queue}", "mail").replace("{id}", task_id)

    refused = viewer("GET", path, query={"payload": "true"})

    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    assert "payloads" in refused.json["detail"]
    assert viewer("GET", path, query={"payload": "false"}).status == 200
    assert viewer("GET", path).status == 200
    assert HIDDEN["payload"] in operator("GET", path, query={"payload": "true"}).body
