"""What stands before the handlers in AWS: API Gateway (REST API, proxy integration) and Lambda.

A request becomes the event that API Gateway would send, the route's handler is called with Lambda's
context, and its answer is written back. Routes are those of template.yaml.
"""

import importlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, unquote
from uuid import uuid4

from headrace.domain.errors import Unauthenticated, Unavailable
from headrace.http.events import (
    ACCOUNT,
    GatewayAnswer,
    header_value,
    proxy_event,
    read_answer,
)
from headrace.http.request import Reply, Request, bearer, query_of
from headrace.local import TemplateInvalid
from headrace.local.payloads import PayloadStreams
from headrace.local.proxies import NO_PROXIES, TrustedProxies
from headrace.local.requests import (
    Incoming,
    LocalRequest,
    RequestRefused,
    WaitsFor,
    refusal,
)
from headrace.local.tables import ApiRoute, Function
from headrace.runtime.function import ALWAYS
from headrace.runtime.wiring import current_service
from headrace.safe_logging import safe_logger

# The server's business, not the handler's.
_OWN_HEADERS: Final = {"content-length", "connection", "transfer-encoding", "date", "server"}
# Who waits says so, be it with letters of the word escaped.
CONSOLE_PATH: Final = "/console/"
# An echo of the headers would hand cookies to scripts, and a tunnel would lead anywhere.
_NEVER_ALLOWED: Final = ("TRACE", "CONNECT")
_ALLOWED: Final = "DELETE, GET, HEAD, OPTIONS, POST, PUT"
_LONG_POLL: Final = "/dequeue"
_OPEN_BODY_BYTES: Final = 64 * 1024
"""The largest body that is held before its key is looked at."""

_A_TASK: Final = re.compile(r"/v1/tasks/[^/]+")
_WAIT: Final = re.compile(rb'"(?:wait_seconds|worker)"|\\u')  # a worker leaves others theirs

Event: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Event, "InvocationContext"], Any]
ShortWay: TypeAlias = Callable[[Request], Reply]
Stopping: TypeAlias = Callable[[], bool]
_INSTALLED_CONSOLE: Final = Path(__file__).parents[1] / "console"
_CHECKOUT: Final = Path(__file__).resolve().parents[3]  # has the console where none is installed

_log = safe_logger(__name__)


@dataclass(frozen=True, slots=True)
class InvocationContext:
    """The context object of one call.

    When the service stops, the time left is 0, so that a long poll which minds its time ends.
    """

    function: Function
    stopping: Stopping
    aws_request_id: str = field(default_factory=lambda: str(uuid4()))
    client_gone: Callable[[], bool] = lambda: False
    _started: float = field(default_factory=time.monotonic)

    @property
    def function_name(self) -> str:
        """Name of the function in the template."""
        return self.function.name

    @property
    def invoked_function_arn(self) -> str:
        """An ARN of the right form, of no account."""
        return f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:{self.function.name}"

    @property
    def memory_limit_in_mb(self) -> str:
        """The template's memory size; text, as in Lambda. Nothing enforces it here."""
        return str(self.function.memory_mb)

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the template's timeout; nothing enforces it here."""
        if self.stopping():
            return 0
        left = self.function.timeout_seconds - (time.monotonic() - self._started)
        return max(0, int(left * 1000))


def load_handler(name: str) -> Handler:
    """Import the handler that the template calls `module.function`.

    A module is one of `headrace.entries`; the console's, a folder of its own in the checkout, is
    `headrace.console` in the wheel.

    Raises:
        TemplateInvalid: there is no such module or function.
        ImportError: one of its own imports fails.

    """
    path, _, attribute = name.rpartition(".")
    module_name = _module(path)
    message = f"template.yaml names the handler {name}, which is nowhere."
    try:
        handler = getattr(importlib.import_module(module_name), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise TemplateInvalid(message) from error
    if not callable(handler):
        raise TemplateInvalid(message)
    found: Handler = handler
    return found


def load_short_ways() -> dict[str, ShortWay]:
    """Import what answers without an event of Lambda's, by the names of the handlers."""
    from headrace.http.app import answer  # noqa: PLC0415  reads the environment, and takes long

    return {"api.handler": answer}


def _module(path: str) -> str:
    """Name the module that Lambda would find at *path*, whose folders have slashes."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return f"headrace.entries.{name}"
    if folder == "console" and _INSTALLED_CONSOLE.is_dir():
        return f"headrace.console.{name}"
    if str(_CHECKOUT) not in sys.path:
        sys.path.insert(0, str(_CHECKOUT))
    return path.replace("/", ".")


@dataclass(frozen=True, slots=True)
class _Path:
    """One path of the template with the functions that serve its methods."""

    template: str
    pattern: str
    names: tuple[str, ...]
    functions: dict[str, Function]


class Gateway:
    """Answers requests. `stopping` tells the handlers' contexts that the service goes down."""

    def __init__(
        self,
        routes: Sequence[ApiRoute],
        handlers: Mapping[str, Handler],
        *,
        short_ways: Mapping[str, ShortWay] | None = None,
        stopping: Stopping = lambda: False,
        payloads: PayloadStreams | None = None,
        proxies: TrustedProxies = NO_PROXIES,
        verify_key: Callable[[str], object] | None = None,
    ) -> None:
        """Prepare the routes; `handlers` has each by the name that the template gives it.

        `short_ways`, by the same names, are taken instead: they need no event, and their
        answers need not be read, nor headers added.
        `payloads` answers for those that are uploaded, which S3 would do on AWS.
        `verify_key` raises Unauthenticated for a key that is none; without it none is verified.
        """
        self._proxies = proxies
        self._payloads = payloads or PayloadStreams(lambda: current_service().uploads)
        self._paths = _grouped(routes)
        # All in one, for one after the other takes longer than most handlers.
        self._pattern = re.compile("|".join(f"({path.pattern})/?" for path in self._paths))
        firsts = accumulate((1 + len(path.names) for path in self._paths), initial=1)
        self._by_group = dict(zip(firsts, self._paths, strict=False))
        self._handlers = handlers
        self._short_ways = {} if short_ways is None else short_ways  # which may be filled later
        self._stopping = stopping
        self._verify_key = verify_key

    def __call__(self, request: LocalRequest) -> GatewayAnswer:
        """Answer one request, whatever it is."""
        if request.method in _NEVER_ALLOWED:
            answer = refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"No path takes {request.method}.")
            answer.headers.append(("Allow", _ALLOWED))
            return answer
        request_id = str(uuid4())
        request = self._proxies.read(request)
        try:
            if self._payloads.are_at(request.path):
                return self._payloads.answer(request)
            return self._answer(request, request_id)
        except Exception:  # noqa: BLE001 (the process edge: logged, and the thread lives on)
            _log.exception("%s %s failed, request %s", request.method, request.path, request_id)
            detail = "The service failed to answer; its log knows the request_id."
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return refusal(status, detail, request_id=request_id)

    def incoming(self, request: LocalRequest, length: int | None) -> Incoming | None:
        """Return what takes the body of an upload as it comes; None: it is held.

        Raises RequestRefused for a large body without a valid key, before any of it is held.
        """
        if request.method != "PUT" or not self._payloads.are_at(request.path):
            self._check_caller(request, length or 0)
            return None
        return self._payloads.begin(request, length)

    def _check_caller(self, request: LocalRequest, length: int) -> None:
        headers = dict(request.headers)
        small = length <= _OPEN_BODY_BYTES and "transfer-encoding" not in headers
        if small or self._verify_key is None:
            return
        if request.path.startswith(CONSOLE_PATH) and "cookie" in headers:
            return  # whose session it is, is seen when it is answered
        try:
            self._verify_key(bearer(headers.get("authorization")))
        except Unauthenticated as error:
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, error.detail) from None
        except Unavailable:
            return  # the answer says so

    def may_wait(self, request: LocalRequest) -> WaitsFor | None:
        """Tell for what the answer may be long in coming because the request asks for that."""
        path = request.path.removesuffix("/")  # which means the same, as in _find
        if path.endswith(_LONG_POLL) and _WAIT.search(request.body):
            return WaitsFor.TASKS
        if request.query and request.method in ("GET", "HEAD") and _A_TASK.fullmatch(path):
            waits = "wait_seconds" in parse_qs(request.query)
            return WaitsFor.AN_END if waits else None
        return None

    def _answer(self, request: LocalRequest, request_id: str) -> GatewayAnswer:
        method, raw_path = request.method, request.path
        found = self._find(raw_path)
        if found is None and raw_path in ("", "/") and method in ("GET", "HEAD"):
            # Who opens the address that the service printed wants to see something.
            headers = [("Location", request.base + CONSOLE_PATH), *ALWAYS.items()]
            return GatewayAnswer(HTTPStatus.SEE_OTHER, headers, b"")
        if found is None:
            return refusal(HTTPStatus.NOT_FOUND, f"There is nothing at {raw_path}.")
        path, parameters = found
        function = path.functions.get(method) or path.functions.get("ANY")
        if function is None and method == "HEAD" and "GET" in path.functions:
            method, function = "GET", path.functions["GET"]
        if function is None:
            allowed = ", ".join(sorted({*path.functions, "OPTIONS"}))
            if method == "OPTIONS":
                headers = [("Allow", allowed), *ALWAYS.items()]
                return GatewayAnswer(HTTPStatus.NO_CONTENT, headers, b"")
            # As API Gateway, which does not tell a wrong method from a wrong path.
            return refusal(HTTPStatus.NOT_FOUND, f"{raw_path} takes {allowed}, not {method}.")
        context = InvocationContext(function, self._stopping, request_id, request.client_gone)
        if short_way := self._short_ways.get(function.handler):
            return _short(short_way, method, request, context)
        event = proxy_event(
            method,
            raw_path,
            request_id=request_id,
            headers={name.title(): value for name, value in _headers(request).items()},
            query=request.query,
            body=request.body,
            resource=path.template,
            parameters=parameters,
            protocol=request.protocol,
            base=request.base,
            source_ip=request.source,
        )
        return _sendable(read_answer(self._handlers[function.handler](event, context)))

    def _find(self, raw_path: str) -> tuple[_Path, dict[str, str]] | None:
        """Find the path meant; a slash at its end means the same."""
        match = self._pattern.fullmatch(raw_path)
        if match is None or match.lastindex is None:
            return None
        group = match.lastindex  # the outer one, which ends last
        path = self._by_group[group]
        return path, {
            name: unquote(match[number]) for number, name in enumerate(path.names, group + 1)
        }


def _short(
    way: ShortWay, method: str, request: LocalRequest, context: InvocationContext
) -> GatewayAnswer:
    asked = Request(
        method,
        request.path,
        id=context.aws_request_id,
        context=context,
        headers=_headers(request),
        query=query_of(request.query),
        body=request.body,
        base=request.base,
    )
    reply = way(asked)
    lines = [(name, header_value(value)) for name, value in reply.headers.items()]
    return GatewayAnswer(reply.status, lines, reply.text().encode())


def _sendable(answer: GatewayAnswer) -> GatewayAnswer:
    """Return a handler's answer with the headers that API Gateway would leave and add."""
    headers = [pair for pair in answer.headers if pair[0].lower() not in _OWN_HEADERS]
    given = {name.lower() for name, _ in headers}
    headers += [pair for pair in ALWAYS.items() if pair[0].lower() not in given]
    return replace(answer, headers=headers)


def _grouped(routes: Sequence[ApiRoute]) -> list[_Path]:
    """Group the routes by path, those that API Gateway prefers first."""
    paths: dict[str, _Path] = {}
    for route in routes:
        if route.path not in paths:
            pieces = re.split(r"(\{[^}]+\})", route.path)
            pattern = "".join(_piece(piece) for piece in pieces)
            names = tuple(piece[1:-1].rstrip("+") for piece in pieces if piece.startswith("{"))
            paths[route.path] = _Path(route.path, pattern, names, {})
        paths[route.path].functions[route.method] = route.function
    return sorted(paths.values(), key=lambda path: _rank(path.template))


def _piece(piece: str) -> str:
    if not piece.startswith("{"):
        return re.escape(piece)
    return "(.+)" if piece.endswith("+}") else "([^/]+)"


def _rank(template: str) -> list[int]:
    """Order paths by segment: a literal before a parameter before a greedy parameter."""
    return [
        0 if not part.startswith("{") else 2 if part.endswith("+}") else 1
        for part in template.split("/")
    ]


def _headers(request: LocalRequest) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in request.headers:
        between = "; " if name == "cookie" else ", "
        headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
    headers["x-forwarded-for"] = request.source
    headers["x-forwarded-proto"] = request.proto
    headers["x-forwarded-port"] = str(request.port)
    return headers
