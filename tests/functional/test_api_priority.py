"""Priorities over HTTP: what is shown, filtered and refused, and with which words."""

from typing import Any

import pytest

from tests.functional.conftest import Service

HIGH = {"payload": 1, "priority": "high"}


def test_a_priority_is_shown_and_counts_where_the_queue_has_any(call: Service) -> None:
    path = call.queue(priority={})
    assert call("GET", path).json["priority"] == {"aging_in_seconds": 300}

    made = call("POST", f"{path}/tasks", {"tasks": [{"payload": 0}, HIGH]}).json["results"]

    assert [one["task"]["priority"] for one in made] == ["normal", "high"]
    call.clock.forward(1)
    tasks = call("POST", f"{path}/dequeue", {"batch_size": 5}).json["tasks"]
    assert [(task["payload"], task["priority"]) for task in tasks] == [(1, "high"), (0, "normal")]


def test_where_it_has_none_a_priority_is_invalid_and_the_neighbours_go_through(
    call: Service,
) -> None:
    path = call.queue()

    made = call("POST", f"{path}/tasks", {"tasks": [{"payload": 0}, HIGH]})

    plain, refused = made.json["results"]

    assert (plain["outcome"], plain["task"]["priority"]) == ("CREATED", None)
    assert refused["outcome"] == "INVALID"
    assert refused["detail"].startswith("priority has no meaning in queue ")
    answer = call("PUT", f"{path}/schedules/often", {"every_seconds": 60, "priority": "low"})
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "priority")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"priority": {"aging_in_seconds": 0}}, "priority.aging_in_seconds"),
        ({"priority": {"aging_in_seconds": 86_401}}, "priority.aging_in_seconds"),
        ({"priority": {"boost": 1}}, "priority.boost"),
        ({"priority": "high"}, "priority"),
    ],
)
def test_a_wrong_setting_is_named(call: Service, body: dict[str, Any], field: str) -> None:
    answer = call("POST", "/v1/queues", {"name": "q", **body})

    assert (answer.status, [one["field"] for one in answer.json["errors"]]) == (400, [field])


def test_a_wrong_priority_is_named(call: Service) -> None:
    path = call.queue(priority={})

    answer = call("POST", f"{path}/tasks", {"tasks": [{"payload": 1, "priority": "urgent"}]})

    assert answer.status == 400
    assert [one["field"] for one in answer.json["errors"]] == ["tasks[0].priority"]


def test_lists_counts_and_actions_take_it_as_a_filter(call: Service) -> None:
    path = call.queue(priority={})
    call("POST", f"{path}/tasks", {"tasks": [{"payload": 0}, HIGH, {**HIGH, "payload": 2}]})

    listed = call("GET", f"{path}/tasks", query={"priority": "high"}).json["tasks"]

    assert {task["priority"] for task in listed} == {"high"}
    assert call("GET", f"{path}/count", query={"priority": "high"}).json["count"] == 2
    assert call("GET", f"{path}/count", query={"priority": "low"}).json["count"] == 0
    assert call("GET", f"{path}/count", query={"priority": "urgent"}).status == 400
    done = call("POST", f"{path}/tasks/delete", {"filter": {"priority": "high"}}).json
    assert (done["matched"], done["changed"]) == (2, 2)
    assert call("GET", f"{path}/count").json["count"] == 1


def test_what_is_shown_may_be_sent_back(call: Service) -> None:
    path = call.queue(priority={"aging_in_seconds": 60})
    shown = call("GET", path).json

    assert call("PUT", path, shown).json["priority"] == {"aging_in_seconds": 60}
    off = {name: value for name, value in shown.items() if name not in ("priority", "version")}
    assert call("PUT", path, off).json["priority"] is None
