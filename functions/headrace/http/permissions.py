"""The admission of a request: whether its key may call the route, and for the queues it names.

A route is admitted by the role of the key and the queue in the path before the body is read.  The
queues that the query or the body names are checked as soon as they are known to be well-formed.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from headrace.domain import access
from headrace.domain.access import Principal
from headrace.domain.errors import Unauthenticated
from headrace.http.fields import RequestBody
from headrace.http.queue_bodies import CreateQueueBody
from headrace.http.routing import Route, bodies_in
from headrace.ops.operators.keys import current_actor

_QUEUE: Final = "queue"
_NAMING: Final = frozenset({_QUEUE, "to_queue", "queues"})
"""Fields and parameters of these names hold queues, or patterns of queues, in every body."""


def principal() -> Principal:
    """Return the key that the current request carries.  Raises Unauthenticated for none."""
    actor = current_actor()
    if actor is None:
        raise Unauthenticated("this takes a key")
    return actor


def admit(route: Route, in_path: Mapping[str, str]) -> None:
    """Raise Forbidden unless the key may call *route*, and for the queue in the path."""
    if not route.permissions:
        return
    queues = [unquote(in_path[_QUEUE])] if _QUEUE in in_path else []
    if route.queue is not None:
        queues.append(route.queue)
    by = principal()
    for permission in route.permissions:
        by.require(permission, *queues)


def require_queues(arguments: Mapping[str, Any], in_path: Mapping[str, str]) -> None:
    """Raise Forbidden if the query or the body names a queue that the key is not for."""
    actor = current_actor()
    if actor is None or actor.everywhere:
        return
    named: list[tuple[str, str]] = []
    if _QUEUE not in in_path and (queue := arguments.get(_QUEUE)):
        named.append((_QUEUE, queue))
    for value in arguments.values():
        named += _named_in(value)
    for field, queue in named:
        if not actor.covers(queue):
            raise access.not_this_queue(queue, field=field)


def _named_in(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of a field and the queue in it, for each queue that a body names."""
    if isinstance(value, RequestBody):
        for name in _fields_with_queues(type(value)):
            inner = getattr(value, name)
            here = f"{path}.{name}" if path else name
            yield from _texts(inner, here) if _holds_queue(type(value), name) else ()
            yield from _named_in(inner, here)
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from _named_in(entry, f"{path}[{place}]")


def _texts(value: str | list[str] | None, path: str) -> list[tuple[str, str]]:
    if isinstance(value, list):
        return [(f"{path}[{place}]", text) for place, text in enumerate(value)]
    return [] if value is None else [(path, value)]


@cache
def _fields_with_queues(model: type[RequestBody]) -> tuple[str, ...]:
    """Return the fields of *model* that hold queues, or bodies that do."""
    return tuple(
        name
        for name, field in model.model_fields.items()
        if _holds_queue(model, name)
        or any(_fields_with_queues(inner) for inner in bodies_in(field.annotation))
    )


def _holds_queue(model: type[RequestBody], name: str) -> bool:
    return name in _NAMING or (model is CreateQueueBody and name == "name")
