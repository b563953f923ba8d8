"""Every route and every role: who gets in, and who does not."""

from dataclasses import replace

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import KEY, Service
from tests.functional.roles import EVERYBODY, KEYED, MAY, OPEN, OPERATIONS, everything, keyed, send


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
