"""The HTTP server (cheroot) as the gateway needs it: bounded, quick, its refusals in our shape."""

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from cheroot import server, wsgi

from headrace.domain.limits import KIB, LAMBDA_BYTES
from infra.local.errors import PortUnusable
from infra.local.problems import CONTENT_TYPE, problem

# What API Gateway and Lambda take together, in base64 in an event with room for the headers; the
# API's own limit is lower and names the field.
MAX_BODY_BYTES: Final = (LAMBDA_BYTES - 128 * KIB) * 3 // 4
MAX_HEADER_BYTES: Final = 32 * 1024

WsgiApp: TypeAlias = Callable[[dict[str, Any], Any], Iterable[bytes]]

# A long poll holds its thread.
_THREADS: Final = 32
_BACKLOG: Final = 128
_IDLE_SECONDS: Final = 60
# How long a stop waits for requests under way, and how soon it is noticed.
_GRACE_SECONDS: Final = 4
_WAKE_SECONDS: Final = 0.1
# A refused body is thrown away for so long, because closing on it would take the answer along.
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES: Final = 64 * 1024 * 1024

_log = logging.getLogger(__name__)


def listen(app: WsgiApp, host: str, port: int) -> "ApiServer":
    """Listen on `port` (0: any free one); nothing is answered before `serve()` is called.

    Raises:
        PortUnusable: the port is taken, or may not be used.

    """
    api_server = ApiServer(
        (host, port),
        app,
        numthreads=_THREADS,
        request_queue_size=_BACKLOG,
        timeout=_IDLE_SECONDS,
        shutdown_timeout=_GRACE_SECONDS,
        server_name="Headrace",
    )
    try:
        api_server.prepare()
    except OSError as error:
        reason = api_server.refused.strerror if api_server.refused else str(error)
        raise PortUnusable(
            f"Port {port} cannot be used ({reason}): set HEADRACE_PORT to another one."
        ) from error
    return api_server


class _Request(server.HTTPRequest):
    """A request whose refusals by the server itself are problems too."""

    def read_request_headers(self) -> bool:
        if not super().read_request_headers():  # type: ignore[no-untyped-call]  # partly typed
            return False
        length = self.inheaders.get(b"Content-Length", b"0")
        # int() takes "-1", and reading -1 bytes means reading for ever.
        if length.isdigit():
            return True
        self.simple_response("400 Bad Request", "Malformed Content-Length header.")
        return False

    def simple_response(self, status: str, msg: str = "") -> None:
        known = HTTPStatus(int(status[:3]))
        body = problem(known, msg or known.description or known.phrase)
        head = (
            f"HTTP/1.1 {known.value} {known.phrase}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self.close_connection = self.conn.refused = True
        with contextlib.suppress(OSError):
            self.conn.wfile.write(head.encode() + body)

    def send_headers(self) -> None:
        if int(self.status[:3]) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (
            self.chunked_read and not self.rfile.closed
        ):
            # The rest of the body is still on its way and must not be read as a request.
            self.close_connection = self.conn.refused = True
        super().send_headers()


class _Connection(server.HTTPConnection):
    """A connection that lets a refusal arrive before it closes."""

    RequestHandlerClass = _Request
    refused = False

    def close(self) -> None:
        if self.refused:
            self._discard()
        super().close()

    def _discard(self) -> None:
        """Throw away what the client still sends, until it has read the refusal and hangs up."""
        deadline = time.monotonic() + _LINGER_SECONDS
        left = _LINGER_BYTES
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := deadline - time.monotonic()) > 0:
                self.socket.settimeout(seconds)
                chunk = self.socket.recv(65536)
                if not chunk:
                    return
                left -= len(chunk)


class ApiServer(wsgi.Server):
    """A cheroot server with this service's bounds. Sockets get TCP_NODELAY from cheroot."""

    ConnectionClass = _Connection
    max_request_body_size = MAX_BODY_BYTES
    max_request_header_size = MAX_HEADER_BYTES
    # Ten by default; an idle worker of ours keeps its connection, and there may be many.
    keep_alive_conn_limit = 512
    expiration_interval = _WAKE_SECONDS
    refused: OSError | None = None

    def bind(self, family: int, type: int, proto: int = 0) -> socket.socket:  # noqa: A002 (cheroot's name)
        """Keep the reason of a refusal, which cheroot buries in a text of its own."""
        try:
            bound: socket.socket = super().bind(family, type, proto)
        except OSError as error:
            self.refused = error
            raise
        return bound

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:  # noqa: FBT001, FBT002 (cheroot's signature)
        """Log what cheroot has to say; clients that hang up are its INFO."""
        _log.log(level, "%s", msg, exc_info=traceback)
