"""Bad input: the right code, a message that names the field, never a 5xx, nothing half done.

Long, because it is a list: what each field refuses, over HTTP.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace.runtime.wiring import using
from tests.functional.conftest import KEY, Service, proxy_event

GOOD_TASK = {"payload": {"good": True}}
FORGED = "bm90IG9uZSBvZiBvdXJz"


@dataclass(frozen=True)
class BadRequest:
    """A request that must be refused, and how."""

    method: str
    path: str
    body: Any = None
    field: str = "body"
    status: int = 400
    query: dict[str, str] | None = None
    headers: dict[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.field} {str(self.body or self.query)[:40]}"


def tasks(
    body: Any, field: str = "body", status: int = 400, content_type: str = "application/json"
) -> BadRequest:
    headers = {"Content-Type": content_type}
    return BadRequest("POST", "/v1/queues/mail/tasks", body, field, status, headers=headers)


def task(field: str, **entry: Any) -> BadRequest:
    """Return an enqueue whose second entry is bad; the first is good and must not be done."""
    return tasks({"tasks": [GOOD_TASK, entry]}, f"tasks[1].{field}")


def report(field: str, message: str | None = "SUCCEEDED", /, **entry: Any) -> BadRequest:
    """Return two reports of which the second is bad; LEASE stands for the true lease."""
    held = {"task_id": "held", "lease_id": "LEASE"}
    body = {"reports": [{**held, "status": "SUCCEEDED"}, {**held, "status": message, **entry}]}
    return BadRequest("POST", "/v1/queues/mail/reports", body, f"reports[1].{field}")


def bulk(field: str, action: str = "delete", /, *nothing: None, **fields: Any) -> BadRequest:
    """Return a bulk action that is bad; *nothing* instead of fields sends no body."""
    return BadRequest("POST", f"/v1/queues/mail/tasks/{action}", None if nothing else fields, field)


def listing(field: str, value: str, path: str = "/v1/queues/mail/tasks") -> BadRequest:
    return BadRequest("GET", path, None, field, query={field: value})


CASES = [
    # what is not JSON, or not ours
    tasks(""),
    tasks("{"),
    tasks("tasks"),
    tasks("[]"),
    tasks("null"),
    tasks('"tasks"'),
    tasks('{"tasks":[{"payload":1}]} x'),
    tasks('{"tasks":[{"payload":NaN}]}'),
    tasks('{"tasks":[{"payload":1,"delay_in_seconds":Infinity}]}'),
    tasks('{"tasks":[{"payload":' + "[" * 100_000 + "]" * 100_000 + "}]}"),
    tasks('{"tasks":[{"payload":1,"tags":' + "[" * 100_000 + "]" * 100_000 + "}]}"),
    tasks('{"tasks":[{"payload":1,"delay_in_seconds":' + "9" * 10_000 + "}]}"),
    tasks("\ufeff" + json.dumps({"tasks": [GOOD_TASK]})),
    tasks(b'{"tasks":[{"payload":"\xff"}]}'),
    tasks('{"tasks":[{"payload":"\ud800"}]}'),
    tasks({"tasks": [GOOD_TASK]}, "Content-Type", content_type="text/plain"),
    tasks("tasks=1", "body", content_type="application/x-www-form-urlencoded"),
    tasks({"tasks": [GOOD_TASK]}, "Content-Type", content_type="multipart/form-data"),
    # wrong types, unknown fields, contradictions
    tasks({}, "tasks"),
    tasks({"tasks": []}, "tasks"),
    tasks({"tasks": GOOD_TASK}, "tasks"),
    tasks({"tasks": [GOOD_TASK] * 26}, "tasks"),
    tasks({"tasks": [GOOD_TASK, None]}, "tasks[1]"),
    tasks({"tasks": [GOOD_TASK], "jobs": []}, "jobs"),
    tasks({"tasks": [GOOD_TASK], "x" * 100_000: []}, "x" * 200 + "…"),
    tasks('{"tasks":[{"\\ud800":1}]}', "tasks[0]"),
    task("delay", payload=1, delay=5),
    task("id", id="no spaces"),
    task("id", id=1),
    task("delay_in_seconds", delay_in_seconds="5"),
    task("delay_in_seconds", delay_in_seconds=-1),
    task("delay_in_seconds", delay_in_seconds=1e300),
    task("scheduled_at", scheduled_at="2026-11-21T08:00:00"),
    task("scheduled_at", scheduled_at=1_795_248_000),
    task("scheduled_at", scheduled_at="99999-01-01T00:00:00Z"),
    task("delay_in_seconds", delay_in_seconds=1, scheduled_at="2026-11-21T09:00:00Z"),
    task("expires_at", expires_at="2026-11-21T09:00:00Z", scheduled_at="2026-11-21T09:00:00Z"),
    task("keepalive_timeout_in_seconds", keepalive_timeout_in_seconds=0),
    task("tags", tags=["a"]),
    task("tags", tags={str(number): "v" for number in range(11)}),
    task("tags.a", tags={"a": None}),
    task("tags.a", tags={"a": "x" * 257}),
    task("dedupe_key", dedupe_key=""),
    task("dedupe_key", dedupe_key="é" * 129),
    task("dedupe_key", dedupe_key=5),
    task("overwrite_on_duplicate", overwrite_on_duplicate=["payload"]),
    task("overwrite_on_duplicate", dedupe_key="k", overwrite_on_duplicate="payload"),
    task("overwrite_on_duplicate[1]", dedupe_key="k", overwrite_on_duplicate=["tags", "id"]),
    task("retry_strategy.kind", retry_strategy={"kind": "never"}),
    task("retry_strategy.max_retries", retry_strategy={"max_retries": 101}),
    # sizes
    BadRequest(
        "POST",
        "/v1/queues/mail/tasks",
        {"tasks": [GOOD_TASK, {"payload": "x" * 1_000_000}]},
        "tasks[1].payload",
        413,
    ),
    tasks('{"tasks":[{"payload":"' + "x" * 4_194_304 + '"}]}', "body", 413),
    tasks(b'{"tasks":[{"payload":"' + b"x" * 4_194_304 + b'"}]}', "body", 413),
    tasks(json.dumps({"tasks": [GOOD_TASK]}) + " " * 4_194_304, "body", 413),
    tasks('{"tasks":[{"payload":"' + "é" * 2_200_000 + '"}]}', "body", 413),
    replace(report("progress", "INFLIGHT", progress="x" * 4_096), status=413),
    # reports
    report("status", "DONE"),
    report("status", None),
    report("to_queue", "MOVED"),
    report("to_queue", "MOVED", to_queue="no spaces"),
    report("retryable", "FAILED", retryable="no"),
    report("error", "FAILED", error=[]),
    report("result", "FAILED", result=1),
    report("lease_id", lease_id=5),
    report("lease_id", lease_id="x" * 513),
    report("task_id", task_id=""),
    report("spawn", "FAILED", spawn=[{"queue": "mail", "payload": 1}]),
    report("spawn", "INFLIGHT", spawn=[{"queue": "mail", "payload": 1}]),
    report("spawn", "RELEASED", spawn=[{"queue": "mail", "payload": 1}]),
    report("spawn", spawn={"queue": "mail"}),
    report("spawn", spawn=[{"queue": "mail"}] * 25),
    report("spawn[0].queue", spawn=[{"payload": 1}]),
    report("spawn[1].queue", spawn=[{"queue": "mail"}, {"queue": "no spaces"}]),
    report("spawn[0].delay", spawn=[{"queue": "mail", "delay": 1}]),
    report("spawn[0].tags.a", spawn=[{"queue": "mail", "tags": {"a": 1}}]),
    report(
        "spawn[0].overwrite_on_duplicate",
        spawn=[{"queue": "mail", "dedupe_key": "k", "overwrite_on_duplicate": ["payload"]}],
    ),
    report("spawn[0].spawn", spawn=[{"queue": "mail", "spawn": []}]),
    replace(
        report("spawn[0].payload", spawn=[{"queue": "m", "payload": "x" * 262_143}]), status=413
    ),
    replace(report("spawn", spawn=[{"queue": "m", "payload": "x" * 233_016}] * 9), status=413),
    # dequeue
    BadRequest("POST", "/v1/queues/mail/dequeue", {"batch_size": 26}, "batch_size"),
    BadRequest("POST", "/v1/queues/mail/dequeue", {"batch_size": "1"}, "batch_size"),
    BadRequest("POST", "/v1/queues/mail/dequeue", {"wait_seconds": 21}, "wait_seconds"),
    BadRequest("POST", "/v1/queues/mail/dequeue", {"worker": "x" * 257}, "worker"),
    BadRequest("POST", "/v1/queues/mail/dequeue", {"lease_id": "x"}, "lease_id"),
    # queues
    BadRequest("POST", "/v1/queues", {}, "name"),
    BadRequest("POST", "/v1/queues", {"name": "no spaces"}, "name"),
    BadRequest("POST", "/v1/queues", {"name": "new", "shards": 65}, "shards"),
    BadRequest("POST", "/v1/queues", {"name": "new", "created_at": "x"}, "created_at"),
    BadRequest("POST", "/v1/queues", {"name": "new", "description": "x" * 1025}, "description"),
    BadRequest("PUT", "/v1/queues/mail", {"shards": 2, "version": "1"}, "version"),
    BadRequest("PUT", "/v1/queues/mail", {"shards": 2, "name": "other"}, "name"),
    BadRequest("PUT", "/v1/queues/mail", None, "body"),
    BadRequest("POST", "/v1/queues/mail/pause", {"resume_in_seconds": 0}, "resume_in_seconds"),
    BadRequest("POST", "/v1/queues/mail/pause", {"resume_in_seconds": "60"}, "resume_in_seconds"),
    BadRequest("POST", "/v1/queues/mail/resume", {"now": True}, "now"),
    BadRequest("POST", "/v1/queues/mail/recount", {"cursor": "forged"}, "cursor"),
    BadRequest("POST", "/v1/queues/mail/recount", {"cursor": 7}, "cursor"),
    BadRequest("POST", "/v1/queues/mail/recount", {"cursor": "x" * 5000}, "cursor"),
    BadRequest("POST", "/v1/queues/mail/recount", {"exact": True}, "exact"),
    BadRequest("POST", "/v1/queues/mail/purge", {}, "states"),
    BadRequest("POST", "/v1/queues/mail/purge", {"states": []}, "states"),
    BadRequest("POST", "/v1/queues/mail/purge", {"states": ["DEAD", "READY"]}, "states[1]"),
    # parameters
    listing("limit", "0"),
    listing("limit", "251"),
    listing("limit", "ten"),
    listing("limit", ""),
    listing("order", "up"),
    listing("payload", "yes"),
    listing("state", "DONE"),
    listing("state", "DEAD,"),
    listing("state", "x" * 201),
    listing("cursor", FORGED),
    listing("cursor", "é"),
    listing("cursor", "x" * 10_000),
    listing("worker", ""),
    listing("worker", "x" * 257),
    listing("tag.", "a"),
    listing("tag." + "x" * 65, "a"),
    listing("tag.service", "x" * 257),
    listing("scheduled_after", "yesterday"),
    listing("scheduled_before", "2026-11-21T08:00:00"),
    listing("min_attempts", "-1"),
    listing("min_attempts", "1.5"),
    listing("min_attempts", "many"),
    listing("error", ""),
    listing("error", "x" * 4097),
    listing("workers", "ada"),
    replace(listing("tag.<key>", ""), query={f"tag.{number}": "v" for number in range(11)}),
    listing("cursor", FORGED, "/v1/queues"),
    listing("limit", "251", "/v1/queues"),
    listing("prefix", "x" * 129, "/v1/queues"),
    listing("state", "DONE", "/v1/queues/mail/count"),
    listing("tag.", "DONE", "/v1/queues/mail/count"),
    listing("min_attempts", "x", "/v1/queues/mail/count"),
    listing("order", "asc", "/v1/queues/mail/count"),
    listing("tag.service", "a", "/v1/queues/mail"),
    listing("tag.service", "a", "/v1/queues"),
    listing("payload", "true", "/v1/tasks/held/explain"),
    # bulk actions
    bulk("ids"),
    bulk("filter"),
    bulk("ids", ids=["held"], filter={}),
    bulk("filter", ids=["held"], filter={}),
    bulk("ids", ids=[]),
    bulk("ids", ids=["held"] * 251),
    bulk("ids", ids="held"),
    bulk("ids[1]", ids=["held", "no spaces"]),
    bulk("ids[0]", ids=[1]),
    bulk("limit", ids=["held"], limit=5),
    bulk("cursor", ids=["held"], cursor=FORGED),
    bulk("limit", filter={}, limit=0),
    bulk("limit", filter={}, limit=1_000_001),
    bulk("limit", filter={}, limit="5"),
    bulk("cursor", filter={}, cursor=FORGED),
    bulk("cursor", filter={}, cursor="x" * 8193),
    bulk("dry_run", filter={}, dry_run="yes"),
    bulk("dry-run", filter={}, **{"dry-run": True}),
    bulk("to_queue", filter={}, to_queue="other"),
    bulk("filter", filter=[]),
    bulk("filter.state", filter={"state": "DONE"}),
    bulk("filter.state", filter={"state": ["DEAD"]}),
    bulk("filter.states", filter={"states": "DEAD"}),
    bulk("filter.tags", filter={"tags": "service"}),
    bulk("filter.tags.a", filter={"tags": {"a": 1}}),
    bulk("filter.tag.a", filter={"tag.a": "1"}),
    bulk("filter.worker", filter={"worker": ""}),
    bulk("filter.scheduled_after", filter={"scheduled_after": "now"}),
    bulk("filter.scheduled_before", filter={"scheduled_before": 5}),
    bulk("filter.min_attempts", filter={"min_attempts": "1"}),
    bulk("filter.min_attempts", filter={"min_attempts": -1}),
    bulk("filter.error", filter={"error": ""}),
    bulk("filter.limit", filter={"limit": 5}),
    bulk("body", "restart", None),
    bulk("limit", "run", filter={}, limit=0),
    bulk("to_queue", "move", filter={}),
    bulk("to_queue", "move", filter={}, to_queue="no spaces"),
    bulk("to_queue", "move", filter={}, to_queue="mail"),
    bulk("to_queue", "move", ids=["waiting"], to_queue="mail"),
    # the audit
    listing("from", "yesterday", "/v1/audit"),
    listing("to", "2026-11-21", "/v1/audit"),
    listing("limit", "0", "/v1/audit"),
    listing("cursor", FORGED, "/v1/audit"),
    listing("queue", "x" * 129, "/v1/audit"),
    listing("actor", "x" * 257, "/v1/audit"),
    listing("action", "x" * 65, "/v1/audit"),
    listing("since", "2026-11-21T08:00:00Z", "/v1/audit"),
    # as QuantumLeap
    *(
        BadRequest(method, f"/management/queue/notifications{part}", None, field, query=query)
        for method, part in (("GET", ""), ("GET", "/summary"), ("GET", "/count"), ("DELETE", ""))
        for field, query in (
            ("taskStatus", {"taskStatus": "running"}),
            ("taskStatus", {"taskStatus": ""}),
            ("limit", {"limit": "5"}),
        )
    ),
    listing("cursor", FORGED, "/management/queue/notifications"),
    listing("cursor", FORGED, "/management/queue/notifications/summary"),
    BadRequest(
        "DELETE",
        "/management/queue/notifications",
        None,
        "fiware-servicepath",
        headers={"Fiware-ServicePath": "/" * 513},
    ),
    listing("limit", "5", "/v1/queues/mail/count"),
    listing("payload", "1", "/v1/tasks/held"),
    listing("verbose", "1", "/v1/queues/mail"),
    BadRequest(
        "DELETE", "/v1/tasks/held", None, "if_not_inflight", query={"if_not_inflight": "maybe"}
    ),
    BadRequest("DELETE", "/v1/queues/mail", None, "force", query={"force": "true"}),
    BadRequest("GET", "/v1/health", None, "verbose", query={"verbose": "1"}),
    # notifications
    BadRequest("POST", "/v2/notify", "[]"),
    BadRequest("POST", "/v2/notify", None),
    BadRequest("POST", "/v2/notify", '{"data":[NaN]}'),
    BadRequest("POST", "/v2/notify", {"data": ["x" * 262_144]}, "body", 413),
    BadRequest(
        "POST",
        "/v2/notify",
        {"data": []},
        "fiware-service",
        headers={"Fiware-Service": "x" * 257},
    ),
    # what is not there
    BadRequest("GET", "/v1/queues/nobody", None, "", 404),
    BadRequest("POST", "/v1/queues/nobody/tasks", {"tasks": [GOOD_TASK]}, "", 404),
    BadRequest("POST", "/v1/queues/nobody/dequeue", {}, "", 404),
    BadRequest("GET", "/v1/queues/nobody/tasks", None, "", 404),
    BadRequest("GET", "/v1/queues/nobody/count", None, "", 404),
    BadRequest("POST", "/v1/queues/nobody/pause", None, "", 404),
    BadRequest("POST", "/v1/queues/nobody/purge", {"states": ["DEAD"]}, "", 404),
    BadRequest("POST", "/v1/queues/nobody/recount", {}, "", 404),
    BadRequest("POST", "/v1/batches/nobody/recount", {}, "", 404),
    BadRequest("PUT", "/v1/queues/nobody", {}, "", 404),
    BadRequest("POST", "/v1/queues/nobody/tasks/delete", {"filter": {}}, "", 404),
    BadRequest("POST", "/v1/queues/nobody/tasks/restart", {"ids": ["held"]}, "", 404),
    BadRequest("POST", "/v1/queues/mail/tasks/move", {"filter": {}, "to_queue": "nobody"}, "", 404),
    BadRequest("POST", "/v1/queues/mail/tasks/burn", {"filter": {}}, "", 404),
    BadRequest("GET", "/v1/queues/mail/tasks/delete", None, "", 404),
    BadRequest("GET", "/v1/tasks/nobody/explain", None, "", 404),
    BadRequest("GET", "/v1/tasks/a%20b/explain", None, "", 404),
    BadRequest("POST", "/management/queue/notifications", None, "", 404),
    BadRequest("GET", "/management/queue/notifications/nobody", None, "", 404),
    BadRequest("GET", "/v1/nothing", None, "", 404),
    BadRequest("GET", "/v1/nothing", None, "", 404, query={"a": "b"}),
    BadRequest("POST", "/v1/nothing", "not json", "", 404),
    BadRequest("PATCH", "/v1/queues/mail", {"shards": 2}, "", 404),
    BadRequest("GET", "/v1/queues/mail/dequeue", None, "", 404),
    BadRequest("GET", "/", None, "", 404),
]


@pytest.fixture
def lease(call: Service) -> str:
    """Fill the service with queues, a waiting task and one that is held; give its lease."""
    path = call.queue("mail")
    call.queue("ngsi.notify")
    call.put(path, {}, id="held")
    (held,) = call.take(path)
    call.put(path, {}, id="waiting")
    return str(held["lease"]["id"])


def state_of(service: Service) -> tuple[str, ...]:
    """Return all that can be seen of the service, but attempts that changed nothing."""
    audit = service("GET", "/v1/audit").json["entries"]
    return (
        *(entry["action"] for entry in audit if entry["changed"] != 0),
        service("GET", "/v1/queues").body,
        service("GET", "/v1/queues/mail/tasks", query={"payload": "true"}).body,
        service("GET", "/v1/queues/ngsi.notify/tasks").body,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bad_input_is_refused_by_name_and_changes_nothing(
    case: BadRequest, call: Service, lease: str
) -> None:
    before = state_of(call)
    body = case.body
    if case.path.endswith("/reports"):
        body = json.loads(json.dumps(body).replace('"LEASE"', json.dumps(lease)))

    answer = call(case.method, case.path, body, case.headers, case.query)

    assert answer.status == case.status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert set(problem) == {"type", "title", "status", "code", "detail", "errors"}
    codes = {400: "invalid_request", 404: "not_found", 413: "payload_too_large"}
    assert (problem["status"], problem["code"]) == (case.status, codes[case.status])
    assert problem["detail"]
    if case.field:
        assert case.field in answer.fields, problem
    assert all(error["message"] for error in problem["errors"])
    assert len(answer.body) < 100_000
    assert state_of(call) == before


def test_the_largest_payload_and_body_are_taken(call: Service) -> None:
    path = call.queue()
    payload = "x" * (262_144 - 2)

    assert len(call.put(path, *[payload] * 15)) == 15
    body = '{"tasks":[{"payload":1}]}'
    assert call("POST", f"{path}/tasks", body + " " * (4_194_304 - len(body))).status == 200
    assert call("POST", f"{path}/tasks", body.encode()).status == 200


def test_a_body_that_comes_as_text_is_taken_and_measured_too(call: Service) -> None:
    path = call.queue()
    event = proxy_event("POST", f"{path}/tasks", headers={"Authorization": f"Bearer {KEY}"})

    def sent(body: str) -> int:
        with using(call.use):
            answer = call.handler({**event, "body": body}, call.context)
        status: int = answer["statusCode"]
        return status

    assert sent('{"tasks":[{"payload":"é"}]}') == 200
    assert sent('{"tasks":[{"payload":"' + "é" * 2_200_000 + '"}]}') == 413


def test_a_body_may_come_with_no_content_type_a_charset_or_curls_default(call: Service) -> None:
    path = call.queue()

    curls = "application/x-www-form-urlencoded"
    for content_type in ("", "application/json; charset=utf-8", curls):
        answer = call("POST", f"{path}/tasks", {"tasks": [{}]}, {"Content-Type": content_type})
        assert answer.status == 200


def test_every_bad_field_is_named_at_once(call: Service) -> None:
    body = {"tasks": [{"id": "a b", "x": 1}, {"delay_in_seconds": "1"}], "y": 2}

    answer = call("POST", f"{call.queue()}/tasks", body)

    assert answer.fields == {"tasks[0].id", "tasks[0].x", "tasks[1].delay_in_seconds", "y"}
