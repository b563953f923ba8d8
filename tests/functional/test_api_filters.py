"""The parameter `query` of lists, counts and bulk actions on tasks."""

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


def test_a_query_combines_filters_in_one_text(call: Service) -> None:
    path = call.queue()
    wanted = call.put(path, {"order": 77}, tags={"tenant": "a b"})
    call.put(path, {"order": 78}, tags={"tenant": "a b"})
    call.put(path, {"order": 77}, tags={"tenant": "acme"})

    def found(text: str, **more: str) -> list[str]:
        answer = call("GET", f"{path}/tasks", query={"query": text, **more})
        assert answer.status == 200, answer.body
        return [task["id"] for task in answer.json["tasks"]]

    assert found('queue:mail state:ready tag:tenant="a b" payload.order:77') == wanted
    assert found("payload.order:77", **{"tag.tenant": "a b"}) == wanted
    assert found(f"id:{wanted[0][:-1]} tag:tenant=nobody") == []
    count = call("GET", f"{path}/count", query={"query": "payload.order:77"}).json
    assert count["count"] == 2
    deleted = call("POST", f"{path}/tasks/delete", {"filter": {"query": "payload.order:78"}})
    assert deleted.json["changed"] == 1


def test_a_query_excludes_terms_joins_them_and_measures_time_from_now(call: Service) -> None:
    path = call.queue()
    (ada,) = call.put(path, {"task": "mail.send"}, tags={"to": "ada"})
    call.clock.forward(7_200)
    (bob,) = call.put(path, {"task": "mail.send"}, tags={"to": "bob"})
    (none,) = call.put(path, {"task": "sms.send"})

    def found(text: str) -> set[str]:
        ids: set[str] = set()
        cursor: str | None = ""
        while cursor is not None:
            asked = {"query": text, "limit": "1", **({"cursor": cursor} if cursor else {})}
            answer = call("GET", f"{path}/tasks", query=asked)
            ids |= {task["id"] for task in answer.json["tasks"]}
            cursor = answer.json["cursor"]
            call.clock.forward(1)
        return ids

    assert found("-tag:to") == {none}
    assert found("tag:to=ada OR tag:to=bob") == {ada, bob}
    assert found("task:mail.send after:1h") == {bob}
    deleted = call("POST", f"{path}/tasks/delete", {"filter": {"query": "-tag:to=ada before:1h"}})
    assert deleted.json["changed"] == 0


def test_a_version_is_found_after_its_workers_have_ended(call: Service) -> None:
    path = call.queue()
    call.put(path, *range(2))
    versions = {"ada:1": "2.0", "bob:1": "2.1"}
    taken = [call.take(path, worker=name)[0]["id"] for name in versions]
    for name, version in versions.items():
        beat = {"queues": ["mail"], "concurrency": 1, "running": [], "version": version}
        assert call("PUT", f"/v1/workers/{name}", beat).status == 200
    call.clock.forward(3_601)

    def found(text: str) -> set[str]:
        answer = call("GET", f"{path}/tasks", query={"query": text})
        return {task["id"] for task in answer.json["tasks"]}

    assert found("version:2.1") == {taken[1]}
    assert found("-version:2.1") == {taken[0]}
    assert found("version:3") == set()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour:red", "at character 1: colour is no key"),
        ('error:"a', "at character 7: a quote does not end"),
    ],
)
def test_every_route_reports_a_wrong_query_in_the_same_words(
    call: Service, text: str, says: str
) -> None:
    path = call.queue()
    body = {"filter": {"query": text, "state": "DEAD"}}
    everywhere = [
        call("GET", f"{path}/tasks", query={"query": text, "state": "DEAD"}),
        call("GET", f"{path}/count", query={"query": text, "state": "DEAD"}),
        call("POST", f"{path}/tasks/delete", body),
        call("POST", "/v1/actions", {"action": "delete", "queues": ["mail"], **body}),
    ]
    for refused in everywhere:
        (error,) = refused.json["errors"]
        assert (refused.status, error["field"].removeprefix("filter.")) == (400, "query")
        assert says in error["message"]


def test_a_viewer_finds_nothing_by_payloads(call: Service) -> None:
    path = call.queue()
    viewer = keyed(call, Role.VIEWER)

    for what in ("tasks", "count"):
        for text in ("payload.order:77", "-task:mail.send", "worker:a OR task:mail.send"):
            assert viewer("GET", f"{path}/{what}", query={"query": text}).status == 403
        assert viewer("GET", f"{path}/{what}", query={"query": "state:dead"}).status == 200
