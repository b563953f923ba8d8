"""Groups over HTTP: what is shown, filtered and refused, and with which words."""

from urllib.parse import quote

import pytest

from tests.functional.conftest import Service

FAIR = {"mode": "fair", "weights": {"acme": 4.0}, "max_inflight_per_group": 0}


def test_where_there_are_none_a_key_is_invalid_and_the_neighbours_go_through(
    call: Service,
) -> None:
    path = call.queue()

    made = call("POST", f"{path}/tasks", {"tasks": [{"payload": 0}, {"group_key": "a"}]})

    plain, refused = made.json["results"]
    assert (plain["outcome"], plain["task"]["group_key"]) == ("CREATED", None)
    assert refused["outcome"] == "INVALID"
    assert refused["detail"].startswith("group_key has no meaning in queue ")


def test_how_a_group_stands_is_shown(call: Service) -> None:
    key = "b/c"
    path = call.queue(groups=FAIR)
    call.put(path, 1, 2, 3, group_key=key)
    call.take(path)

    shown = call("GET", f"{path}/groups/{quote(key, safe='')}").json

    assert (shown["group_key"], shown["waiting"], shown["inflight"]) == (key, 2, 1)
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
