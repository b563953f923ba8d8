"""Lists and counts with every filter: the same tasks in both, and only those."""

from typing import Any

import pytest

from headrace.domain.access import Role
from tests.functional.conftest import Service
from tests.functional.roles import keyed


@pytest.fixture
def path(call: Service) -> str:
    """Give a queue with a task of every kind, each with its kind as id."""
    path = call.queue()
    for kind, status, worker, error in (
        ("done", "SUCCEEDED", "ada:1", None),
        ("timeout", "FAILED", "bob:1", {"type": "Timeout", "message": "Slow", "detail": "é"}),
        ("refused", "FAILED", "ada:1", {"type": "Refused", "message": "no", "detail": ""}),
    ):
        call.put(path, id=kind, tags={"kind": kind, "of": "ended"})
        (task,) = call.take(path, worker=worker)
        call.say(
            task, status, **({"error": error, "retryable": False} if error is not None else {})
        )
        call.clock.forward(10)
    call.put(path, id="flying", tags={"kind": "flying", "of": "live", "comma": "a,b &="})
    call.take(path, worker="eve, the 2nd")
    call.put(path, id="ready", tags={"kind": "ready", "of": "live"})
    call.put(path, id="later", tags={"kind": "later", "of": "live"}, delay_in_seconds=3600)
    call.clock.forward(1)
    return path


def ids(call: Service, path: str, **query: str) -> list[str]:
    return [task["id"] for task in listed(call, path, **query)["tasks"]]


def listed(call: Service, path: str, **query: str) -> Any:
    answer = call("GET", f"{path}/tasks", query=query)
    assert answer.status == 200, answer.body
    return answer.json


FILTERS: list[tuple[dict[str, str], list[str]]] = [
    ({}, ["ready", "later", "flying", "timeout", "refused", "done"]),
    ({"state": "pending"}, ["ready", "later", "flying"]),
    ({"state": "READY,SCHEDULED"}, ["ready", "later"]),
    ({"state": "failed", "order": "desc"}, ["refused", "timeout"]),
    ({"tag.of": "live", "tag.kind": "ready"}, ["ready"]),
    ({"tag.comma": "a,b &="}, ["flying"]),
    ({"worker": "eve, the 2nd"}, ["flying"]),
    ({"min_attempts": "1"}, ["flying", "timeout", "refused", "done"]),
    ({"error": "SLOW"}, ["timeout"]),
    ({"error": "no", "worker": "ada:1", "state": "DEAD", "tag.of": "ended"}, ["refused"]),
    ({"state": "DEAD", "scheduled_before": "2026-11-21T10:00:15+02:00"}, ["timeout"]),
    ({"scheduled_after": "2026-11-21T08:30:00Z"}, ["later"]),
]


@pytest.mark.parametrize(("query", "expected"), FILTERS, ids=str)
def test_a_list_and_a_count_mean_the_same_tasks(
    call: Service, path: str, query: dict[str, str], expected: list[str]
) -> None:
    assert ids(call, path, **query) == expected
    where = {name: value for name, value in query.items() if name != "order"}
    counted = call("GET", f"{path}/count", query=where).json
    assert counted["count"] == len(expected)
    assert sum(counted["by_state"].values()) == len(expected)
    assert counted["exact"] is True


def test_a_query_asks_for_the_same_in_one_text(call: Service) -> None:
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour:red", "at character 1: colour is no key"),
        ('error:"a', "at character 7: a quote does not end"),
    ],
)
def test_a_query_that_makes_no_sense_is_told_in_the_same_words_everywhere(
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
        refused = viewer("GET", f"{path}/{what}", query={"query": "payload.order:77"})
        assert refused.status == 403
        assert viewer("GET", f"{path}/{what}", query={"query": "state:dead"}).status == 200
