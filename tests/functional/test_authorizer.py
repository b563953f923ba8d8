"""The authorizer: API Gateway's question about a key, and its answer."""

from typing import Any

import pytest

import authorizer
from headrace.domain.access import Role
from headrace.domain.errors import Unavailable
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.runtime.wiring import using
from headrace.store.sqlite import SqliteStore
from tests.functional.conftest import KEY, Service

API = "arn:aws:execute-api:eu-west-1:123456789012:abc123/prod"


def authorized(service: Service, token: str | None) -> dict[str, Any]:
    """Ask as API Gateway does."""
    event = {"type": "TOKEN", "methodArn": f"{API}/GET/v1/queues/a/tasks"}
    if token is not None:
        event["authorizationToken"] = token
    with using(service.use):
        return authorizer.handler(event, service.context)


def effect(answer: dict[str, Any]) -> tuple[str, str]:
    (statement,) = answer["policyDocument"]["Statement"]
    assert statement["Action"] == "execute-api:Invoke"
    return statement["Effect"], statement["Resource"]


def test_a_known_key_may_call_the_api_at_any_path(call: Service) -> None:
    made = call.use.keys.create(BOOTSTRAP, "sensors", Role.PRODUCER, ("ngsi.*",))

    own = authorized(call, f"Bearer {KEY}")
    other = authorized(call, f"bearer {made.secret}")

    assert effect(own) == effect(other) == ("Allow", f"{API}/*")
    assert own["principalId"] == "bootstrap"
    assert other["principalId"] == made.key.id
    assert other["context"] == {"name": "sensors", "role": "producer"}


@pytest.mark.parametrize("token", [None, f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer hr_{'0' * 61}"])
def test_everybody_else_is_kept_away_from_all_of_it(call: Service, token: str | None) -> None:
    answer = authorized(call, token)

    assert effect(answer) == ("Deny", f"{API}/*")
    assert answer["context"] == {}


def test_a_table_that_is_away_refuses_nobody_for_a_minute(call: Service) -> None:
    class Unreachable(SqliteStore):
        def record(self, kind: str, name: str) -> None:
            raise Unavailable("the table does not answer")

    call.use.keys.store = Unreachable(":memory:")

    with pytest.raises(Unavailable):  # which API Gateway does not keep
        authorized(call, f"Bearer hr_{'0' * 20}_{'0' * 40}")
