"""API Gateway's part (REST API, Lambda proxy integration) as a WSGI app.

A request becomes the event that API Gateway would send, the route's handler is called, and its
answer is written back. Routes are those of template.yaml.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import uuid4

from cheroot.errors import MaxSizeExceeded

from headrace.http.events import Answer, read_answer
from infra.local.events import Environ, environ_event
from infra.local.lambdas import Event, Handler, LambdaContext, Stopping
from infra.local.problems import CONTENT_TYPE, problem
from infra.local.server import MAX_BODY_BYTES
from infra.local.tables import Function, Route

_NO_BODY: Final = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
# The server's business, not the handler's.
_OWN_HEADERS: Final = {"content-length", "connection", "transfer-encoding", "date", "server"}

_log = logging.getLogger(__name__)


class BodyRefused(Exception):
    """The request's body cannot be taken; `status` says why."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        """Keep both for the answer."""
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Path:
    """One path of the template with the functions that serve its methods."""

    template: str
    pattern: re.Pattern[str]
    names: tuple[str, ...]
    functions: dict[str, Function]


class Gateway:
    """The WSGI app. `stopping` tells the handlers' contexts that the service is going down."""

    def __init__(
        self,
        routes: Sequence[Route],
        handlers: Mapping[str, Handler],
        *,
        stopping: Stopping = lambda: False,
    ) -> None:
        """Prepare the routes; `handlers` has each by the name that the template gives it."""
        self._paths = _compile(routes)
        self._handlers = handlers
        self._stopping = stopping

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 (WSGI's callable)
        """Answer one request."""
        answer = self._answer(environ)
        headers = [pair for pair in answer.headers if pair[0].lower() not in _OWN_HEADERS]
        if answer.status not in _NO_BODY:
            headers.append(("Content-Length", str(len(answer.body))))
        start_response(_status_line(answer.status), headers)
        silent = environ["REQUEST_METHOD"] == "HEAD" or answer.status in _NO_BODY
        return [] if silent else [answer.body]

    def _answer(self, environ: Environ) -> Answer:
        method = environ["REQUEST_METHOD"]
        raw_path = _raw_path(environ)
        found = self._find(raw_path)
        if found is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"There is nothing at {raw_path}.")
        path, parameters = found
        function = path.functions.get(method) or path.functions.get("ANY")
        if function is None and method == "HEAD" and "GET" in path.functions:
            method, function = "GET", path.functions["GET"]
        if function is None:
            allowed = ", ".join(sorted({*path.functions, "OPTIONS"}))
            if method == "OPTIONS":
                return Answer(HTTPStatus.NO_CONTENT, [("Allow", allowed)], b"")
            # As API Gateway, which does not tell a wrong method from a wrong path.
            return _refusal(HTTPStatus.NOT_FOUND, f"{raw_path} takes {allowed}, not {method}.")
        try:
            body = _read_body(environ)
        except BodyRefused as error:
            return _refusal(error.status, str(error))
        context = LambdaContext(function, self._stopping)
        event = environ_event(
            environ,
            method=method,
            path=raw_path,
            resource=path.template,
            parameters=parameters,
            body=body,
            request_id=context.aws_request_id,
        )
        return self._call(function, event, context)

    def _find(self, raw_path: str) -> tuple[_Path, dict[str, str]] | None:
        """Find the path meant; a slash at its end means the same."""
        for path in self._paths:
            bare = raw_path.removesuffix("/")
            if match := path.pattern.fullmatch(raw_path) or path.pattern.fullmatch(bare):
                values = (unquote(value) for value in match.groups())
                return path, dict(zip(path.names, values, strict=True))
        return None

    def _call(self, function: Function, event: Event, context: LambdaContext) -> Answer:
        try:
            return read_answer(self._handlers[function.handler](event, context))
        except Exception:  # noqa: BLE001 (the process edge: logged, and the thread lives on)
            request_id = context.aws_request_id
            _log.exception("%s failed, request %s", function.handler, request_id)
            detail = "The service failed to answer; its log knows the request_id."
            body = problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, request_id=request_id)
            headers = [("Content-Type", CONTENT_TYPE), ("X-Request-Id", request_id)]
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, headers, body)


def _compile(routes: Sequence[Route]) -> list[_Path]:
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


def _raw_path(environ: Environ) -> str:
    """Tell the path as the client sent it, still encoded, which is what a REST API passes on."""
    uri = environ.get("REQUEST_URI")
    if uri is None:
        return quote(environ.get("PATH_INFO", "/"), safe="/%:@!$&'()*+,;=~-._", encoding="latin-1")
    path: str = uri.partition("?")[0]
    return path


def _read_body(environ: Environ) -> bytes:
    """Read the whole body, at most `MAX_BODY_BYTES`.

    Raises:
        BodyRefused: it is larger, broken, or shorter than announced.

    """
    source = environ["wsgi.input"]
    too_large = BodyRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"The request's body is larger than {MAX_BODY_BYTES} bytes.",
    )
    if not environ.get("wsgi.input_terminated"):
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length > MAX_BODY_BYTES:
            raise too_large
        body: bytes = source.read(length)
        if len(body) < length:
            raise BodyRefused(
                HTTPStatus.BAD_REQUEST, "The body is shorter than its Content-Length."
            )
        return body
    try:
        body = source.read(MAX_BODY_BYTES + 1)
        if len(body) <= MAX_BODY_BYTES:
            # Left unread, the end of a chunked body would keep a thread waiting for a request.
            for _ in source.read_trailer_lines():
                pass
    except ValueError as error:
        raise BodyRefused(HTTPStatus.BAD_REQUEST, "The body's chunks are broken.") from error
    except (MaxSizeExceeded, OSError) as error:
        raise too_large from error
    if len(body) > MAX_BODY_BYTES:
        raise too_large
    return body


def _refusal(status: HTTPStatus, detail: str) -> Answer:
    headers = [
        ("Content-Type", CONTENT_TYPE),
        ("X-Request-Id", str(uuid4())),
        ("X-Consumed-Units", "w=0, r=0"),
    ]
    return Answer(status, headers, problem(status, detail))


def _status_line(status: int) -> str:
    try:
        known = HTTPStatus(status)
    except ValueError:
        return f"{status} Unknown"
    return f"{known.value} {known.phrase}"
