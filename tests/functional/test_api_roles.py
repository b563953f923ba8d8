"""Every route and every role: who gets in, and who does not."""

from dataclasses import replace

import pytest

from headrace.domain.access import Role
from headrace.http.permissions import NEEDS, needs_of
from tests.functional.conftest import KEY, Service
from tests.functional.roles import EVERYBODY, KEYED, MAY, OPEN, OPERATIONS, everything, keyed, send


def test_every_route_has_a_row_in_the_table() -> None:
    assert {*OPERATIONS} <= {*MAY, *OPEN}
    assert {*NEEDS} == {*MAY, *OPEN}


def test_a_route_without_a_row_stops_the_service_from_starting() -> None:
    with pytest.raises(LookupError, match="GET /v1/new has no row"):
        needs_of("GET", "/v1/new")


@pytest.mark.parametrize("route", KEYED)
def test_a_role_may_do_what_the_table_says_and_nothing_else(filled: Service, route: str) -> None:
    services = {role: keyed(filled, role) for role in Role}
    filled.use.deliveries.sleep = filled.clock.forward
    before = everything(filled)

    for role in EVERYBODY - MAY[route]:
        answer = send(services[role], route, queue="mail")
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), role
        assert "that takes the role" in answer.json["detail"]
        assert all(name in answer.json["detail"] for name in MAY[route])
    assert everything(filled) == before
    for role in MAY[route]:
        answer = send(services[role], route, queue="mail")
        if route.endswith("/payloads"):
            assert "PayloadOffloadBytes" in answer.json["detail"]  # as far as it comes here
        else:
            assert answer.status in {200, 201, 204, 404, 409}, (role, answer.body)


@pytest.mark.parametrize("route", KEYED)
def test_a_refusal_comes_before_the_body_is_looked_at(call: Service, route: str) -> None:
    for role in EVERYBODY - MAY[route]:
        answer = send(keyed(call, role), route, body='{"no": ')
        assert answer.status == 403


@pytest.mark.parametrize("route", KEYED)
def test_without_a_key_nothing_is_done_at_all(filled: Service, route: str) -> None:
    before = everything(filled)

    for key in (None, "wrong", f"hr_{'0' * 20}_{'0' * 40}"):
        answer = send(replace(filled, key=key), route, queue="mail")
        assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"

    assert everything(filled) == before


@pytest.mark.parametrize("route", sorted(OPEN))
def test_what_needs_no_key_takes_none_and_any(call: Service, route: str) -> None:
    for key in (None, "wrong", KEY):
        assert send(replace(call, key=key), route).status == 200


def test_where_there_is_nothing_there_is_nothing_for_any_role(call: Service) -> None:
    for role in Role:
        assert keyed(call, role, "mail")("GET", "/v1/nothing").status == 404


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
