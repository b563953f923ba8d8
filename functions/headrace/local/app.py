"""The local service as an ASGI application, with the API and the console mounted.

The API gets requests as they are, and the console gets events of API Gateway.  Handlers run in
threads.  Dequeues that wait, and requests that wait for the end of a task, have threads of their
own, so that other requests always find a free thread.
"""

import asyncio
import gzip
import importlib
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote
from uuid import uuid4

from anyio import CapacityLimiter, to_thread

from headrace.domain.errors import Unauthenticated, Unavailable
from headrace.domain.limits import KIB
from headrace.domain.offload import PATH
from headrace.http.events import GatewayAnswer, header_value, proxy_event, read_answer
from headrace.http.request import Reply, Request, bearer, query_of
from headrace.local import asgi, metrics
from headrace.local.asgi import Receive, Send
from headrace.local.proxies import NO_PROXIES, TrustedProxies
from headrace.local.requests import LocalRequest, RequestRefused, check_head, refusal
from headrace.local.uploads import LocalUploads
from headrace.runtime.function import ALWAYS
from headrace.runtime.wiring import current_service
from headrace.safe_logging import safe_logger

CONSOLE: Final = "/console"
DISCONNECTED: Final = "headrace.disconnected"
"""In the state of a scope, the function that returns whether the client has disconnected."""

_API: Final = ("/v1/", "/v2/", "/management/queue/")
_A_TASK: Final = re.compile(r"/v1/tasks/[^/]+")

_OPEN_BODY_BYTES: Final = 64 * KIB  # a larger body needs a valid key before it is read
_CALL_SECONDS: Final = 28.0  # as the functions in template.yaml
_OF_THE_SERVER: Final = {"content-length", "connection", "transfer-encoding", "date", "server"}
"""Headers of answers that only the server sets."""

_COMPRESSED: Final = 1024  # bytes from which on a page is compressed, as in template.yaml
_LEVEL: Final = 5  # of gzip

_INSTALLED_CONSOLE: Final = Path(__file__).parents[1] / "console"
_CHECKOUT: Final = Path(__file__).resolve().parents[3]  # where no console is installed

_log: Final = safe_logger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of all connections together.

    Attributes:
        threads: threads of handlers that do not wait.
        dequeues: concurrent dequeues; each has a thread while it waits for tasks.
        ends: concurrent requests for the end of a task; each has a thread while it waits.
        bodies: bytes of the bodies of requests without an answer yet.

    """

    threads: int = 32
    dequeues: int = 512
    ends: int = 256
    bodies: int = 256 * 1024 * KIB


@dataclass(slots=True)
class LocalContext:
    """The context of a call, as Lambda gives it.

    When the service stops, no time is left, so that long polls end.
    """

    stopping: threading.Event
    aws_request_id: str = field(default_factory=lambda: str(uuid4()))
    disconnected: Callable[[], bool] = lambda: False
    ends_at: float = field(default_factory=lambda: time.monotonic() + _CALL_SECONDS)

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the call must have ended."""
        if self.stopping.is_set():
            return 0
        return max(0, int((self.ends_at - time.monotonic()) * 1000))

    def client_gone(self) -> bool:
        """Return whether the client has disconnected, or is about to be disconnected."""
        return self.disconnected() or self.stopping.is_set()


Api: TypeAlias = Callable[[Request], Reply]
Console: TypeAlias = Callable[[dict[str, Any], Any], Any]


def load_console() -> Console:
    """Import the console: from the wheel, or from its own folder in a checkout."""
    name = "headrace.console.app"
    if not _INSTALLED_CONSOLE.is_dir():
        name = "console.app"
        if str(_CHECKOUT) not in sys.path:
            sys.path.insert(0, str(_CHECKOUT))
    handler: Console = importlib.import_module(name).handler
    return handler


class LocalApp:
    """The application; `stopping` is set when the service begins to stop."""

    def __init__(
        self,
        api: Api,
        console: Console,
        *,
        root_path: str = "",
        proxies: TrustedProxies = NO_PROXIES,
        bounds: Bounds | None = None,
        verify_key: Callable[[str], object] | None = None,
    ) -> None:
        """Take the handlers.

        *verify_key* raises Unauthenticated for an unknown key; by default the service does this.
        """
        bounds = bounds or Bounds()
        self.stopping = threading.Event()
        self._api, self._console = api, console
        self._root_path, self._proxies = root_path, proxies
        self._uploads = LocalUploads(lambda: current_service().uploads)
        self._verify_key = verify_key or _verify_key
        self._threads = CapacityLimiter(bounds.threads)
        self._dequeues = CapacityLimiter(bounds.dequeues)
        self._ends = CapacityLimiter(bounds.ends)
        self._free_bytes = bounds.bodies

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, in ASGI."""
        request = asgi.read_scope(scope)
        context = LocalContext(self.stopping)
        context.disconnected = scope.get("state", {}).get(DISCONNECTED, context.disconnected)
        try:
            check_head(request)
            request = self._proxies.read(request).below(self._root_path)
            request.headers.update(  # as API Gateway
                {
                    "x-forwarded-for": request.source,
                    "x-forwarded-proto": request.proto,
                    "x-forwarded-port": str(request.port),
                }
            )
            if request.path.startswith(PATH):
                answer = await self._transfer(request, receive)
            else:
                answer = await self._answer(request, context, receive)
        except RequestRefused as error:
            await asgi.send_refusal(refusal(error.status, str(error)), receive, send)
        except asgi.ClientDisconnected:
            pass
        except Exception:  # noqa: BLE001 (the process edge: logged, and the service lives on)
            id_ = context.aws_request_id
            _log.exception("%s %s failed, request %s", request.method, request.path, id_)
            detail = "The service failed to answer; its log has the request_id."
            failed = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, detail, request_id=id_)
            await asgi.send_refusal(failed, receive, send)
        else:
            await asgi.send_answer(answer, send)

    # -- bodies ------------------------------------------------------------------------------------

    async def _answer(
        self, request: LocalRequest, context: LocalContext, receive: Receive
    ) -> GatewayAnswer:
        size = asgi.MAX_BODY_BYTES if request.length is None else request.length
        if size > asgi.MAX_BODY_BYTES:
            raise asgi.too_large()
        if size > _OPEN_BODY_BYTES:
            await self._check_key(request)
            if size > self._free_bytes:
                detail = "Other large requests are being answered: try again in a second."
                raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail)
        self._free_bytes -= size
        try:
            body = await asgi.read_body(receive) if size else b""
            return await self._call(request, body, context)
        finally:
            self._free_bytes += size

    async def _check_key(self, request: LocalRequest) -> None:
        """Raise RequestRefused for a large body without a valid key, before it is read."""
        if request.path.startswith(CONSOLE) and "cookie" in request.headers:
            return  # the console verifies the session
        try:
            key = bearer(request.headers.get("authorization"))
            await to_thread.run_sync(self._verify_key, key, limiter=self._threads)
        except Unauthenticated as error:
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, error.detail) from None
        except Unavailable:
            return  # the API reports it

    async def _transfer(self, request: LocalRequest, receive: Receive) -> GatewayAnswer:
        """Receive an uploaded payload, or return one."""
        try:
            if request.method != "PUT":
                return await to_thread.run_sync(self._uploads.read, request, limiter=self._threads)
            upload = await to_thread.run_sync(self._uploads.begin, request, limiter=self._threads)
            try:
                more = True
                while more:
                    async with asyncio.timeout(asgi.BODY_SECONDS):
                        part, more = await asgi.next_part(receive)
                    upload.write(part)
                return await to_thread.run_sync(upload.finish, limiter=self._threads)
            finally:
                upload.abandon()
        except TimeoutError:
            raise asgi.too_slow() from None
        except Unavailable as error:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error

    # -- handlers ----------------------------------------------------------------------------------

    async def _call(
        self, request: LocalRequest, body: bytes, context: LocalContext
    ) -> GatewayAnswer:
        path = request.path
        if path.startswith(_API):
            handle = self._call_api
        elif path == CONSOLE or path.startswith(f"{CONSOLE}/"):
            handle = self._call_console
        elif path == "/" and request.method in ("GET", "HEAD"):
            headers = [("Location", f"{request.base}{CONSOLE}/"), *ALWAYS.items()]
            return GatewayAnswer(HTTPStatus.SEE_OTHER, headers, b"")
        elif path == metrics.PATH:
            return await to_thread.run_sync(metrics.metrics, request, limiter=self._threads)
        else:
            return refusal(HTTPStatus.NOT_FOUND, f"There is nothing at {path}.")
        limiter, waits_for = self._limiter(request)
        if limiter is not self._threads and limiter.available_tokens < 1:
            most = int(limiter.total_tokens)
            detail = f"{most} requests wait for {waits_for} already: try again in a second."
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail)
        return await to_thread.run_sync(handle, request, body, context, limiter=limiter)

    def _limiter(self, request: LocalRequest) -> tuple[CapacityLimiter, str]:
        """Return the limit of threads for *request*, and what the request waits for."""
        path = request.path.rstrip("/")
        if path.endswith("/dequeue"):
            return self._dequeues, "tasks"
        if _A_TASK.fullmatch(path) and "wait_seconds" in query_of(request.query):
            return self._ends, "the end of a task"
        return self._threads, ""

    def _call_api(self, request: LocalRequest, body: bytes, context: LocalContext) -> GatewayAnswer:
        reply = self._api(
            Request(
                "GET" if request.method == "HEAD" else request.method,
                request.path,
                id=context.aws_request_id,
                context=context,
                headers=request.headers,
                query=query_of(request.query),
                body=body,
                base=request.base,
                repeated=request.repeated,
            )
        )
        lines = [(name, header_value(value)) for name, value in reply.headers.items()]
        return GatewayAnswer(reply.status, lines, reply.text().encode())

    def _call_console(
        self, request: LocalRequest, body: bytes, context: LocalContext
    ) -> GatewayAnswer:
        page = request.path.removeprefix(CONSOLE).strip("/")
        headers = {name.title(): value for name, value in request.headers.items()}
        event = proxy_event(
            request.method,
            request.path,
            request_id=context.aws_request_id,
            headers=headers,
            query=request.query,
            body=body,
            resource=f"{CONSOLE}/{{proxy+}}" if page else CONSOLE,
            parameters={"proxy": unquote(page)} if page else {},
            protocol=request.protocol,
            base=request.base,
            source_ip=request.source,
        )
        answer = read_answer(self._console(event, context))
        given = {name.lower() for name, _ in answer.headers}
        headers_ = [pair for pair in answer.headers if pair[0].lower() not in _OF_THE_SERVER]
        headers_ += [pair for pair in ALWAYS.items() if pair[0].lower() not in given]
        body = answer.body
        if len(body) >= _COMPRESSED and "gzip" in request.headers.get("accept-encoding", ""):
            headers_ += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
            body = gzip.compress(body, _LEVEL, mtime=0)
        return replace(answer, headers=headers_, body=body)


def _verify_key(key: str) -> object:
    return current_service().keys.verify(key, note_use=False)
