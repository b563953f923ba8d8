"""Powertools' resolver, fit for threads.

It keeps the request on a class attribute and its context on the instance, which is enough for
Lambda, where calls come one at a time.  The local service answers many at once, so here each
thread has its own.  Everything else is Powertools'.
"""

import threading
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import ResponseBuilder, Route
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.http import permissions, rawjson, repeats
from headrace.http.filters import TAG_PARAMETER, TAG_PREFIX


class _Call(threading.local):
    """What Powertools keeps of a request."""

    event: APIGatewayProxyEvent
    lambda_context: LambdaContext

    def __init__(self) -> None:
        self.context: dict[str, Any] = {}


class _Request(APIGatewayProxyEvent):
    """A request whose ``tag.…`` parameters are one: keys with values."""

    @property
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


class Resolver(APIGatewayRestResolver):
    """Finds the route, checks the request against its signature, calls it."""

    def __init__(self) -> None:
        self._call = _Call()
        super().__init__(enable_validation=True, json_body_deserializer=rawjson.decode, debug=False)
        self.use(middlewares=[_no_unknown_parameters, permissions.keep_inside, repeats.once])

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

    def resolve(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answer one request."""
        self.current_event = _Request(dict(event), self._json_body_deserializer)
        self.lambda_context = context
        return super().resolve(event, context)

    def prepare(self) -> None:
        """Build what routes would build at their first call, in which threads might race."""
        for route in (*self._static_routes, *self._dynamic_routes):
            permissions.needs_of(route.method, route.path)  # or this is as far as it gets
            route._build_middleware_stack(self._router_middlewares, self)  # noqa: SLF001  no other way

    def _call_route(self, route: Route, route_arguments: dict[str, str]) -> ResponseBuilder[Any]:
        if self.serves(route):
            permissions.admit(route, route_arguments)
        return super()._call_route(route, route_arguments)

    def serves(self, route: Route) -> bool:
        """Tell whether *route* is one of ours; a request to nowhere gets one of its own."""
        return route in self._static_routes or route in self._dynamic_routes


def _no_unknown_parameters(app: Resolver, next_middleware: NextMiddleware) -> Response[Any]:
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
