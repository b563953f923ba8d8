"""The table of roles and routes, a key of any role, and requests to every route."""

from dataclasses import replace
from itertools import count
from typing import Any

from headrace.domain.access import Role
from headrace.http import app
from headrace.http.openapi import document
from tests.functional.conftest import KEY, Answer, Service

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
            "GET /v1/queues/{queue}/groups/{key}",
            "GET /v1/queues/{queue}/count",
            "GET /v1/queues/{queue}/schedules",
            "GET /v1/queues/{queue}/schedules/{name}",
            "GET /v1/tasks/{id}",
            "GET /v1/tasks/{id}/explain",
            "GET /v1/batches",
            "GET /v1/batches/{id}",
            "GET /v1/batches/{id}/steps",
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
    (
        {OPERATOR, PRODUCER, WORKER, ADMIN},
        [
            "POST /v1/queues/{queue}/tasks",
            "POST /v1/queues/{queue}/payloads",
            "POST /v2/notify",
            "POST /v1/batches",
            "POST /v1/batches/{id}/close",
            "POST /v1/batches/{id}/cancel",
            "DELETE /v1/batches/{id}",
            "GET /v1/batches/{id}/results",
            "POST /v1/tasks/{id}/cancel",
            "POST /v1/queues/{queue}/tasks/cancel",
        ],
    ),
    (
        {WORKER, ADMIN},
        [
            "POST /v1/queues/{queue}/dequeue",
            "POST /v1/dequeue",
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
            "POST /v1/undos/{id}",
            "POST /v1/actions",
            "GET /v1/actions",
            "GET /v1/actions/{id}",
            "POST /v1/actions/{id}/pause",
            "POST /v1/actions/{id}/resume",
            "POST /v1/actions/{id}/cancel",
            "POST /v1/queues/{queue}/recount",
            "POST /v1/queues/{queue}/reindex",
            "POST /v1/batches/{id}/recount",
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
            "GET /v1/queues/{queue}/signing-secret",
            "POST /v1/queues/{queue}/signing-secret/rotate",
            "POST /v1/keys",
            "POST /v1/keys/{id}/rotate",
            "GET /v1/keys",
            "GET /v1/keys/{id}",
            "DELETE /v1/keys/{id}",
        ],
    ),
]
MAY = {route: roles for roles, routes in TABLE for route in routes}
OPEN = {"GET /v1/health", "GET /v1/openapi.json", "GET /v1/docs"}

OPERATIONS: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": operation
    for path, methods in document(app.TABLE.routes)["paths"].items()
    for method, operation in methods.items()
}
KEYED = [route for route in OPERATIONS if route not in OPEN]
OF_A_QUEUE = [route for route in KEYED if "{queue}" in route]
OF_A_TASK = [route for route in KEYED if "/tasks/{id}" in route]


def keyed(service: Service, role: Role, *queues: str) -> Service:
    """Return *service* as a new key of *role* calls it: the first is "the admin", as may be."""
    for number in count(1):
        name = f"the {role}" if number == 1 else f"the {role} {number}"
        body = {"name": name, "role": role, "queues": queues or ["*"]}
        made = replace(service, key=KEY)("POST", "/v1/keys", body)
        if made.status != 409:
            assert made.status == 201, made.body
            return replace(service, key=made.json["secret"])
    raise AssertionError


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
