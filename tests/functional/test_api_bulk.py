"""Bulk actions over HTTP: by ids with a result for each, or exactly the filtered set."""

from typing import Any

import pytest

from tests.functional.conftest import Service


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


@pytest.mark.parametrize(
    ("action", "more", "changed", "left"),
    [
        ("delete", {}, 5, {}),
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
