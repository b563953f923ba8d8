"""`query` on each list of the API: what it finds, what it refuses, and what it does not tell."""

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


@pytest.fixture
def filled(call: Service) -> Service:
    """Give a service of which each list has something to look for."""
    for name in ("mail", "mail.bulk", "news"):
        call("POST", "/v1/queues", {"name": name, "description": f"of {name}"})
    call("POST", "/v1/queues/news/pause", {"reason": "printer on fire"})
    call("PUT", "/v1/workers/ada:1", {"queues": ["mail"], "version": "1.4"})
    call("PUT", "/v1/workers/bob:2", {"queues": ["mail", "news"], "version": "1.5"})
    for name in ("night", "noon"):
        call("POST", "/v1/batches", {"id": name, "total": 0 if name == "night" else None})
    for name, role, queue in (("ada", "admin", "*"), ("press", "worker", "news")):
        call("POST", "/v1/keys", {"name": name, "role": role, "queues": [queue]})
    call("POST", "/v1/queues/mail/tasks", {"tasks": [{"payload": {}}]})
    for reason in ("test data", "moved house"):
        wanted = {"action": "delete", "queues": ["mail"], "filter": {}, "reason": reason}
        call("POST", "/v1/actions", wanted)
    return call


def found(call: Service, path: str, text: str) -> list[str]:
    """What a query finds, by whatever each row is known by."""
    answer = call("GET", f"/v1/{path}", query={"query": text})
    assert answer.status == 200, answer.json
    (rows,) = (value for value in answer.json.values() if isinstance(value, list))
    known_by = {"batches": "id", "actions": "reason", "audit": "action"}.get(path, "name")
    return [row[known_by] for row in rows]


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("workers", "version:1.4 state:alive", ["ada:1"]),
        ("batches", "id:no state:open dead:no", ["noon"]),
        ("keys", "queue:mail role:worker,admin expired:no", ["ada"]),
        ("queues", 'name:mail "of mail.b"', ["mail.bulk"]),
        ("actions", "action:delete status:looking reason:TEST", ["test data"]),
        ("audit", "action:pause queue:news", ["pause"]),
    ],
)
def test_a_query_narrows_a_list(filled: Service, path: str, text: str, names: list[str]) -> None:
    assert sorted(found(filled, path, text)) == names


def test_a_mistake_is_named_with_its_place(call: Service) -> None:
    for path in ("workers", "batches", "keys", "queues", "actions", "audit"):
        refused = call("GET", f"/v1/{path}", query={"query": "x quue:mail"})

        assert (refused.status, refused.fields) == (400, {"query"})
        message = refused.json["errors"][0]["message"]
        assert message.startswith("at character 3: quue is no key: use one of ")


def test_a_query_finds_nothing_by_what_the_key_does_not_see(filled: Service) -> None:
    mail = keyed(filled, Role.ADMIN, "mail")

    assert found(mail, "workers", "bob") == ["bob:2"]
    assert found(mail, "workers", "queue:news") == []
    assert found(mail, "workers", "news") == []
    assert found(mail, "queues", "news") == []
    assert found(mail, "keys", "press") == []
    assert found(mail, "audit", "fire") == []
