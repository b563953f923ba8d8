"""Groups over HTTP: what is shown, filtered and refused, and with which words."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.functional.conftest import Service

FAIR = {"mode": "fair", "weights": {"acme": 4.0}, "max_inflight_per_group": 0}


def test_a_key_is_shown_and_takes_turns_where_the_queue_has_groups(call: Service) -> None:
    path = call.queue(groups=FAIR)
    assert call("GET", path).json["groups"] == {**FAIR, "on_dead": None}
    noisy = {"payload": 0, "group_key": "noisy"}
    call("POST", f"{path}/tasks", {"tasks": [noisy] * 10})

    made = call("POST", f"{path}/tasks", {"tasks": [{"payload": 1, "group_key": "quiet"}]}).json

    assert made["results"][0]["task"]["group_key"] == "quiet"
    call.clock.forward(1)
    tasks = call("POST", f"{path}/dequeue", {"batch_size": 2}).json["tasks"]
    assert {task["group_key"] for task in tasks} == {"noisy", "quiet"}


def test_where_there_are_none_a_key_is_invalid_and_the_neighbours_go_through(
    call: Service,
) -> None:
    path = call.queue()

    made = call("POST", f"{path}/tasks", {"tasks": [{"payload": 0}, {"group_key": "a"}]})

    plain, refused = made.json["results"]
    assert (plain["outcome"], plain["task"]["group_key"]) == ("CREATED", None)
    assert refused["outcome"] == "INVALID"
    assert refused["detail"].startswith("group_key has no meaning in queue ")


def test_lists_counts_and_bulk_actions_take_a_key(call: Service) -> None:
    path = call.queue(groups=FAIR)
    call.put(path, 1, 2, group_key="a")
    call.put(path, 3, group_key="b/c")

    listed = call("GET", f"{path}/tasks", query={"group_key": "b/c"}).json["tasks"]
    assert [task["group_key"] for task in listed] == ["b/c"]
    assert call("GET", f"{path}/count", query={"group_key": "a"}).json["count"] == 2
    deleted = call("POST", f"{path}/tasks/delete", {"filter": {"group_key": "a"}}).json
    assert deleted["changed"] == 2


def test_how_a_group_stands_is_shown(call: Service) -> None:
    key = "b/c"
    path = call.queue(groups=FAIR)
    call.put(path, 1, 2, 3, group_key=key)
    call.take(path)

    shown = call("GET", f"{path}/groups/{quote(key, safe='')}").json

    del shown["as_of"]
    assert shown == {
        "group_key": key,
        "weight": 1.0,
        "turn": 3.0,
        "waiting": 2,
        "inflight": 1,
        "limit": None,
        "blocked": None,
    }
    assert call("GET", f"{path}/groups/other").status == 404
    call.queue("plain")
    assert call("GET", "/v1/queues/plain/groups/a").status == 404


def test_stats_tell_whose_the_next_turns_are(call: Service) -> None:
    path = call.queue(groups=FAIR)
    call.put(path, *range(5), group_key="noisy")
    call.put(path, 1)
    call.clock.forward(10)

    groups = call("GET", f"{path}/stats").json["groups"]

    assert [(one["group_key"], one["turns"]) for one in groups] == [("noisy", 5), (None, 1)]
    assert groups[0]["age_of_oldest_seconds"] == pytest.approx(10, abs=0.1)
    call.queue("plain")
    assert call("GET", "/v1/queues/plain/stats").json["groups"] is None


def strict(call: Service, on_dead: str | None = None, **settings: Any) -> str:
    groups = {"mode": "strict", **({"on_dead": on_dead} if on_dead else {})}
    return call.queue(groups=groups, **settings)


def test_what_blocks_a_strict_group_is_shown(call: Service) -> None:
    path = strict(call, "halt")
    tasks = [{"payload": number, "group_key": "a"} for number in range(2)]
    made = call("POST", f"{path}/tasks", {"tasks": tasks}).json["results"]
    first, second = (one["id"] for one in made)
    call.clock.forward(1)
    taken = call("POST", f"{path}/dequeue", {"batch_size": 5}).json["tasks"]
    assert [task["id"] for task in taken] == [first]

    blocked = call("GET", f"{path}/groups/a").json["blocked"]
    assert (blocked["task_id"], blocked["why"]) == (first, f"{first} is in flight")
    reasons = call("GET", f"/v1/tasks/{second}/explain").json["reasons"]
    assert reasons[0]["code"] == "group_blocked"


def test_what_a_strict_order_does_not_go_with_is_refused_by_name(call: Service) -> None:
    path, plain = strict(call), call.queue("plain")
    dead = {"enable": False}

    def field_of(verb: str, where: str, body: dict[str, Any]) -> str:
        answer = call(verb, where, body)
        assert answer.status == 400
        return str(answer.json["errors"][0]["field"])

    assert field_of("PUT", path, {}) == "groups.mode"
    assert field_of("PUT", plain, {"groups": {"mode": "strict"}}) == "groups.mode"
    halting = {"groups": {"mode": "strict", "on_dead": "halt"}, "dead_letter_queue_config": dead}
    assert field_of("PUT", path, halting) == "groups.on_dead"
    schedule = {"interval_in_seconds": 60, "task": {"payload": 1}}
    assert call("PUT", f"{path}/schedules/often", schedule).status == 400
    name = path.rpartition("/")[2]
    on = {"ended": {"queue": name, "payload": 1, "group_key": "a"}}
    assert field_of("POST", "/v1/batches", {"total": 1, "on": on}) == "on.ended.queue"
    assert field_of("PUT", plain, {"on_end": {"queue": name}}) == "on_end.queue"
