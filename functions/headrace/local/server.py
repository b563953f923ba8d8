"""Uvicorn, with limits: how long a client may take, and how many connections there are."""

import asyncio
import errno
import socket
import sys
import threading
from http import HTTPStatus
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.http.events import GatewayAnswer
from headrace.local import PortUnusable
from headrace.local.app import DISCONNECTED, LocalApp
from headrace.local.requests import MAX_HEADER_BYTES, refusal

_CONNECTIONS: Final = 1024
_BACKLOG: Final = 1024
_IDLE_SECONDS: Final = 60  # a worker keeps its connection while it is idle
_HEAD_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 2.0
_GRACE_SECONDS: Final = 4  # that a stop waits for requests under way
_THREAD_SECONDS: Final = 1.0


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `port` (0: any free one) of *host*.

    Raises:
        PortUnusable: the port is taken, or may not be used; the host is not this machine.

    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise PortUnusable(
                f"{host} cannot be listened on ({error.strerror}): set HEADRACE_HOST to an address"
                " of this machine."
            ) from error
        raise PortUnusable(
            f"Port {port} cannot be used ({error.strerror}): set HEADRACE_PORT to another one."
        ) from error
    # Accepted sockets inherit this.  Without it, an answer of two segments takes 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class LimitedProtocol(H11Protocol):
    """A connection with a time limit for request heads, and with refusals in the API's form."""

    head_seconds = _HEAD_SECONDS
    most_connections = _CONNECTIONS

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 (asyncio says BaseTransport)
        super().connection_made(transport)
        self.app_state = {DISCONNECTED: transport.is_closing}
        # Uvicorn's own limit answers with a line of plain text.
        self._is_one_too_many = len(self.connections) > min(self.most_connections, _files() // 2)
        self._refused = self._in_head = False
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(
            _IDLE_SECONDS, transport.close
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._is_one_too_many:
            detail = "The service has as many connections as it may: try again in a second."
            self._refuse(refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail))
            return
        super().data_received(data)
        if getattr(self.cycle, "response_complete", True) is False:
            self._end_timer()
        elif not self._in_head and not self._refused:
            self._end_timer()
            self._in_head = True
            self._timer = self.loop.call_later(self.head_seconds, self._head_is_late)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  that of uvicorn names no reason
        """Refuse what h11 does not take; uvicorn calls this."""
        detail = (
            f"The request is malformed, or its headers are larger than {MAX_HEADER_BYTES} bytes."
        )
        self._refuse(refusal(HTTPStatus.BAD_REQUEST, detail))

    def _head_is_late(self) -> None:
        detail = (
            f"The request came too slowly: its headers must be here within {_HEAD_SECONDS:g} s."
        )
        self._refuse(refusal(HTTPStatus.REQUEST_TIMEOUT, detail))

    def _refuse(self, answer: GatewayAnswer) -> None:
        """Send *answer*, and close the connection once the client can have read it."""
        self._end_timer()
        self._refused = True
        if self.cycle is not None:  # the application may wait for the rest of a body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no answer has begun
            headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
            start = h11.Response(
                status_code=answer.status,
                headers=[*headers, ("Connection", "close")],
                reason=HTTPStatus(answer.status).phrase.encode(),
            )
            for event in (start, h11.Data(data=answer.body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.write_eof()  # the client may still be sending
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _end_timer(self) -> None:
        self._in_head = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LocalServer:
    """Serves *app* on a listening socket, in a thread."""

    def __init__(
        self,
        app: LocalApp,
        listening: socket.socket,
        protocol: type[LimitedProtocol] = LimitedProtocol,
    ) -> None:
        self._app, self._socket = app, listening
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=protocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",  # clients can cause warnings
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("Server", "Headrace")],
                backlog=_BACKLOG,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            )
        )
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the requests under way.  May be called again."""
        self._app.stopping.set()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_GRACE_SECONDS + _THREAD_SECONDS)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


if sys.platform == "win32":

    def _files() -> int:
        return sys.maxsize  # sockets are not files there

else:
    import resource

    def _files() -> int:
        """Return how many files this process may have open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return sys.maxsize if files == resource.RLIM_INFINITY else files
