"""Priorities over HTTP: what is shown, filtered and refused, and with which words."""

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
