"""API Gateway's part (REST API, Lambda proxy integration).

A request becomes the event that API Gateway would send, the route's handler is called, and its
answer is written back. Routes are those of template.yaml.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from headrace.http.events import GatewayAnswer, read_answer
from headrace.runtime.headers import ALWAYS
from infra.local.events import LocalRequest, request_event
from infra.local.lambdas import Handler, InvocationContext, Stopping
from infra.local.problems import refusal
from infra.local.tables import ApiRoute, Function

# The server's business, not the handler's.
_OWN_HEADERS: Final = {"content-length", "connection", "transfer-encoding", "date", "server"}
# Who waits says so, be it with letters of the word escaped.
_LONG_POLL: Final = "/dequeue"
_WAIT: Final = re.compile(rb'"(?:wait_seconds|worker)"|\\u')  # a worker leaves others theirs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Path:
    """One path of the template with the functions that serve its methods."""

    template: str
    pattern: re.Pattern[str]
    names: tuple[str, ...]
    functions: dict[str, Function]


class Gateway:
    """Answers requests. `stopping` tells the handlers' contexts that the service goes down."""

    def __init__(
        self,
        routes: Sequence[ApiRoute],
        handlers: Mapping[str, Handler],
        *,
        stopping: Stopping = lambda: False,
    ) -> None:
        """Prepare the routes; `handlers` has each by the name that the template gives it."""
        self._paths = _compile(routes)
        self._handlers = handlers
        self._stopping = stopping

    def __call__(self, request: LocalRequest) -> GatewayAnswer:
        """Answer one request, whatever it is."""
        request_id = str(uuid4())
        try:
            answer = self._answer(request, request_id)
        except Exception:  # noqa: BLE001 (the process edge: logged, and the thread lives on)
            _log.exception("%s %s failed, request %s", request.method, request.path, request_id)
            detail = "The service failed to answer; its log knows the request_id."
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return refusal(status, detail, request_id=request_id)
        headers = [pair for pair in answer.headers if pair[0].lower() not in _OWN_HEADERS]
        given = {name.lower() for name, _ in headers}
        headers += [pair for pair in ALWAYS.items() if pair[0].lower() not in given]
        return replace(answer, headers=headers)

    def may_wait(self, request: LocalRequest) -> bool:
        """Tell whether the answer may be long in coming because the request asks for that."""
        path = request.path.removesuffix("/")  # which means the same, as in _find
        return path.endswith(_LONG_POLL) and bool(_WAIT.search(request.body))

    def _answer(self, request: LocalRequest, request_id: str) -> GatewayAnswer:
        method, raw_path = request.method, request.path
        found = self._find(raw_path)
        if found is None:
            return refusal(HTTPStatus.NOT_FOUND, f"There is nothing at {raw_path}.")
        path, parameters = found
        function = path.functions.get(method) or path.functions.get("ANY")
        if function is None and method == "HEAD" and "GET" in path.functions:
            method, function = "GET", path.functions["GET"]
        if function is None:
            allowed = ", ".join(sorted({*path.functions, "OPTIONS"}))
            if method == "OPTIONS":
                return GatewayAnswer(HTTPStatus.NO_CONTENT, [("Allow", allowed)], b"")
            # As API Gateway, which does not tell a wrong method from a wrong path.
            return refusal(HTTPStatus.NOT_FOUND, f"{raw_path} takes {allowed}, not {method}.")
        event = request_event(
            request,
            method=method,
            resource=path.template,
            parameters=parameters,
            request_id=request_id,
        )
        context = InvocationContext(function, self._stopping, request_id)
        return read_answer(self._handlers[function.handler](event, context))

    def _find(self, raw_path: str) -> tuple[_Path, dict[str, str]] | None:
        """Find the path meant; a slash at its end means the same."""
        for path in self._paths:
            bare = raw_path.removesuffix("/")
            if match := path.pattern.fullmatch(raw_path) or path.pattern.fullmatch(bare):
                values = (unquote(value) for value in match.groups())
                return path, dict(zip(path.names, values, strict=True))
        return None


def _compile(routes: Sequence[ApiRoute]) -> list[_Path]:
    """Group the routes by path, those that API Gateway prefers first."""
    paths: dict[str, _Path] = {}
    for route in routes:
        if route.path not in paths:
            pieces = re.split(r"(\{[^}]+\})", route.path)
            pattern = "".join(_piece(piece) for piece in pieces)
            names = tuple(piece[1:-1].rstrip("+") for piece in pieces if piece.startswith("{"))
            paths[route.path] = _Path(route.path, re.compile(pattern), names, {})
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
