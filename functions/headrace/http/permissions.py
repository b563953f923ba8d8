"""What each route needs of a key: one table for the whole API, and the only place that asks it.

Role and queue in the path are looked at before anything else of the request, the queues that its
query or body names as soon as they are known to be well-formed, and both before a route runs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, get_args
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from headrace.domain import access
from headrace.domain.access import Permission, Principal, Role, may
from headrace.domain.errors import Unauthenticated
from headrace.http.fields import RequestBody
from headrace.http.queue_bodies import CreateQueueBody
from headrace.ops.operators.keys import current_actor


@dataclass(frozen=True, slots=True)
class Needs:
    """The permissions a route takes, all of them; *queue* is one that it always means."""

    permissions: tuple[Permission, ...] = ()
    queue: str | None = None

    def roles(self) -> list[Role]:
        """Return the roles that have all of them."""
        return [role for role in Role if all(may(role, needed) for needed in self.permissions)]


def _needs(*permissions: Permission, queue: str | None = None) -> Needs:
    return Needs(permissions, queue)


_NOTIFICATIONS: Final = "ngsi.notify"

NEEDS: Final[Mapping[str, Needs]] = {
    "GET /v1/health": _needs(),
    "GET /v1/openapi.json": _needs(),
    "GET /v1/docs": _needs(),
    # Look
    "GET /v1/queues": _needs(Permission.READ),
    "GET /v1/queues/{queue}": _needs(Permission.READ),
    "GET /v1/queues/{queue}/stats": _needs(Permission.READ),
    "GET /v1/queues/{queue}/metrics": _needs(Permission.READ),
    "GET /v1/queues/{queue}/groups/{key}": _needs(Permission.READ),
    "GET /v1/queues/{queue}/count": _needs(Permission.READ),
    "GET /v1/queues/{queue}/schedules": _needs(Permission.READ),
    "GET /v1/queues/{queue}/schedules/{name}": _needs(Permission.READ),
    "GET /v1/tasks/{id}": _needs(Permission.READ),
    "GET /v1/tasks/{id}/explain": _needs(Permission.READ),
    "GET /v1/batches": _needs(Permission.READ),
    "GET /v1/batches/{id}": _needs(Permission.READ),
    "GET /v1/batches/{id}/steps": _needs(Permission.READ),
    "GET /v1/batches/{id}/results": _needs(Permission.READ, Permission.DETAILS),
    "GET /v1/queues/{queue}/tasks": _needs(Permission.LIST),
    "GET /v1/workers": _needs(Permission.LIST),
    # Produce
    "POST /v1/queues/{queue}/tasks": _needs(Permission.ENQUEUE),
    "POST /v1/queues/{queue}/payloads": _needs(Permission.ENQUEUE),
    "POST /v2/notify": _needs(Permission.ENQUEUE, queue=_NOTIFICATIONS),
    "POST /v1/tasks/{id}/cancel": _needs(Permission.CANCEL),
    "POST /v1/queues/{queue}/tasks/cancel": _needs(Permission.CANCEL),
    "POST /v1/batches/{id}/cancel": _needs(Permission.CANCEL),
    "POST /v1/batches": _needs(Permission.ENQUEUE),
    "POST /v1/batches/{id}/close": _needs(Permission.ENQUEUE),
    "DELETE /v1/batches/{id}": _needs(Permission.ENQUEUE),
    # Work
    "POST /v1/queues/{queue}/dequeue": _needs(Permission.WORK),
    "POST /v1/dequeue": _needs(Permission.WORK),
    "POST /v1/queues/{queue}/reports": _needs(Permission.WORK),
    "POST /v1/leases": _needs(Permission.WORK),
    "POST /v1/leases/{id}/extend": _needs(Permission.WORK),
    "DELETE /v1/leases/{id}": _needs(Permission.WORK),
    "PUT /v1/workers/{name}": _needs(Permission.WORK),
    # Operate
    "DELETE /v1/tasks/{id}": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/tasks/delete": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/tasks/restart": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/tasks/run": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/tasks/move": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/purge": _needs(Permission.OPERATE),
    "POST /v1/undos/{id}": _needs(Permission.OPERATE),
    "POST /v1/actions": _needs(Permission.OPERATE),
    "GET /v1/actions": _needs(Permission.OPERATE),
    "GET /v1/actions/{id}": _needs(Permission.OPERATE),
    "POST /v1/actions/{id}/pause": _needs(Permission.OPERATE),
    "POST /v1/actions/{id}/resume": _needs(Permission.OPERATE),
    "POST /v1/actions/{id}/cancel": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/recount": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/reindex": _needs(Permission.OPERATE),
    "POST /v1/batches/{id}/recount": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/pause": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/resume": _needs(Permission.OPERATE),
    "PUT /v1/queues/{queue}/schedules/{name}": _needs(Permission.OPERATE),
    "DELETE /v1/queues/{queue}/schedules/{name}": _needs(Permission.OPERATE),
    "POST /v1/queues/{queue}/schedules/{name}/run": _needs(Permission.OPERATE),
    "GET /v1/audit": _needs(Permission.OPERATE),
    "POST /v1/workers/{name}/quiet": _needs(Permission.OPERATE),
    "POST /v1/workers/{name}/stop": _needs(Permission.OPERATE),
    # Administer
    "POST /v1/queues": _needs(Permission.ADMINISTER),
    "PUT /v1/queues/{queue}": _needs(Permission.ADMINISTER),
    "DELETE /v1/queues/{queue}": _needs(Permission.ADMINISTER),
    "GET /v1/queues/{queue}/signing-secret": _needs(Permission.ADMINISTER),
    "POST /v1/queues/{queue}/signing-secret/rotate": _needs(Permission.ADMINISTER),
    "POST /v1/keys": _needs(Permission.ADMINISTER),
    "POST /v1/keys/{id}/rotate": _needs(Permission.ADMINISTER),
    "GET /v1/keys": _needs(Permission.ADMINISTER),
    "GET /v1/keys/{id}": _needs(Permission.ADMINISTER),
    "DELETE /v1/keys/{id}": _needs(Permission.ADMINISTER),
    # As QuantumLeap
    "GET /management/queue/notifications": _needs(
        Permission.LIST, Permission.DETAILS, queue=_NOTIFICATIONS
    ),
    "GET /management/queue/notifications/summary": _needs(Permission.LIST, queue=_NOTIFICATIONS),
    "GET /management/queue/notifications/count": _needs(Permission.READ, queue=_NOTIFICATIONS),
    "DELETE /management/queue/notifications": _needs(Permission.OPERATE, queue=_NOTIFICATIONS),
}
"""Every route there is or will be; the service does not start with one that is missing here."""

_QUEUE: Final = "queue"
_NAMING: Final = frozenset({_QUEUE, "to_queue", "queues"})
"""Fields and parameters of these names hold queues, or patterns of them, wherever they stand."""


@cache
def needs_of(method: str, path: str) -> Needs:
    """Return the needs of a route; its *path* in OpenAPI's form or Powertools'.

    Raises LookupError for one that the table does not have.
    """
    wanted = _anonymous(f"{method.upper()} {path}")
    found = _by_shape().get(wanted)
    if found is None:
        raise LookupError(f"{method} {path} has no row in headrace.http.permissions.NEEDS")
    return found


def principal() -> Principal:
    """Return whose key the request at hand came with.  Raises Unauthenticated for none."""
    actor = current_actor()
    if actor is None:
        raise Unauthenticated("this takes a key")
    return actor


def admit(route: Route, path_arguments: Mapping[str, str]) -> None:
    """Raise Forbidden unless the key may take *route*, and take it to the queue in the path."""
    needs = needs_of(route.method, route.path)
    if not needs.permissions:
        return
    queues = [unquote(path_arguments[_QUEUE])] if _QUEUE in path_arguments else []
    if needs.queue is not None:
        queues.append(needs.queue)
    by = principal()
    for permission in needs.permissions:
        by.require(permission, *queues)


def keep_inside(app: APIGatewayRestResolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Raise Forbidden for queues named in the query or body that are not the key's."""
    actor = current_actor()
    if actor is not None and not actor.everywhere:
        route: Route = app.context["_route"]
        given = app.context["_route_args"]
        inquired = given.get(_QUEUE) if _asks_for_a_queue(route) else None
        named = [(_QUEUE, inquired)] if inquired else []
        for value in given.values():
            named += _named(value)
        for field, queue in named:
            if not actor.covers(queue):
                raise access.not_this_queue(queue, field=field)
    return next_middleware(app)


def _asks_for_a_queue(route: Route) -> bool:
    return any(field.name == _QUEUE for field in route.dependant.query_params)


def _named(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Find the queues that a body names, each with its field."""
    if isinstance(value, RequestBody):
        for name in _places(type(value)):
            inner = getattr(value, name)
            here = f"{path}.{name}" if path else name
            yield from _texts(inner, here) if _names_queues(type(value), name) else ()
            yield from _named(inner, here)
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from _named(entry, f"{path}[{place}]")


def _texts(value: str | list[str] | None, path: str) -> list[tuple[str, str]]:
    if isinstance(value, list):
        return [(f"{path}[{place}]", text) for place, text in enumerate(value)]
    return [] if value is None else [(path, value)]


@cache
def _places(model: type[RequestBody]) -> tuple[str, ...]:
    """Return the fields of *model* that hold queues, or bodies that do: there are few."""
    return tuple(
        name
        for name, field in model.model_fields.items()
        if _names_queues(model, name) or any(_places(inner) for inner in _bodies(field.annotation))
    )


def _names_queues(model: type[RequestBody], name: str) -> bool:
    return name in _NAMING or (model is CreateQueueBody and name == "name")


def _bodies(annotation: object) -> Iterator[type[RequestBody]]:
    if isinstance(annotation, type) and issubclass(annotation, RequestBody):
        yield annotation
    for part in get_args(annotation):
        yield from _bodies(part)


@cache
def _by_shape() -> Mapping[str, Needs]:
    return {_anonymous(route): needs for route, needs in NEEDS.items()}


def _anonymous(route: str) -> str:
    """Return *route* with its parameters unnamed."""
    return re.sub(r"\{\w+\}|<\w+>", "{}", route)
