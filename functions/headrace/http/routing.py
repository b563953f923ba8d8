"""Routing as it is here: Powertools' resolver, fit for threads, and what routes share.

Powertools keeps the request on a class attribute and its context on the instance, which is enough
for Lambda, where calls come one at a time.  The local service answers many at once, so here each
thread has its own.

A request without query parameters takes the short way, if its route takes no headers: the same
checks by the same fields, without what Powertools does for headers, cookies and forms.  What does
not fit a route goes Powertools' way, which finds the words for it.
"""

import threading
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from inspect import signature
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import ResponseBuilder, Route, Router
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.access import Permission
from headrace.domain.errors import FieldError, InvalidRequest, NotFound, Unavailable
from headrace.domain.limits import LIST_PAGE, NAME_RE, TASK_ID_RE
from headrace.domain.retry import DEFAULT_RETRY
from headrace.domain.task import Task
from headrace.http import permissions, rawjson
from headrace.http.fields import CURSOR_LENGTH
from headrace.http.filters import TAG_PARAMETER, TAG_PREFIX
from headrace.http.permissions import principal
from headrace.ops.operators import visibility
from headrace.ops.shared.queues import QueueOperations
from headrace.runtime.wiring import use_cases
from headrace.wire.base import Answer, MaxRetries, to_json

JSON: Final = "application/json"

Responses: TypeAlias = dict[int, Any]
Answered: TypeAlias = Response[Any]

QueueInPath: TypeAlias = Annotated[str, Path(description="The name of the queue.")]
TaskInPath: TypeAlias = Annotated[str, Path(description="The id of the task.")]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=LIST_PAGE, description="The most on one page.")]
Cursor: TypeAlias = Annotated[
    str | None, Query(max_length=CURSOR_LENGTH, description="As the page before gave it.")
]
Flag: TypeAlias = Annotated[Literal["true", "false"], Query()]
PayloadFlag: TypeAlias = Annotated[
    Literal["true", "false"] | None,
    Query(description="A viewer may not ask for it, and sees neither result nor progress."),
]


_ROUTE: Final = signature(Router.route)


class NounRouter(Router):
    """A router for the routes of one noun, which stand under its *tag* in the OpenAPI document."""

    def __init__(self, tag: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Powertools leaves it so
        self._tag = tag

    def route(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401  Powertools' own signature
        """Register a route."""
        call = _ROUTE.bind(self, *given, **named)
        call.arguments["tags"] = [self._tag]
        return super().route(*call.args[1:], **call.kwargs)


def answers(status: int, description: str, schema: str | None = None, **more: str) -> Responses:
    """Return the answers of a route when all goes well; *schema* is one of ``openapi``.

    *more* are further answers of the same shape, as in ``also_202="It goes on."``
    Errors are the same for all routes and added by ``openapi``.
    """
    content: Any = {JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}} if schema else {}
    responses: Responses = {status: {"description": description, "content": content}}
    for name, text in more.items():
        responses[int(name.removeprefix("also_"))] = {"description": text, "content": content}
    return responses


def json_answer(answer: Answer, status: int = 200) -> Answered:
    """Answer with JSON."""
    return Response(status, JSON, to_json(answer))


def no_body(status: int) -> Answered:
    """Answer with a status alone."""
    return Response(status, None, "")


def queue_name(path: str) -> str:
    """Return the queue named in a path.  Raises NotFound for what can be no queue's name."""
    name = unquote(path)
    if not NAME_RE.fullmatch(name):
        raise NotFound(f"there is no queue {name[:128]}")
    return name


def own_task(path: str) -> Task:
    """Return the task named in a path, as the key may see it.

    Raises NotFound, or Forbidden where the key may not even know that; see ``visibility``.
    """
    return visibility.task(use_cases().tasks, principal(), task_id(path))


def task_id(path: str) -> str:
    """Return the id of the task named in a path.  Raises as own_task() for what can be no id."""
    name = unquote(path)
    if not TASK_ID_RE.fullmatch(name):
        raise visibility.no_task(principal(), name)
    return name


def payload_wanted(value: str | None, *, by_default: bool) -> bool:
    """Tell whether to show payloads.  Raises Forbidden for a key that asks and may not see any."""
    if value == "true":
        principal().require(Permission.DETAILS)
    if value is None:
        return by_default and principal().may(Permission.DETAILS)
    return value == "true"


def max_retries() -> MaxRetries:
    """Return a look-up, for one answer, of the retries that queues grant.

    It never raises: what was done by then, as leasing a task, must be told in any case.
    """
    queues = use_cases().queues
    known: dict[str, int] = {}

    def of(queue: str) -> int:
        if queue not in known:
            known[queue] = _retries_of(queues, queue)
        return known[queue]

    return of


def _retries_of(queues: QueueOperations, name: str) -> int:
    found = None
    try:
        found = queues.cached(name)
    except NotFound:  # deleted meanwhile, and its tasks with it
        pass
    except Unavailable:
        found = queues.remembered(name)
    return (found.settings.retry_strategy if found else DEFAULT_RETRY).max_retries


class _PowertoolsRequest(threading.local):
    """What Powertools keeps of a request."""

    event: APIGatewayProxyEvent
    lambda_context: LambdaContext

    def __init__(self) -> None:
        self.context: dict[str, Any] = {}


class _Request(APIGatewayProxyEvent):
    """A request whose ``tag.…`` parameters are one: keys with values."""

    @cached_property
    def resolved_query_string_parameters(self) -> dict[str, Any]:
        """The parameters as routes take them."""
        given = super().resolved_query_string_parameters
        tags = {
            name.removeprefix(TAG_PREFIX): values[0] if len(values) == 1 else values
            for name, values in given.items()
            if name.startswith(TAG_PREFIX)
        }
        if not tags:
            return given
        rest = {name: of for name, of in given.items() if not name.startswith(TAG_PREFIX)}
        return {**rest, TAG_PARAMETER: tags}


class ApiAnswer(NamedTuple):
    """What is answered, whoever carries it out: Lambda, or nobody where the caller is here."""

    status: int
    headers: dict[str, str]
    body: str


def _read(answer: Mapping[str, Any]) -> ApiAnswer:
    """Return what Powertools has made for Lambda; no route of ours answers with bytes."""
    headers = {name: _one_line(value) for name, value in answer["multiValueHeaders"].items()}
    return ApiAnswer(answer["statusCode"], headers, answer["body"] or "")


def _one_line(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


_Way: TypeAlias = "Callable[[Resolver], Answered]"


class Resolver(APIGatewayRestResolver):
    """Finds the route, checks the request against its signature, calls it."""

    def __init__(self) -> None:
        self._call = _PowertoolsRequest()
        super().__init__(enable_validation=True, json_body_deserializer=rawjson.decode, debug=False)

    @property  # type: ignore[override]  # of this thread, where Powertools has one for all
    def current_event(self) -> APIGatewayProxyEvent:
        """The request as API Gateway sent it."""
        return self._call.event

    @current_event.setter
    def current_event(self, event: APIGatewayProxyEvent) -> None:
        self._call.event = event

    @property
    def lambda_context(self) -> LambdaContext:
        """The context object of the Lambda call."""
        return self._call.lambda_context

    @lambda_context.setter
    def lambda_context(self, context: LambdaContext) -> None:
        self._call.lambda_context = context

    @property
    def context(self) -> dict[str, Any]:
        """What Powertools' parts tell each other of one request."""
        return self._call.context

    @context.setter
    def context(self, context: dict[str, Any]) -> None:
        self._call.context = context

    def answer(self, event: dict[str, Any], context: LambdaContext) -> ApiAnswer:
        """Answer one request, whose body is text."""
        self.current_event = _Request(event, self._json_body_deserializer)
        self.lambda_context = context
        try:
            answer = self._answer(event)
        finally:
            self.context = {}
        return answer or _read(super().resolve(event, context))

    def _answer(self, event: Mapping[str, Any]) -> ApiAnswer | None:
        """Answer a request the short way; None if there is none: nothing has been done then."""
        if event.get("multiValueQueryStringParameters") or event.get("queryStringParameters"):
            return None
        path = event["path"]
        for route in self._by_length.get((event["httpMethod"], _parts(path)), ()):
            if found := route.rule.match(path):
                break
        else:
            return None
        in_path = found.groupdict()
        here = self.context = {"_route": route, "_path": path}
        try:
            permissions.admit(route, in_path)
            arguments = _arguments(route, in_path, event.get("body"))
            if arguments is None:
                return None
            here["_route_args"] = arguments
            response = self._short_ways[route](self)
        except Exception as error:  # as Powertools does: its handler says what it is
            built = self._call_exception_handler(error, route)
            if built is None:
                raise
            response = built.response
        headers = {name: _one_line(value) for name, value in response.headers.items()}
        return ApiAnswer(response.status_code, headers, response.body or "")

    def prepare(self) -> None:
        """Build what routes would build at their first call, in which threads might race."""
        self._by_length: dict[tuple[str, int], list[Route]] = {}
        self._short_ways: dict[Route, _Way] = {}
        for route in (*self._static_routes, *self._dynamic_routes):
            permissions.needs_of(route.method, route.path)  # or this is as far as it gets
            route._build_middleware_stack(self._router_middlewares, self)  # noqa: SLF001  no other way
            self._by_length.setdefault((route.method, _parts(route.path)), []).append(route)
            self._short_ways[route] = self._short_way(route)

    def _short_way(self, route: Route) -> _Way:
        """Return *route* in its middlewares, for a request without query parameters."""

        def call(app: Resolver) -> Answered:
            answer: Answered = route.func(**app.context["_route_args"])
            return answer

        way: _Way = call
        for middleware in reversed(self._router_middlewares):
            if middleware is not no_unknown_parameters:
                way = partial(middleware, next_middleware=way)
        return way

    def _call_route(self, route: Route, route_arguments: dict[str, str]) -> ResponseBuilder[Any]:
        if self.serves(route):
            permissions.admit(route, route_arguments)
        return super()._call_route(route, route_arguments)

    def serves(self, route: Route) -> bool:
        """Tell whether *route* is one of ours; a request to nowhere gets one of its own."""
        return route in self._short_ways


def _parts(path: str) -> int:
    """Return how many parts *path* has; no parameter spans several."""
    return path.rstrip("/").count("/")


def _arguments(route: Route, in_path: Mapping[str, str], body: str | None) -> dict[str, Any] | None:
    """Return what *route* is called with, None where something is missing or does not fit.

    Forms, of several fields in one body, are Powertools' too, as are headers and cookies.
    """
    known = route.dependant
    if known.header_params or known.cookie_params or len(known.body_params) > 1:
        return None
    given: list[tuple[Any, Any]]
    given = [(field, in_path.get(field.alias)) for field in known.path_params]
    given += [(field, None) for field in known.query_params]
    given += [(field, rawjson.decode(body) if body else None) for field in known.body_params]
    arguments: dict[str, Any] = {}
    for field, value in given:
        if value is not None:
            arguments[field.name], wrong = field.validate(value)
            if wrong:
                return None
        elif field.required:
            return None
        else:
            arguments[field.name] = field.get_default()
    return arguments


def no_unknown_parameters(app: Resolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Refuse query parameters that the route does not know: a misspelt filter filters nothing."""
    given = app.current_event.resolved_query_string_parameters
    route = app.context["_route"]
    if given and app.serves(route):
        known = {field.alias for field in route.dependant.query_params}
        unknown = [name for name in given if name not in known]
        if TAG_PARAMETER in unknown:
            unknown.remove(TAG_PARAMETER)
            unknown += [f"{TAG_PREFIX}{key}" for key in given[TAG_PARAMETER]]
        if unknown:
            message = "is not a parameter of this request"
            raise InvalidRequest(
                f"{unknown[0]} {message}",
                errors=[FieldError(name[:200], message) for name in unknown],
            )
    return next_middleware(app)
