"""The life of a task over HTTP."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.domain import limits
from tests.functional.conftest import Service
from tests.functional.roles import VIEWER, keyed

EXACT = '{ "price": 1.10, "big": 123456789012345678901234567890, "e": 1E5, "u": "\\u00e9é" }'


def test_a_payload_comes_back_as_it_was_sent_wherever_it_is_shown(call: Service) -> None:
    path = call.queue()
    body = f'{{"tasks":[{{"id":"a","payload":{EXACT}}}]}}'

    enqueued = call("POST", f"{path}/tasks", body)
    call.clock.forward(1)
    handed_out = call("POST", f"{path}/dequeue")

    assert "payload" not in enqueued.json["results"][0]["task"]
    assert EXACT in handed_out.body
    assert EXACT in call("GET", "/v1/tasks/a").body
    assert EXACT in call("GET", f"{path}/tasks", query={"payload": "true"}).body
    assert "price" not in call("GET", "/v1/tasks/a", query={"payload": "false"}).body
    assert "price" not in call("GET", f"{path}/tasks").body


def test_result_and_progress_come_back_as_they_were_sent(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    held = f'"task_id":"{task["id"]}","lease_id":"{task["lease"]["id"]}"'

    call(
        "POST", f"{path}/reports", f'{{"reports":[{{{held},"status":"INFLIGHT","progress":1.0}}]}}'
    )
    assert '"progress":1.0,' in call("GET", f"/v1/tasks/{task['id']}").body

    body = f'{{"reports":[{{{held},"status":"SUCCEEDED","result":{EXACT}}}]}}'
    call("POST", f"{path}/reports", body)
    assert f'"result":{EXACT},' in call("GET", f"/v1/tasks/{task['id']}").body


def test_a_client_id_makes_enqueue_safe_to_repeat(call: Service) -> None:
    path, other = call.queue("mail"), call.queue("other")
    body = {"tasks": [{"id": "a-1", "payload": 1}]}

    first, again, elsewhere = [
        call("POST", f"{where}/tasks", body).json["results"][0] for where in (path, path, other)
    ]

    assert (first["outcome"], first["queue"]) == ("CREATED", "mail")
    assert (again["outcome"], again["queue"]) == ("EXISTING", "mail")
    assert again["task"]["id"] == "a-1"
    assert (elsewhere["outcome"], elsewhere["queue"]) == ("EXISTING", "mail")
    assert (elsewhere["id"], elsewhere["task"]) == ("a-1", None)


def test_a_task_that_has_moved_on_is_existing_under_its_id(call: Service) -> None:
    path = call.queue("mail")
    call.queue("other")
    call.put(path, id="a-1")
    (task,) = call.take(path)
    assert call.say(task, "MOVED", to_queue="other")["outcome"] == "OK"

    (again,) = call("POST", f"{path}/tasks", {"tasks": [{"id": "a-1"}]}).json["results"]

    assert (again["outcome"], again["task"], again["queue"]) == ("EXISTING", None, "other")


def test_a_task_is_not_delivered_before_its_time(call: Service) -> None:
    path = call.queue()
    call.put(path, "delayed", delay_in_seconds=60)
    call.put(path, "dated", scheduled_at="2026-11-21T10:00:30+02:00")

    assert call.take(path, 5) == []
    call.clock.forward(60)
    assert [task["payload"] for task in call.take(path, 5)] == ["dated", "delayed"]


def test_settings_of_a_task_go_before_those_of_its_queue(call: Service) -> None:
    path = call.queue()
    (task_id,) = call.put(
        path,
        keepalive_timeout_in_seconds=5,
        retry_strategy={"kind": "fixed", "max_retries": 1, "base_seconds": 0},
        expires_at="2026-11-21T09:00:00Z",
        tags={"service": "é"},
    )

    (task,) = call.take(path)

    assert task["id"] == task_id
    assert (task["max_retries"], task["tags"]) == (1, {"service": "é"})
    assert task["expires_at"] == "2026-11-21T09:00:00.000000Z"
    assert task["keepalive_timeout_in_seconds"] == 5
    assert task["lease"]["expires_at"] == task["lease_expires_at"]
    assert task["lease_expires_at"] == "2026-11-21T08:00:05.001000Z"


def test_an_idle_worker_is_told_when_to_ask_again(call: Service) -> None:
    answer = call("POST", f"{call.queue()}/dequeue", {"wait_seconds": 0}).json

    assert answer["tasks"] == []
    assert answer["now"] == "2026-11-21T08:00:00.000000Z"
    assert answer["poll_after_seconds"] == 0.02


def test_a_call_that_waits_ends_before_its_time_does(call: Service) -> None:
    path = call.queue()
    call.use.deliveries.sleep = call.clock.forward
    left = iter([28_000, 28_000, 4_000, 1_501, 1_500])
    call.context = SimpleNamespace(get_remaining_time_in_millis=lambda: next(left))

    assert call.take(path, wait_seconds=20) == []

    assert list(left) == []
    assert call.clock() < datetime(2026, 11, 21, 8, 0, 20, tzinfo=UTC)


def test_a_call_that_waits_gets_the_first_task_that_falls_due(call: Service) -> None:
    path = call.queue()
    call.use.deliveries.sleep = call.clock.forward
    call.put(path, 1, delay_in_seconds=7)

    (task,) = call.take(path, wait_seconds=20)

    assert task["started_at"] < "2026-11-21T08:00:07.1"


def test_a_worker_reports_success(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)

    result = call.say(task, "SUCCEEDED", result={"rows": 3})

    assert (result["outcome"], result["state"]) == ("OK", "SUCCEEDED")
    shown = call.see(task["id"])
    assert (shown["state"], shown["result"], shown["worker"]) == ("SUCCEEDED", {"rows": 3}, "ada:1")
    assert call.say(task, "SUCCEEDED", result={"rows": 3})["outcome"] == "OK"


def test_a_task_whose_queue_keeps_no_history_is_gone_when_done(call: Service) -> None:
    path = call.queue(history_retention_in_seconds=0)
    call.put(path)
    (task,) = call.take(path)

    result = call.say(task, "SUCCEEDED")

    assert (result["outcome"], result["state"], result["lease"]) == ("OK", None, None)
    assert call("GET", f"/v1/tasks/{task['id']}").status == 404


def test_a_heartbeat_prolongs_the_lease(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    call.clock.forward(20)

    result = call.say(task, "INFLIGHT", progress={"done": 1}, keepalive_timeout_in_seconds=100)

    assert result["lease"] == {
        "id": task["lease"]["id"],
        "expires_at": "2026-11-21T08:02:00.001000Z",
    }
    assert call.see(task["id"])["progress"] == {"done": 1}


def test_a_failure_is_kept_and_tried_again(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)

    error = {"type": "Timeout", "message": "slow", "detail": "é" * 10_000}
    result = call.say(task, "FAILED", error=error, delay_in_seconds=5)

    assert (result["state"], result["scheduled_at"]) == ("ENQUEUED", "2026-11-21T08:00:05.001000Z")
    (kept,) = call.see(task["id"])["errors"]
    assert (kept["attempt"], kept["kind"], kept["type"]) == (1, "failed", "Timeout")
    assert kept["worker"] == "ada:1"
    assert kept["detail"].endswith("… [cut]")


def test_a_failure_that_is_not_to_be_retried_ends_the_task(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)

    assert call.say(task, "FAILED", retryable=False)["state"] == "DEAD"
    assert call.see(task["id"])["dead_reason"] == "rejected"


def test_a_released_task_has_its_attempt_back(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)

    assert call.say(task, "RELEASED")["state"] == "ENQUEUED"
    assert call.see(task["id"])["attempts"] == 0


def test_a_moved_task_takes_its_trail_along(call: Service) -> None:
    path, target = call.queue("mail"), call.queue("next")
    call.put(path, {"old": 1}, tags={"a": "b"})
    (task,) = call.take(path)

    call.say(task, "MOVED", to_queue="next", payload={"new": 1.0})

    (moved,) = call.take(target)
    assert (moved["id"], moved["payload"], moved["tags"]) == (task["id"], {"new": 1.0}, {"a": "b"})
    assert [hop["queue"] for hop in moved["trail"]] == ["mail"]
    assert moved["attempts"] == 1


def test_a_payload_fits_that_is_too_large_only_by_its_escapes(call: Service) -> None:
    path = call.queue()
    payload = "é" * 131_071  # and two quotes: 256 KiB of UTF-8, three times as much as it is sent

    call.put(path, payload)

    (task,) = call.take(path)
    assert task["payload"] == payload


@pytest.mark.parametrize("status", ["SUCCEEDED", "INFLIGHT", "FAILED", "RELEASED"])
def test_a_foreign_lease_changes_nothing(call: Service, status: str) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    before = call.see(task["id"])

    for lease in ("", "x", "lse_0.1.", task["lease"]["id"] + "x", "é" * 200):
        result = call.say({**task, "lease": {"id": lease}}, status)
        assert (result["outcome"], result["state"]) == ("STALE_LEASE", "INFLIGHT")
        assert result["lease"] is None
    assert call.see(task["id"]) == before


def test_a_report_about_nothing_is_not_found(call: Service) -> None:
    path, other = call.queue("mail"), call.queue("other")
    call.put(path)
    (task,) = call.take(path)

    assert call.say({**task, "id": "nobody"}, "SUCCEEDED")["outcome"] == "NOT_FOUND"
    assert call.say({**task, "queue": "other"}, "SUCCEEDED")["outcome"] == "NOT_FOUND"
    assert call.say(task, "MOVED", to_queue="nowhere")["outcome"] == "INVALID"
    assert call.say(task, "RELEASED")["outcome"] == "OK"
    assert call.say(task, "INFLIGHT")["outcome"] == "NOT_INFLIGHT"
    assert other


def test_a_report_that_differs_from_the_one_that_settled_its_lease_is_stale(call: Service) -> None:
    path = call.queue("mail")
    call.put(path)
    (task,) = call.take(path)
    call.say(task, "SUCCEEDED", result={"rows": 1})

    for status, fields in (
        ("SUCCEEDED", {"result": {"rows": 2}}),
        ("SUCCEEDED", {"spawn": [{"queue": "mail", "payload": 1}]}),
        ("FAILED", {}),
        ("RELEASED", {}),
    ):
        different = call.say(task, status, **fields)
        assert (different["outcome"], different["state"]) == ("STALE_LEASE", "SUCCEEDED")
        assert different["spawned"] == []
    assert call.say(task, "SUCCEEDED", result={"rows": 1})["outcome"] == "OK"
    assert call.say(task, "INFLIGHT")["outcome"] == "NOT_INFLIGHT"


def test_reports_are_answered_in_their_order(call: Service) -> None:
    path = call.queue()
    call.put(path, *range(25))
    tasks = call.take(path, 25)
    reports = [
        {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
        for task in reversed(tasks)
    ]

    results = call("POST", f"{path}/reports", {"reports": reports}).json["results"]

    assert [result["task_id"] for result in results] == [task["id"] for task in reversed(tasks)]
    assert {result["outcome"] for result in results} == {"OK"}


def test_deleting_a_task(call: Service) -> None:
    path = call.queue()
    call.put(path)
    (task,) = call.take(path)
    where = f"/v1/tasks/{task['id']}"

    refused = call("DELETE", where, query={"if_not_inflight": "true"})
    assert (refused.status, refused.json["code"]) == (409, "inflight")

    assert call("DELETE", where).status == 204
    assert call("DELETE", where).status == 404
    assert call.say(task, "SUCCEEDED")["outcome"] == "NOT_FOUND"


def test_tasks_are_listed_by_state_and_time(call: Service) -> None:
    path = call.queue()
    first, second = call.put(path, 1, 2)
    call.take(path)
    (later,) = call.put(path, 3, delay_in_seconds=60)

    def ids(**query: str) -> list[str]:
        return [task["id"] for task in call("GET", f"{path}/tasks", query=query).json["tasks"]]

    assert ids() == [second, later, first]
    assert ids(order="desc") == [later, second, first]
    assert ids(state="INFLIGHT") == ids(state="running") == [first]
    assert ids(state="READY,SCHEDULED") == ids(state="ENQUEUED") == [second, later]
    assert ids(state="SCHEDULED") == [later]
    assert ids(state="failed") == []


def test_a_list_goes_on_with_its_cursor(call: Service) -> None:
    path = call.queue()
    put = call.put(path, *range(7))
    found: list[str] = []
    query = {"limit": "3", "state": "ENQUEUED"}

    cursor: Any = ""
    while cursor is not None:
        page = call(
            "GET", f"{path}/tasks", query={**query, **({"cursor": cursor} if cursor else {})}
        )
        found += [task["id"] for task in page.json["tasks"]]
        cursor = page.json["cursor"]

    assert found == put


def test_counting(call: Service) -> None:
    path = call.queue()
    call.put(path, 1, 2, 3)
    call.take(path)

    assert call("GET", f"{path}/count").json == {
        "count": 3,
        "by_state": {"ENQUEUED": 2, "INFLIGHT": 1, "SUCCEEDED": 0, "DEAD": 0},
        "exact": True,
        "partial": False,
        "cursor": None,
        "as_of": "2026-11-21T08:00:00.001000Z",
    }
    assert call("GET", f"{path}/count", query={"state": "pending,DEAD"}).json["count"] == 3


@pytest.mark.parametrize("task_id", ["nobody", "a b", "a%2Fb", "a" * 65, "é"])
def test_a_task_that_is_not_there(call: Service, task_id: str) -> None:
    for method in ("GET", "DELETE"):
        answer = call(method, f"/v1/tasks/{task_id}")
        assert (answer.status, answer.json["code"]) == (404, "not_found")


def test_a_result_that_is_too_large_costs_its_own_report_only(call: Service) -> None:
    path = call.queue()
    call.put(path, 1, 2, 3)
    tasks = call.take(path, 3)
    large, spaced = "x" * limits.RESULT_BYTES, " " * limits.RESULT_BYTES
    entries = [
        f'{{"task_id":"{task["id"]}","lease_id":"{task["lease"]["id"]}","status":"SUCCEEDED",'
        f'"result":{result}}}'
        for task, result in zip(tasks, ["1", f'"{large}"', f"[{spaced}3]"], strict=True)
    ]

    answer = call("POST", f"{path}/reports", f'{{"reports":[{",".join(entries)}]}}')

    assert answer.status == 200
    first, second, third = answer.json["results"]
    assert (first["outcome"], third["outcome"]) == ("OK", "OK")
    assert (second["outcome"], second["task_id"]) == ("INVALID", tasks[1]["id"])
    assert second["detail"] == "result must be at most 32768 bytes of JSON text; it is 32770"
    assert call.see(tasks[1]["id"])["state"] == "INFLIGHT"
    assert call.see(tasks[2]["id"])["result"] == [3]
    assert call.say(tasks[1], "FAILED", error={"type": "TooLarge"})["outcome"] == "OK"


@pytest.mark.parametrize("result", ["NaN", "{", "1 2", "[" * 100_000])
def test_a_body_that_is_no_json_is_refused_whole(call: Service, result: str) -> None:
    path = call.queue()
    call.put(path, 1)
    (task,) = call.take(path)
    lease = task["lease"]["id"]

    answer = call(
        "POST",
        f"{path}/reports",
        f'{{"reports":[{{"task_id":"{task["id"]}","lease_id":"{lease}","status":"SUCCEEDED",'
        f'"result":{result}}}]}}',
    )

    assert (answer.status, answer.json["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"dedupe_until": "start"}, "dedupe_until"),
        ({"dedupe_until": "never", "dedupe_key": "k"}, "dedupe_until"),
        ({"dedupe_until": None, "dedupe_key": "k"}, "dedupe_until"),
        ({"unique_for_seconds": 60}, "unique_for_seconds"),
        ({"unique_for_seconds": 0, "dedupe_key": "k"}, "unique_for_seconds"),
        ({"unique_for_seconds": 31_536_001, "dedupe_key": "k"}, "unique_for_seconds"),
        ({"unique_for_seconds": 60, "dedupe_key": "k", "id": "mine"}, "id"),
    ],
)
def test_fields_about_dedupe_keys_are_checked(
    call: Service, fields: dict[str, Any], wrong: str
) -> None:
    path = call.queue("mail")
    call.put(path)
    (task,) = call.take(path)
    report = {"task_id": task["id"], "lease_id": task["lease"]["id"], "status": "SUCCEEDED"}
    reports = {"reports": [{**report, "spawn": [{"queue": "mail", **fields}]}]}

    enqueued = call("POST", f"{path}/tasks", {"tasks": [fields]})
    reported = call("POST", f"{path}/reports", reports)

    assert (enqueued.status, enqueued.fields) == (400, {f"tasks[0].{wrong}"})
    assert (reported.status, reported.fields) == (400, {f"reports[0].spawn[0].{wrong}"})


def test_a_key_that_is_free_at_the_start_and_the_progress_of_the_delivery_before(
    call: Service,
) -> None:
    path = call.queue("mail")
    entry = {"dedupe_key": "k", "dedupe_until": "start"}
    made = call("POST", f"{path}/tasks", {"tasks": [entry, entry]}).json["results"]
    (task,) = call.take(path)
    later = call("POST", f"{path}/tasks", {"tasks": [entry]}).json["results"]

    assert [one["outcome"] for one in made + later] == ["CREATED", "DUPLICATE", "CREATED"]
    assert (task["dedupe_until"], task["last_progress"]) == ("start", None)
    call.say(task, "INFLIGHT", progress={"page": 4})
    call.say(task, "RELEASED")
    again = next(one for one in call.take(path, 2) if one["id"] == task["id"])
    assert (again["progress"], again["last_progress"]) == (None, {"page": 4})
    assert call.see(task["id"])["last_progress"] == {"page": 4}
    seen = keyed(call, VIEWER)("GET", f"/v1/tasks/{task['id']}").json
    assert (seen["progress"], seen["last_progress"]) == (None, None)


def test_a_task_is_unique_in_a_window(call: Service) -> None:
    path = call.queue("mail")
    entry = {"dedupe_key": "k", "unique_for_seconds": 3600}
    (made,) = call("POST", f"{path}/tasks", {"tasks": [entry]}).json["results"]
    (task,) = call.take(path)
    call.say(task, "SUCCEEDED")
    (again,) = call("POST", f"{path}/tasks", {"tasks": [entry]}).json["results"]

    assert (made["outcome"], again["outcome"]) == ("CREATED", "EXISTING")
    assert made["id"] == again["id"] == task["id"]
