"""The route table: where each route is, which keys may call it, and the function that answers it.

The parameters of the function say what a request may have.  A parameter is in the path if the path
names it in braces, is the JSON body if its type is a RequestBody, is several headers if its type is
a HeaderFields, and is else a parameter of the query, or several if its type is a QueryFields.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter as Signed
from inspect import signature
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError

from headrace.domain import limits
from headrace.domain.access import Permission, Role, may, not_this_queue
from headrace.domain.errors import FieldError, InvalidRequest, NotFound
from headrace.http import rawjson
from headrace.http.fields import Examples, HeaderFields, QueryFields, RequestBody
from headrace.http.problems import invalid
from headrace.http.request import TAG_PARAMETER, TAG_PREFIX, Reply, Request, principal
from headrace.store.call_scope import current_actor
from headrace.wire.base import Answer

_VERSION: Final = "v1"  # the first part of the API's paths
_PATH_PART: Final = re.compile(r"[-._~()'!*:@,;=+&$%<> \[\]{}|^\w]+")
_QUEUE: Final = "queue"
_NAME_LENGTH: Final = 200

_Call = TypeVar("_Call", bound=Callable[..., Any])
_Errors: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Alias:
    """Annotate a parameter of the query that is called *name* in the request."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a route's function.

    *alias* is its name in the request.  Of a model it is all of *fields*: parameters of the query,
    or headers.  *body* is the model of the body.
    """

    name: str
    alias: str
    place: Literal["path", "query", "header", "body"]
    annotation: Any
    adapter: TypeAdapter[Any]
    default: Any
    fields: tuple[str, ...] = ()
    body: type[RequestBody] | None = None

    @property
    def is_required(self) -> bool:
        """Whether a request must have it."""
        return self.default is Signed.empty

    def read(self, value: object, errors: _Errors) -> object:
        """Return the argument that *value* is, the default for None; add what is wrong."""
        single = self.place != "body" and not self.fields
        location = (self.place, self.alias) if single else (self.place,)
        if value is None:
            if self.is_required:
                errors.append({"type": "missing", "loc": location})
            return self.default
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            errors += [{**one, "loc": (*location, *one["loc"])} for one in error.errors()]
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One route of the API.

    A key needs all of *permissions*. *queue* is the queue of a route whose path names none.
    *status* is the status of an answer without one of its own.

    For the OpenAPI document, the name and the docstring of the function are the id, the summary and
    the description of the operation, and its return type is the schema of the answer. *also*
    describes the same answer with other statuses. *schema* names the schema if the type has
    several. *responses* replaces all of these. *description* is added to the docstring, *more* to
    the operation.
    """

    method: str
    path: str
    permissions: tuple[Permission, ...]
    call: Callable[..., Answer | Reply | None]
    tag: str
    queue: str | None = None
    status: int = 200
    schema: str | None = None
    also: Mapping[int, str] = field(default_factory=dict)
    responses: Mapping[int, Any] | None = None
    description: str = ""
    examples: Examples | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operation_id(self) -> str:
        """The name of the operation."""
        return self.call.__name__

    @property
    def answer(self) -> type[Answer] | None:
        """The type of the answer, None without a body or without a declared type."""
        returned = get_type_hints(self.call)["return"]
        types = get_args(returned) or (returned,)
        return next((one for one in types if issubclass(one, Answer)), None)

    @property
    def roles(self) -> list[Role]:
        """The roles that have all permissions."""
        return [role for role in Role if all(may(role, needed) for needed in self.permissions)]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a request may have."""
        return _parameters_of(self.call, self.path)

    def admit(self, in_path: Mapping[str, str]) -> None:
        """Check the key and the queue in the path.

        Raises Forbidden unless the key may call the route, and for this queue; NotFound for a text
        that cannot be the name of a queue.
        """
        if not self.permissions:
            return
        queues = [in_path[_QUEUE]] if _QUEUE in in_path else []
        if self.queue is not None:
            queues.append(self.queue)
        by = principal()
        for permission in self.permissions:
            by.require(permission, *queues)
        if _QUEUE in in_path and not limits.NAME_RE.fullmatch(in_path[_QUEUE]):
            raise NotFound(f"there is no queue {in_path[_QUEUE][:128]}")

    def reply(self, arguments: Mapping[str, Any]) -> Reply:
        """Call the function and return its answer."""
        given = self.call(**arguments)
        return given if isinstance(given, Reply) else Reply(given, self.status)

    def arguments(self, request: Request, in_path: Mapping[str, str], body: str) -> dict[str, Any]:
        """Return the arguments of the function.

        Raises InvalidRequest, or PayloadTooLarge, that names each field that is wrong.
        """
        arguments: dict[str, Any] = dict(in_path)
        errors: _Errors = []
        query = request.values() if request.query else {}
        for one in self.parameters:
            if one.place == "path":
                continue
            value: Any = None
            if one.place == "header":
                headers = {name: request.header(name) for name in one.fields}
                value = {name: text for name, text in headers.items() if text is not None}
            elif one.fields:
                value = {name: query[name] for name in one.fields if name in query}
            elif one.place == "query":
                value = query.get(one.alias)
            elif one.body is not None and body:
                value = rawjson.decode(body, one.body)
            arguments[one.name] = one.read(value, errors)
        if errors:
            raise invalid(errors)
        if query:
            self._require_known(query)
        return arguments

    def _require_known(self, query: Mapping[str, Any]) -> None:
        """Raise InvalidRequest for unknown parameters: a misspelt filter would filter nothing."""
        known: set[str] = set()
        for one in self.parameters:
            if one.place == "query":
                known |= {*one.fields} or {one.alias}
        unknown = [name for name in query if name not in known]
        if TAG_PARAMETER in unknown:
            unknown.remove(TAG_PARAMETER)
            unknown += [f"{TAG_PREFIX}{key}" for key in query[TAG_PARAMETER]]
        if unknown:
            message = "is not a parameter of this request"
            errors = [FieldError(name[:_NAME_LENGTH], message) for name in unknown]
            raise InvalidRequest(f"{unknown[0]} {message}", errors=errors)


def require_queues(arguments: Mapping[str, Any], in_path: Mapping[str, str]) -> None:
    """Raise Forbidden if the query or the body names a queue that the key is not for."""
    actor = current_actor()
    if actor is None or actor.covers_all_queues:
        return
    named: list[tuple[str, str]] = []
    if _QUEUE not in in_path and (queue := arguments.get(_QUEUE)):
        named.append((_QUEUE, queue))
    for value in arguments.values():
        named += _queues_in(value)
    for name, queue in named:
        if not actor.covers(queue):
            raise not_this_queue(queue, field=name)


def _queues_in(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of a field and the queue in it, for each queue that a body names."""
    if isinstance(value, RequestBody):
        for name in _fields_with_queues(type(value)):
            inner = getattr(value, name)
            here = f"{path}.{name}" if path else name
            if name not in value.queue_fields:
                yield from _queues_in(inner, here)
            elif isinstance(inner, list):
                yield from ((f"{here}[{place}]", text) for place, text in enumerate(inner))
            elif inner is not None:
                yield here, inner
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from _queues_in(entry, f"{path}[{place}]")


@cache
def _fields_with_queues(model: type[RequestBody]) -> tuple[str, ...]:
    """Return the fields of *model* that hold queues, or bodies that do."""
    return tuple(
        name
        for name, field in model.model_fields.items()
        if name in model.queue_fields
        or any(_fields_with_queues(inner) for inner in bodies_in(field.annotation))
    )


@cache
def _parameters_of(call: Callable[..., Any], path: str) -> tuple[Parameter, ...]:
    return tuple(
        _parameter(one, in_path=f"{{{one.name}}}" in path)
        for one in signature(call).parameters.values()
    )


def _parameter(one: Signed, *, in_path: bool) -> Parameter:
    notes = get_args(one.annotation)[1:] if get_origin(one.annotation) is Annotated else ()
    alias = next((note.name for note in notes if isinstance(note, Alias)), one.name)
    place: Literal["path", "query", "header", "body"] = "path" if in_path else "query"
    fields: tuple[str, ...] = ()
    body: type[RequestBody] | None = None
    if isinstance(one.annotation, type) and issubclass(one.annotation, QueryFields):
        place = "header" if issubclass(one.annotation, HeaderFields) else "query"
        models = one.annotation.model_fields
        fields = tuple(field.alias or name for name, field in models.items())
    elif (body := next(bodies_in(one.annotation), None)) is not None:
        place = "body"
    adapter = TypeAdapter(one.annotation)
    return Parameter(one.name, alias, place, one.annotation, adapter, one.default, fields, body)


def bodies_in(annotation: object) -> Iterator[type[RequestBody]]:
    """Yield the request bodies that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, RequestBody):
        yield annotation
    for part in get_args(annotation):
        yield from bodies_in(part)


# ------------------------------------------------------------------------------------ declaration


class Routes:
    """The routes of one noun, which stand under its *tag* in the OpenAPI document."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.declared: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        *permissions: Permission,
        **more: Any,  # noqa: ANN401  the fields of Route that have defaults
    ) -> Callable[[_Call], _Call]:
        """Let the decorated function answer *method* at *path*; *more* are fields of the route."""

        def declare(call: _Call) -> _Call:
            self.declared.append(Route(method, path, permissions, call, self._tag, **more))
            return call

        return declare


# ---------------------------------------------------------------------------------------- look-up


@dataclass(slots=True)
class _Node:
    """What may follow in a path: certain parts, or any part as a parameter."""

    parts: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    routes: dict[str, Route] = field(default_factory=dict)


class RouteTable:
    """All routes, found by method and path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            node = self._root
            for part in route.path.split("/"):
                if not part.startswith("{"):
                    node = node.parts.setdefault(part, _Node())
                    continue
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            node.routes[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route and its parameters in the *path*, decoded.

        Raises NotFound.
        """
        node: _Node | None = self._root
        values = []
        for part in path.rstrip("/").split("/"):
            if node is None:
                break
            if (found := node.parts.get(part)) is None and (found := node.parameter) is not None:
                if not _PATH_PART.fullmatch(part):
                    found = None
                values.append(unquote(part))
            node = found
        route = None if node is None else node.routes.get(method)
        if route is None:
            twice = path.startswith(f"/{_VERSION}/{_VERSION}/")
            hint = f": leave /{_VERSION} out of the address of the service" if twice else ""
            raise NotFound(f"there is nothing at {method} {path}{hint}")
        return route, dict(zip(_names_in(route.path), values, strict=True))


@cache
def _names_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)
