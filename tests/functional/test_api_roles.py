"""Every route and every role: what each may call, and what viewers see."""

from dataclasses import replace

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import HIDDEN, KEY, Service
from tests.functional.roles import (
    EVERYBODY,
    KEYED,
    MAY,
    OPEN,
    OPERATIONS,
    OPERATOR,
    VIEWER,
    everything,
    keyed,
    send,
    tasks,
)


def test_every_route_has_a_row_in_the_table() -> None:
    assert {*OPERATIONS} == {*MAY, *OPEN}


@pytest.mark.parametrize("route", KEYED)
def test_a_role_may_do_what_the_table_says_and_nothing_else(filled: Service, route: str) -> None:
    services = {role: keyed(filled, role) for role in Role}
    filled.polls(filled.clock.forward)
    before = everything(filled)

    for key in (None, "wrong", f"hr_{'0' * 20}_{'0' * 40}"):
        answer = send(replace(filled, key=key), route, queue="mail")
        assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    for role in EVERYBODY - MAY[route]:
        answer = send(services[role], route, queue="mail")
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), role
        assert all(name in answer.json["detail"] for name in MAY[route])
        # The role is checked before the body is read.
        assert send(services[role], route, body='{"no": ').status == 403
    assert everything(filled) == before
    for role in MAY[route]:
        answer = send(services[role], route, queue="mail")
        if route.endswith("/payloads"):
            assert "PayloadOffloadBytes" in answer.json["detail"]  # not configured here
        else:
            assert answer.status in {200, 201, 204, 404, 409}, (role, answer.body)


def test_what_needs_no_key_takes_none_and_any(call: Service) -> None:
    for route in OPEN:
        for key in (None, "wrong", KEY):
            assert send(replace(call, key=key), route).status == 200


def test_the_documents_say_who_may_what() -> None:
    for route in KEYED:
        assert {*OPERATIONS[route]["x-roles"]} == MAY[route]
        assert (
            f"Roles: {', '.join(OPERATIONS[route]['x-roles'])}."
            in (OPERATIONS[route]["description"])
        )
        assert "403" in OPERATIONS[route]["responses"]
    for route in OPEN:
        assert "x-roles" not in OPERATIONS[route]
        assert "403" not in OPERATIONS[route]["responses"]


# -- viewers ---------------------------------------------------------------------------------------


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
