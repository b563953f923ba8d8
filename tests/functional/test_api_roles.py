"""Every route and every role: who gets in, who does not, and that nobody sees or does too much."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.task import Task
from headrace.http.app import RESOLVER
from headrace.http.openapi import document
from headrace.http.permissions import NEEDS, needs_of
from headrace.runtime.wiring import Settings, build
from headrace.store.base import charge
from headrace.store.memory import MemoryStore
from tests.functional.conftest import KEY, Answer, Service
from tests.manual_clock import ManualClock

VIEWER, OPERATOR, PRODUCER, WORKER, ADMIN = Role
EVERYBODY = {*Role}

# The table of the contract, route by route, those included that are still to come.
TABLE: list[tuple[set[Role], list[str]]] = [
    (
        EVERYBODY,
        [
            "GET /v1/queues",
            "GET /v1/queues/{queue}",
            "GET /v1/queues/{queue}/stats",
            "GET /v1/queues/{queue}/metrics",
            "GET /v1/queues/{queue}/count",
            "GET /v1/queues/{queue}/schedules/{name}",
            "GET /v1/tasks/{id}",
            "GET /v1/tasks/{id}/explain",
            "GET /management/queue/notifications/count",
        ],
    ),
    (
        {VIEWER, OPERATOR, ADMIN},
        [
            "GET /v1/queues/{queue}/tasks",
            "GET /v1/workers",
            "GET /management/queue/notifications/summary",
        ],
    ),
    ({OPERATOR, PRODUCER, WORKER, ADMIN}, ["POST /v1/queues/{queue}/tasks", "POST /v2/notify"]),
    (
        {WORKER, ADMIN},
        [
            "POST /v1/queues/{queue}/dequeue",
            "POST /v1/queues/{queue}/reports",
            "POST /v1/leases",
            "POST /v1/leases/{id}/extend",
            "DELETE /v1/leases/{id}",
            "PUT /v1/workers/{name}",
        ],
    ),
    (
        {OPERATOR, ADMIN},
        [
            "DELETE /v1/tasks/{id}",
            "POST /v1/queues/{queue}/tasks/delete",
            "POST /v1/queues/{queue}/tasks/restart",
            "POST /v1/queues/{queue}/tasks/run",
            "POST /v1/queues/{queue}/tasks/move",
            "POST /v1/queues/{queue}/purge",
            "POST /v1/queues/{queue}/pause",
            "POST /v1/queues/{queue}/resume",
            "PUT /v1/queues/{queue}/schedules/{name}",
            "DELETE /v1/queues/{queue}/schedules/{name}",
            "POST /v1/queues/{queue}/schedules/{name}/run",
            "GET /v1/audit",
            "POST /v1/workers/{name}/quiet",
            "POST /v1/workers/{name}/stop",
            "GET /management/queue/notifications",
            "DELETE /management/queue/notifications",
        ],
    ),
    (
        {ADMIN},
        [
            "POST /v1/queues",
            "PUT /v1/queues/{queue}",
            "DELETE /v1/queues/{queue}",
            "POST /v1/keys",
            "GET /v1/keys",
            "DELETE /v1/keys/{id}",
        ],
    ),
]
MAY = {route: roles for roles, routes in TABLE for route in routes}
OPEN = {"GET /v1/health", "GET /v1/openapi.json", "GET /v1/docs"}

OPERATIONS: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": operation
    for path, methods in document(RESOLVER)["paths"].items()
    for method, operation in methods.items()
}
KEYED = [route for route in OPERATIONS if route not in OPEN]
OF_A_QUEUE = [route for route in KEYED if "{queue}" in route]
OF_A_TASK = [route for route in KEYED if "/tasks/{id}" in route]
ALWAYS_NOTIFY = [route for route in KEYED if "/v2/" in route or "/management/" in route]

HIDDEN = {"payload": "what-is-in-it", "result": "what-came-of-it", "progress": "how-far-it-is"}


def keyed(service: Service, role: Role, *queues: str) -> Service:
    """Return *service* as a new key of *role* calls it."""
    body = {"name": f"the {role}", "role": role, "queues": queues or ["*"]}
    made = replace(service, key=KEY)("POST", "/v1/keys", body)
    assert made.status == 201, made.body
    return replace(service, key=made.json["secret"])


def example(route: str) -> Any:
    """Return the first example of a body that the documents give, which is a sensible one."""
    content = OPERATIONS[route].get("requestBody", {}).get("content", {})
    for media in content.values():
        for given in media.get("examples", {}).values():
            return given["value"]
    return None


def send(service: Service, route: str, body: Any = None, **names: str) -> Answer:
    """Send the example of *route* with *names* in its path; a missing one is that of nothing."""
    method, path = route.split(" ")
    for name in ("queue", "id", "name"):
        path = path.replace(f"{{{name}}}", names.get(name, "nothing"))
    return service(method, path, example(route) if body is None else body)


@pytest.fixture
def stocked(call: Service) -> Service:
    """Give a service with queues and tasks in them."""
    for name in ("ngsi.notify", "ngsi.entities", "ngsi.quarantine", "mail"):
        call.queue(name)
        call.put(f"/v1/queues/{name}", *[HIDDEN["payload"]] * 3)
        done, running = call.take(f"/v1/queues/{name}", 2)
        call.say(done, "SUCCEEDED", result=HIDDEN["result"])
        call.say(running, "INFLIGHT", progress=HIDDEN["progress"])
        schedule = {"every_seconds": 3600, "payload": HIDDEN["payload"]}
        assert call("PUT", f"/v1/queues/{name}/schedules/nightly", schedule).status == 200
    return call


def tasks(service: Service, queue: str) -> list[dict[str, Any]]:
    admin = replace(service, key=KEY)
    found: list[dict[str, Any]] = admin(
        "GET", f"/v1/queues/{queue}/tasks", query={"payload": "true"}
    ).json["tasks"]
    return found


def everything(service: Service) -> Any:
    """Return all that a call without permission might have changed."""
    admin = replace(service, key=KEY)
    queues = admin("GET", "/v1/queues").json
    return queues, [tasks(service, queue["name"]) for queue in queues["queues"]]


# ------------------------------------------------------------------------------ routes and roles


def test_every_route_has_a_row_in_the_table() -> None:
    assert {*OPERATIONS} <= {*MAY, *OPEN}
    assert {*NEEDS} == {*MAY, *OPEN}


def test_a_route_without_a_row_stops_the_service_from_starting() -> None:
    with pytest.raises(LookupError, match="GET /v1/new has no row"):
        needs_of("GET", "/v1/new")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("route", KEYED)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    stocked: Service, route: str, role: Role
) -> None:
    service = keyed(stocked, role)
    before = everything(stocked)

    answer = send(service, route, queue="mail")

    if role in MAY[route]:
        assert answer.status in {200, 201, 204, 404, 409}, answer.body
    else:
        assert (answer.status, answer.json["code"]) == (403, "forbidden")
        assert "that takes the role" in answer.json["detail"]
        assert all(name in answer.json["detail"] for name in MAY[route])
        assert everything(stocked) == before


@pytest.mark.parametrize("route", KEYED)
def test_a_refusal_comes_before_the_body_is_looked_at(call: Service, route: str) -> None:
    for role in EVERYBODY - MAY[route]:
        answer = send(keyed(call, role), route, body='{"no": ')
        assert answer.status == 403


@pytest.mark.parametrize("route", KEYED)
def test_without_a_key_nothing_is_done_at_all(stocked: Service, route: str) -> None:
    before = everything(stocked)

    for key in (None, "wrong", f"hr_{'0' * 20}_{'0' * 40}"):
        answer = send(replace(stocked, key=key), route, queue="mail")
        assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"

    assert everything(stocked) == before


@pytest.mark.parametrize("route", sorted(OPEN))
def test_what_needs_no_key_takes_none_and_any(call: Service, route: str) -> None:
    for key in (None, "wrong", KEY):
        assert send(replace(call, key=key), route).status == 200


def test_where_there_is_nothing_there_is_nothing_for_any_role(call: Service) -> None:
    for role in Role:
        assert keyed(call, role, "mail")("GET", "/v1/nothing").status == 404


def test_the_documents_say_who_may_what() -> None:
    for route in KEYED:
        assert {*OPERATIONS[route]["x-roles"]} == MAY[route]
        assert (
            f"Roles: {', '.join(OPERATIONS[route]['x-roles'])}."
            in (OPERATIONS[route]["description"])
        )
        assert "403" in OPERATIONS[route]["responses"]
    for route in OPEN:
        assert "x-roles" not in OPERATIONS[route]
        assert "403" not in OPERATIONS[route]["responses"]


# ---------------------------------------------------------------------------------------- queues


@pytest.mark.parametrize("route", OF_A_QUEUE)
def test_a_queue_outside_is_refused_whether_it_exists_or_not(stocked: Service, route: str) -> None:
    service = keyed(stocked, ADMIN, "ngsi.*")
    before = everything(stocked)
    details = set()

    for queue in ("mail", "nobody", "ngsi", "ng%73i", "xngsi.notify", "a b"):
        answer = send(service, route, queue=queue)
        assert (answer.status, answer.json["code"]) == (403, "forbidden"), queue
        details.add(answer.json["detail"].rpartition(" queue ")[0])

    assert details == {"this key is not for"}
    assert everything(stocked) == before


@pytest.mark.parametrize("route", OF_A_QUEUE)
def test_a_queue_inside_is_there_or_not_as_for_everybody(stocked: Service, route: str) -> None:
    service = keyed(stocked, ADMIN, "ngsi.*")

    missing = send(service, route, queue="ngsi.nobody")
    there = send(service, route, queue="ngsi.%6eotify")

    assert missing.status == 404
    assert there.status < 400 or "{name}" in route, there.body


def test_a_name_in_the_path_is_the_same_however_it_is_encoded(stocked: Service) -> None:
    service = keyed(stocked, ADMIN, "mail", "%6eew")

    assert service("GET", "/v1/queues/m%61il").status == 200
    assert service("GET", "/v1/queues/%6eew").status == 403  # the pattern is no encoding
    assert service("GET", "/v1/queues/m%2561il").status == 403  # m%61il, which is no name


@pytest.mark.parametrize("route", ALWAYS_NOTIFY)
def test_notifications_are_a_queue_like_others(stocked: Service, route: str) -> None:
    assert send(keyed(stocked, ADMIN, "ngsi.notify"), route).status in {200, 204}
    assert send(keyed(stocked, ADMIN, "mail", "ngsi.n"), route).status == 403


@pytest.mark.parametrize("route", OF_A_TASK)
def test_a_task_outside_and_a_task_that_is_not_there_are_refused_alike(
    stocked: Service, route: str
) -> None:
    service = keyed(stocked, ADMIN, "ngsi.*")
    outside = tasks(stocked, "mail")[0]["id"]
    before = everything(stocked)

    answers = [send(service, route, id=task_id) for task_id in (outside, "nobody", "not an id")]

    assert {answer.status for answer in answers} == {403}
    assert len({answer.json["detail"].split(" task ")[0] for answer in answers}) == 1
    assert everything(stocked) == before
    inside = tasks(stocked, "ngsi.notify")[0]["id"]
    assert send(service, route, id=inside).status in {200, 204}
    assert send(replace(stocked, key=KEY), route, id="nobody").status == 404


def test_what_a_refusal_cost_tells_nothing_of_the_size_of_a_task() -> None:
    class _Costly(MemoryStore):
        def read(self, task_ids: Iterable[str], *, payload: bool = True) -> dict[str, Task]:
            charge(read=25)
            return super().read(task_ids, payload=payload)

    clock = ManualClock()
    call = Service(clock, build(Settings(admin_key=KEY), _Costly(), now=clock))
    (task_id,) = call.put(call.queue("mail"))

    refused = keyed(call, WORKER, "ngsi.*")("GET", f"/v1/tasks/{task_id}")

    assert (refused.status, refused.headers["x-consumed-units"]) == (403, "w=0, r=0")
    assert call("GET", f"/v1/tasks/{task_id}").headers["x-consumed-units"] == "w=0, r=25"


def test_only_the_own_queues_are_listed_and_pages_tell_nothing_of_others(call: Service) -> None:
    for name in ("a", "ngsi.1", "ngsi.2", "o", "ngsi.3", "z"):
        call.queue(name)
    service = keyed(call, VIEWER, "ngsi.*")

    first = service("GET", "/v1/queues", query={"limit": "2"}).json
    query = {"limit": "1", "cursor": first["cursor"]}
    last = service("GET", "/v1/queues", query=query).json

    assert [queue["name"] for queue in first["queues"]] == ["ngsi.1", "ngsi.2"]
    assert [queue["name"] for queue in last["queues"]] == ["ngsi.3"]
    assert last["cursor"] is None
    assert service("GET", "/v1/queues", query={"prefix": "a"}).json["queues"] == []


def outside_targets() -> Iterator[tuple[str, Any, str]]:
    """Yield requests that name a queue outside in their body, and where."""
    held = {"task_id": "a", "lease_id": "b"}
    fine = {**held, "status": "SUCCEEDED"}
    moved = {**held, "status": "MOVED", "to_queue": "mail", "payload": {"to_queue": "ngsi.x"}}
    spawn = [{"queue": "ngsi.entities"}, {"queue": "mail"}]
    reports = "POST /v1/queues/{queue}/reports"
    move = "POST /v1/queues/{queue}/tasks/move"
    create = "POST /v1/queues"
    yield create, {"name": "mail2"}, "name"
    yield reports, {"reports": [fine, moved]}, "reports[1].to_queue"
    yield reports, {"reports": [{**fine, "spawn": spawn}]}, "reports[0].spawn[1].queue"
    yield move, {"ids": ["a"], "to_queue": "mail"}, "to_queue"
    yield move, {"filter": {}, "to_queue": "nobody", "dry_run": True}, "to_queue"
    yield "POST /v1/keys", {"name": "x", "role": "viewer", "queues": ["ngsi.1", "*"]}, "queues[1]"


@pytest.mark.parametrize(("route", "body", "field"), list(outside_targets()))
def test_queues_that_a_body_names_stay_inside_too(
    stocked: Service, route: str, body: Any, field: str
) -> None:
    service = keyed(stocked, ADMIN, "ngsi.*")
    before = everything(stocked)

    answer = send(service, route, body, queue="ngsi.notify")

    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert answer.fields == {field}
    assert everything(stocked) == before


def test_a_queue_named_in_a_payload_is_nobodys_business(stocked: Service) -> None:
    service = keyed(stocked, PRODUCER, "ngsi.*")
    body = {"tasks": [{"payload": {"queue": "mail", "to_queue": "mail", "queues": ["mail"]}}]}

    assert service("POST", "/v1/queues/ngsi.notify/tasks", body).status == 200


def test_reports_are_refused_before_the_first_of_them_takes_effect(stocked: Service) -> None:
    service = keyed(stocked, WORKER, "ngsi.*")
    stocked.put("/v1/queues/ngsi.notify", 1, 2)
    held = service.take("/v1/queues/ngsi.notify", 2)
    first, second = ({"task_id": task["id"], "lease_id": task["lease"]["id"]} for task in held)
    reports = [
        {**first, "status": "SUCCEEDED"},
        {**second, "status": "MOVED", "to_queue": "mail"},
    ]

    answer = service("POST", "/v1/queues/ngsi.notify/reports", {"reports": reports})

    assert answer.status == 403
    assert {stocked.see(task["id"])["state"] for task in held} == {"INFLIGHT"}
    reports[1]["to_queue"] = "ngsi.entities"
    again = service("POST", "/v1/queues/ngsi.notify/reports", {"reports": reports})
    assert [result["outcome"] for result in again.json["results"]] == ["OK", "OK"]


def test_a_restricted_operator_reads_the_audit_of_its_queues(stocked: Service) -> None:
    stocked("POST", "/v1/queues/mail/pause")
    service = keyed(stocked, OPERATOR, "ngsi.*")
    service("POST", "/v1/queues/ngsi.notify/pause")

    seen = service("GET", "/v1/audit").json["entries"]

    assert {entry["queue"] for entry in seen} == {"ngsi.notify", "ngsi.entities", "ngsi.quarantine"}
    assert (seen[0]["actor"], seen[0]["action"]) == ("the operator", "pause")
    assert service("GET", "/v1/audit", query={"queue": "mail"}).status == 403
    assert service("GET", "/v1/audit", query={"queue": "ngsi.notify"}).status == 200


# --------------------------------------------------------------------------------------- viewers


@pytest.mark.parametrize("route", [route for route in KEYED if route.startswith("GET ")])
def test_a_viewer_never_sees_payload_result_or_progress(stocked: Service, route: str) -> None:
    viewer = keyed(stocked, VIEWER)
    for task in tasks(stocked, "ngsi.notify"):
        answer = send(viewer, route, queue="ngsi.notify", id=task["id"], name="nightly")

        assert answer.status in {200, 403, 404}
        assert not [text for text in HIDDEN.values() if text in answer.body]


@pytest.mark.parametrize(
    "route",
    [
        route
        for route in KEYED
        if "payload" in [of["name"] for of in OPERATIONS[route].get("parameters", [])]
    ],
)
def test_a_viewer_that_asks_for_payloads_is_refused(stocked: Service, route: str) -> None:
    viewer, operator = keyed(stocked, VIEWER), keyed(stocked, OPERATOR)
    task_id = tasks(stocked, "mail")[0]["id"]
    path = route.removeprefix("GET ").replace("{queue}", "mail").replace("{id}", task_id)

    refused = viewer("GET", path, query={"payload": "true"})

    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    assert "payloads" in refused.json["detail"]
    assert viewer("GET", path, query={"payload": "false"}).status == 200
    assert viewer("GET", path).status == 200
    assert HIDDEN["payload"] in operator("GET", path, query={"payload": "true"}).body


def test_a_viewer_is_shown_a_task_without_its_payload_by_default(stocked: Service) -> None:
    viewer = keyed(stocked, VIEWER)
    ids = [task["id"] for task in tasks(stocked, "mail")]

    for task_id in ids:
        whole, seen = stocked.see(task_id), viewer.see(task_id)
        hidden = {"result": None, "progress": None}
        assert seen == {**{k: v for k, v in whole.items() if k != "payload"}, **hidden}
    assert any(stocked.see(task_id)["result"] for task_id in ids)


@pytest.mark.parametrize("role", [PRODUCER, WORKER, OPERATOR])
def test_others_are_shown_a_task_whole(stocked: Service, role: Role) -> None:
    for task in tasks(stocked, "mail"):
        assert keyed(stocked, role).see(task["id"]) == stocked.see(task["id"])
