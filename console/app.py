"""The console's Lambda entry point: a Chalice app whose routes are those of the views."""

from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from headrace.runtime.function import starting

with starting():
    from chalice.app import Chalice
    from chalice.app import Response as ChaliceResponse

    from headrace.runtime.wiring import prepare
    from headrace.store.call_scope import Timed, during, in_time

    from .chalicelib import views
    from .chalicelib.dispatch import answer
    from .chalicelib.routes import SECURITY, ConsoleRoute, routes

    for module in iter_modules(views.__path__):  # each adds its routes
        import_module(f"{views.__name__}.{module.name}")
    prepare("keys", "queues", "stats", "inspect", "counters")

_PROXY: Final = "{proxy+}"
FORM: Final = "application/x-www-form-urlencoded"

# Chalice keeps the request on the app, where threads of the local service would share it.
_CALL: Final[ContextVar[tuple[dict[str, Any], str]]] = ContextVar("headrace_console_call")


def handler(event: dict[str, Any], context: Timed) -> dict[str, Any]:
    """Answer one request."""
    event = _with_route(event)
    given = event["requestContext"].get("requestId")
    request_id = str(given or getattr(context, "aws_request_id", "unknown"))
    with in_time(context), during(_CALL, (event, request_id)):
        made: dict[str, Any] = app(event, context)
    made["headers"] = {**SECURITY, **made["headers"]}  # also on answers of Chalice
    return made


def _with_route(event: dict[str, Any]) -> dict[str, Any]:
    """Return *event* as API Gateway would send it if the template had a route for every page.

    The template has one route for all pages, `/console/{proxy+}`, and Chalice looks up its views
    by the exact path of a route.
    """
    context = event["requestContext"]
    path = context["resourcePath"]
    if path.endswith(_PROXY):
        path = path.removesuffix(_PROXY) + event["pathParameters"]["proxy"]
    route, names = routes.find(path)
    method = "GET" if context["httpMethod"] == "HEAD" else context["httpMethod"]
    context = {**context, "resourcePath": route, "httpMethod": method}
    return {**event, "resource": route, "pathParameters": names, "requestContext": context}


def _build() -> Chalice:
    built = Chalice("headrace-console", configure_logs=False, env={})
    for route in routes.found:
        types = {"content_types": [FORM]} if route.method == "POST" else {}
        name = f"{route.method} {route.path}"
        built.route(route.path, methods=[route.method], name=name, **types)(_view(route))
    return built


def _view(route: ConsoleRoute) -> Callable[..., ChaliceResponse]:
    def view(**_names: str) -> ChaliceResponse:
        made = answer(route, *_CALL.get())
        return ChaliceResponse(made.body, made.all_headers(), made.status)

    return view


app: Final = _build()
