"""Bulk actions over HTTP: by ids with a result for each, or exactly the filtered set."""

from typing import Any

import pytest

from tests.functional.conftest import Answer, Service


def act(call: Service, path: str, action: str, **body: Any) -> Any:
    answer = call("POST", f"{path}/tasks/{action}", body)
    assert answer.status == 200, answer.body
    assert set(answer.json) == {"matched", "changed", "results", "cursor"}
    return answer.json


def dead(call: Service, path: str, *ids: str, **entry: Any) -> None:
    """Let tasks die."""
    for task_id in ids:
        call.put(path, id=task_id, **entry)
        (task,) = call.take(path)
        call.say(task, "FAILED", retryable=False, error={"type": "Timeout"})


def states(call: Service, path: str) -> dict[str, str]:
    """Return the status of every task by its id."""
    page = call("GET", f"{path}/tasks", query={"limit": "250"}).json
    return {task["id"]: task["status"] for task in page["tasks"]}


@pytest.fixture
def path(call: Service) -> str:
    """Give a queue with two dead, one done, one in flight and one that waits."""
    path = call.queue()
    dead(call, path, "dead-1", tags={"service": "a"})
    dead(call, path, "dead-2", tags={"service": "b"})
    for task_id in ("done", "flying"):
        call.put(path, id=task_id)
        (task,) = call.take(path)
        if task_id == "done":
            call.say(task, "SUCCEEDED")
    call.put(path, id="later", delay_in_seconds=3600)
    return path


def test_each_id_has_its_result_in_the_order_sent(call: Service, path: str) -> None:
    ids = ["dead-2", "nothing", "flying", "later", "dead-1", "dead-1"]

    done = act(call, path, "restart", ids=ids)

    assert [(result["id"], result["outcome"], result["detail"]) for result in done["results"]] == [
        ("dead-2", "RESTARTED", None),
        ("nothing", "NOT_FOUND", None),
        ("flying", "SKIPPED", "inflight"),
        ("later", "SKIPPED", "not_dead"),
        ("dead-1", "RESTARTED", None),
        ("dead-1", "SKIPPED", "not_dead"),
    ]
    assert (done["matched"], done["changed"], done["cursor"]) == (2, 2, None)
    assert states(call, path)["dead-1"] == "READY"


@pytest.mark.parametrize("action", ["restart", "delete", "run", "move", "cancel"])
def test_a_dry_run_says_of_an_id_that_is_named_twice_what_the_action_then_does(
    action: str, call: Service, path: str
) -> None:
    ids = ["dead-1", "later", "later", "dead-1", "done", "done", "nothing", "nothing"]
    more = {"to_queue": call.queue("other").rsplit("/", 1)[-1]} if action == "move" else {}

    foreseen = act(call, path, action, ids=ids, dry_run=True, **more)
    done = act(call, path, action, ids=ids, **more)

    assert foreseen["results"] == done["results"]
    assert (foreseen["matched"], foreseen["changed"]) == (done["matched"], 0)


@pytest.mark.parametrize(
    ("action", "more", "changed", "left"),
    [
        ("delete", {}, 5, {}),
        (
            "restart",
            {},
            3,
            {
                "dead-1": "READY",
                "dead-2": "READY",
                "done": "READY",
                "flying": "INFLIGHT",
                "later": "SCHEDULED",
            },
        ),
        (
            "run",
            {},
            1,
            {
                "dead-1": "DEAD",
                "dead-2": "DEAD",
                "done": "SUCCEEDED",
                "flying": "INFLIGHT",
                "later": "READY",
            },
        ),
        ("move", {"to_queue": "other"}, 3, {"done": "SUCCEEDED", "flying": "INFLIGHT"}),
    ],
)
def test_an_empty_filter_is_every_task_the_action_takes(
    call: Service, path: str, action: str, more: Any, changed: int, left: dict[str, str]
) -> None:
    call.queue("other")

    dry = act(call, path, action, filter={}, dry_run=True, **more)
    assert (dry["matched"], dry["changed"], dry["results"]) == (changed, 0, [])
    done = act(call, path, action, filter={}, **more)

    assert (done["matched"], done["changed"], done["results"]) == (changed, changed, [])
    assert states(call, path) == left
    again = act(call, path, action, filter={}, **more)
    assert again["changed"] == 0


def test_a_filter_acts_on_exactly_its_set(call: Service, path: str) -> None:
    done = act(call, path, "restart", filter={"state": "DEAD", "tags": {"service": "a"}})

    assert (done["matched"], done["changed"]) == (1, 1)
    found = states(call, path)
    assert (found["dead-1"], found["dead-2"]) == ("READY", "DEAD")


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        ({"state": "failed,SUCCEEDED"}, 3),
        ({"state": "READY"}, 0),
        ({"tags": {"service": "b"}}, 1),
        ({"worker": "ada:1"}, 4),
        ({"min_attempts": 1}, 4),
        ({"error": "TIME"}, 2),
        ({"scheduled_after": "2026-11-21T08:30:00Z"}, 1),
        ({"scheduled_before": "2026-11-21T08:00:00.0015Z"}, 1),
        ({"state": "DEAD", "error": "time", "tags": {}, "worker": None}, 2),
    ],
    ids=str,
)
def test_filters_of_bodies_are_those_of_lists(
    call: Service, path: str, where: dict[str, Any], matched: int
) -> None:
    assert act(call, path, "delete", filter=where, dry_run=True)["matched"] == matched


def test_a_limit_ends_a_call_and_its_cursor_goes_on(call: Service) -> None:
    path = call.queue()
    dead(call, path, *(f"dead-{number:02}" for number in range(7)))
    body: dict[str, Any] = {"filter": {"state": "DEAD"}, "limit": 3}

    changed: list[int] = []
    cursor = None
    while not changed or cursor is not None:
        done = act(call, path, "restart", **body, cursor=cursor)
        changed.append(done["changed"])
        cursor = done["cursor"]

    assert sum(changed) == 7
    assert max(changed) == 3
    assert set(states(call, path).values()) == {"READY"}
    forged = call("POST", f"{path}/tasks/delete", {**body, "cursor": "bm90IG91cnM"})
    assert (forged.status, forged.fields) == (400, {"cursor"})


def test_a_cursor_is_good_for_its_own_action_and_filter(call: Service) -> None:
    path = call.queue()
    call.put(path, 1, 2, 3)
    cursor = act(call, path, "delete", filter={}, limit=1, dry_run=True)["cursor"]

    def send(action: str, **where: Any) -> Answer:
        return call("POST", f"{path}/tasks/{action}", {"filter": where, "cursor": cursor})

    assert send("run").status == send("delete", state="DEAD").status == 400
    assert send("delete").json["changed"] == 2


def test_a_dedupe_conflict_is_matched_and_left(call: Service) -> None:
    path = call.queue()
    dead(call, path, "old", dedupe_key="k")
    call.put(path, id="new", dedupe_key="k")

    done = act(call, path, "restart", ids=["old"])

    assert (done["matched"], done["changed"]) == (1, 0)
    assert done["results"] == [{"id": "old", "outcome": "SKIPPED", "detail": "dedupe_conflict"}]


def test_moved_tasks_are_in_the_other_queue(call: Service, path: str) -> None:
    other = call.queue("other")

    done = act(call, path, "move", ids=["dead-1", "later"], to_queue="other")

    assert [result["outcome"] for result in done["results"]] == ["MOVED", "MOVED"]
    assert states(call, other) == {"dead-1": "READY", "later": "SCHEDULED"}
    assert [hop["queue"] for hop in call.see("later")["trail"]] == ["mail"]


def test_250_ids_are_taken_at_once(call: Service) -> None:
    path = call.queue()
    ids = [task_id for _ in range(10) for task_id in call.put(path, *range(25))]

    done = act(call, path, "delete", ids=ids)

    assert (done["changed"], len(done["results"])) == (250, 250)
    assert states(call, path) == {}


def test_a_queue_may_have_a_task_named_as_an_action(call: Service) -> None:
    path = call.queue()
    call.put(path, id="delete")

    assert call("GET", "/v1/tasks/delete").status == 200
    assert act(call, path, "delete", ids=["delete"])["changed"] == 1
