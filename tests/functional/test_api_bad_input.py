"""Bad input: the right code, a message that names the field, never a 5xx, nothing half done."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace.domain.push import MASK
from tests.functional.conftest import Service

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


def queue(field: str, **settings: Any) -> BadRequest:
    return BadRequest("POST", "/v1/queues", {"name": "new", **settings}, field)


def schedule(field: str, **body: Any) -> BadRequest:
    return BadRequest("PUT", "/v1/queues/mail/schedules/nightly", body, field)


URL = "https://example.com/"
ACTION = {"action": "restart", "queues": ["mail"], "filter": {}}
VIEWER = {"name": "ada", "role": "viewer", "queues": ["*"]}
SIGN = {
    "queues": ["mail"],
    "concurrency": 1,
    "running": [],
    "version": "1",
    "started_at": "2026-11-21T08:00:00Z",
}
CASES = [
    # not JSON, or not a request
    tasks("{"),
    tasks('{"tasks":[{"payload":NaN}]}'),
    tasks('{"tasks":[{"payload":' + "[" * 100_000 + "]" * 100_000 + "}]}"),
    tasks("\ufeff" + json.dumps({"tasks": [GOOD_TASK]})),
    tasks(b'{"tasks":[{"payload":"\xff"}]}'),
    tasks('{"tasks":[{"payload":"\ud800"}]}'),
    tasks({"tasks": [GOOD_TASK]}, "Content-Type", content_type="text/plain"),
    # wrong types, unknown fields, contradictions
    tasks({"tasks": [GOOD_TASK] * 26}, "tasks"),
    tasks({"tasks": [GOOD_TASK, None]}, "tasks[1]"),
    tasks({"tasks": [GOOD_TASK], "x" * 100_000: []}, "x" * 200 + "…"),
    task("delay", payload=1, delay=5),
    task("delay_in_seconds", delay_in_seconds=1e300),
    task("scheduled_at", scheduled_at="2026-11-21T08:00:00"),
    task("delay_in_seconds", delay_in_seconds=1, scheduled_at="2026-11-21T09:00:00Z"),
    task("unique_for_seconds", unique_for_seconds=31_536_001, dedupe_key="k"),
    task("id", unique_for_seconds=60, dedupe_key="k", id="mine"),
    task("overwrite_on_duplicate[1]", dedupe_key="k", overwrite_on_duplicate=["tags", "id"]),
    # sizes
    tasks(b'{"tasks":[{"payload":"' + b"x" * 4_194_304 + b'"}]}', "body", 413),
    tasks(json.dumps({"tasks": [GOOD_TASK]}) + " " * 4_194_304, "body", 413),
    replace(report("progress", "INFLIGHT", progress="x" * 4_096), status=413),
    # reports
    report("to_queue", "MOVED"),
    report("result", "FAILED", result=1),
    report("spawn", spawn=[{"queue": "mail"}] * 251),
    replace(report("spawn", spawn=[{"queue": "m", "payload": "x" * 233_016}] * 9), status=413),
    # dequeue
    BadRequest("POST", "/v1/queues/mail/dequeue", {"batch_size": 26}, "batch_size"),
    # queues
    BadRequest("POST", "/v1/queues", {"name": "no spaces"}, "name"),
    BadRequest("POST", "/v1/queues", {"name": "new", "shards": 65}, "shards"),
    BadRequest("POST", "/v1/queues", {"name": "new", "description": "x" * 1025}, "description"),
    BadRequest("POST", "/v1/queues/mail/purge", {"states": ["DEAD", "READY"]}, "states[1]"),
    # parameters
    listing("limit", "251"),
    listing("state", "DONE"),
    listing("cursor", FORGED),
    listing("tag." + "x" * 65, "a"),
    listing("error", "x" * 4097),
    listing("limit", "5", "/v1/queues/mail/count"),
    listing("cursor", FORGED, "/v1/queues/mail/count"),
    BadRequest(
        "DELETE", "/v1/tasks/held", None, "if_not_inflight", query={"if_not_inflight": "maybe"}
    ),
    # actions on many tasks
    bulk("ids", ids=["held"], filter={}),
    bulk("ids[1]", ids=["held", "no spaces"]),
    bulk("limit", filter={}, limit=1_000_001),
    bulk("to_queue", filter={}, to_queue="other"),
    bulk("filter.state", filter={"state": "DONE"}),
    bulk("filter.min_attempts", filter={"min_attempts": -1}),
    bulk("to_queue", "move", ids=["waiting"], to_queue="mail"),
    # the audit
    listing("action", "x" * 65, "/v1/audit"),
    # as QuantumLeap
    BadRequest(
        "DELETE",
        "/management/queue/notifications",
        None,
        "fiware-servicepath",
        headers={"Fiware-ServicePath": "/" * 513},
    ),
    # notifications
    BadRequest("POST", "/v2/notify", "[]"),
    BadRequest("POST", "/v2/notify", {"data": ["x" * 262_144]}, "body", 413),
    # settings of queues
    queue("groups.mode", groups={"mode": "first"}),
    queue("groups.on_dead", groups={"mode": "fair", "on_dead": "halt"}),
    queue("groups.weights.a", groups={"mode": "fair", "weights": {"a": 1_001}}),
    queue("priority.aging_in_seconds", priority={"aging_in_seconds": 86_401}),
    queue("on_end.states[0]", on_end={"queue": "mail", "states": ["ENQUEUED"]}),
    queue("alerts.no_workers_for_seconds", alerts={"queue": "mail", "no_workers_for_seconds": 59}),
    queue("target.url", target={"url": "https://127.0.0.1/"}),
    queue("target.timeout_in_seconds", target={"url": URL, "timeout_in_seconds": 301}),
    queue("target.headers.Host", target={"url": URL, "headers": {"Host": "a"}}),
    queue("target.headers.X", target={"url": URL, "headers": {"X": MASK}}),
    # schedules
    schedule("every_seconds", cron="* * * * *", every_seconds=5),
    schedule("cron", cron="61 * * * *"),
    schedule("every_seconds", every_seconds=0.99),
    schedule("timezone", every_seconds=60, timezone="Mars/Olympus"),
    schedule("missed", every_seconds=60, missed="some"),
    schedule("dedupe_until", every_seconds=60, dedupe_until="start"),
    # batches
    BadRequest("POST", "/v1/batches", {"on": {"ended": {"payload": 1}}}, "on.ended.queue"),
    BadRequest("POST", "/v1/batches", {"on": {"ended": {"queue": "nowhere"}}}, "on.ended.queue"),
    # actions
    BadRequest("POST", "/v1/actions", {**ACTION, "queues": ["mail", "mail"]}, "queues"),
    BadRequest("POST", "/v1/actions", {**ACTION, "action": "move"}, "to_queue"),
    BadRequest("POST", "/v1/actions", {**ACTION, "reason": "é" * 251}, "reason"),
    bulk("undo_in_seconds", filter={}, undo_in_seconds=604_801),
    BadRequest(
        "DELETE", "/v1/tasks/held", None, "undo_in_seconds", query={"undo_in_seconds": "soon"}
    ),
    # keys
    BadRequest("POST", "/v1/keys", {**VIEWER, "name": "bootstrap"}, "name"),
    BadRequest("POST", "/v1/keys", {**VIEWER, "name": "\u202eadmin"}, "name"),
    BadRequest("POST", "/v1/keys", {**VIEWER, "queues": ["*", "x" * 257]}, "queues[1]"),
    BadRequest("POST", "/v1/keys/key_1/rotate", {"overlap_seconds": 86_401}, "overlap_seconds"),
    # workers and leases
    BadRequest("PUT", "/v1/workers/ada", {**SIGN, "queues": ["mail", "no good"]}, "queues[1]"),
    BadRequest("PUT", "/v1/workers/ada", {**SIGN, "running": ["a"] * 101}, "running"),
    BadRequest("PUT", f"/v1/workers/{'x' * 257}", SIGN, "name"),
    BadRequest(
        "POST",
        "/v1/leases",
        {"keepalive_timeout_in_seconds": 43_201},
        "keepalive_timeout_in_seconds",
    ),
    BadRequest("POST", "/v1/queues/mail/dequeue", {"lease_id": "lse_1.1."}, "lease_id"),
    BadRequest("POST", "/v1/dequeue", {"queues": [f"q{n}" for n in range(33)]}, "queues"),
    # metrics and waiting
    listing("step_seconds", "59", "/v1/queues/mail/metrics"),
    listing("wait_seconds", "20.5", "/v1/tasks/held"),
    # not found
    BadRequest("POST", "/v1/queues/nobody/tasks", {"tasks": [GOOD_TASK]}, "", 404),
    BadRequest("POST", "/v1/queues/nobody/dequeue", {}, "", 404),
    BadRequest("POST", "/v1/queues/mail/tasks/move", {"filter": {}, "to_queue": "nobody"}, "", 404),
    BadRequest("GET", "/v1/tasks/a%20b/explain", None, "", 404),
    BadRequest("GET", "/v1/nothing", None, "", 404, query={"a": "b"}),
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
