"""Connections and requests to addresses that a queue's target names, and to no private network.

A host name is resolved once for each connection.  All of its addresses are checked, and the
connection goes to one of these, so the name cannot lead to another address a moment later.  TLS and
the request still use the host name.  All steps of a request end at one deadline.

Each thread sends its requests one after the other over one connection, and connects again after the
connection has ended.  httpcore's pool is made for many threads: it took half the CPU of a pushed
task.
"""

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final, TypeAlias

import h11
import httpcore2 as httpcore

from headrace.domain.push import Destination, PushHosts, address_fault

_IDLE_SECONDS: Final = 4.0
"""How long a connection is kept for the next request; most receivers keep it for 5 seconds."""

_READ_BYTES: Final = 65_536
_HEAD_BYTES: Final = 102_400  # of an answer, at most; the same limit as httpcore's

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host, best first.  Raises OSError."""

Connect: TypeAlias = Callable[[str, int, float | None], httpcore.NetworkStream]
"""Connects to an address and a port within seconds.  Raises httpcore's errors."""

_Place: TypeAlias = tuple[str, str, int]


class TargetRefused(Exception):
    """The request was not sent, because its address is in a private network."""


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of *host* by the system's resolver.  Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def connect_to(address: str, port: int, timeout: float | None) -> httpcore.NetworkStream:
    """Return a connection to *address*."""
    return httpcore.SyncBackend().connect_tcp(address, port, timeout)


class GuardedBackend(httpcore.NetworkBackend):
    """Makes the connections of one thread; ``until`` is their deadline by the monotonic clock."""

    def __init__(
        self,
        hosts: PushHosts,
        *,
        resolve: Resolve = resolve_host,
        connect: Connect = connect_to,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow the addresses of *hosts*, also private ones."""
        self._hosts, self._resolve, self._connect = hosts, resolve, connect
        self._monotonic = monotonic
        self.until = float("inf")

    def seconds_left(self, error: type[httpcore.TimeoutException]) -> float | None:
        """Return the seconds up to the deadline, None without one.  Raises *error* after it."""
        left = self.until - self._monotonic()
        if left <= 0:
            raise error("the time for the request is over")
        return None if left == float("inf") else left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  the deadline decides
        local_address: str | None = None,  # noqa: ARG002  part of httpcore's protocol
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002  part of httpcore's protocol
    ) -> httpcore.NetworkStream:
        """Connect to *host*.  Raises TargetRefused if one of its addresses is not allowed."""
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in self._checked(host, port):
            try:
                stream = self._connect(address, port, self.seconds_left(httpcore.ConnectTimeout))
            except httpcore.ConnectError as error:
                failed = error
                continue
            return _DeadlineStream(stream, self)
        raise failed

    def _checked(self, host: str, port: int) -> Sequence[str]:
        addresses = self._addresses(host, port)
        if (host, port) in self._hosts:
            return addresses
        for address in addresses:
            try:
                fault = address_fault(address)
            except ValueError:
                fault = f"{address} is no address"
            if fault is not None:
                raise TargetRefused(f"{host} must not lead into a private network: {fault}")
        return addresses

    def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve *host* in another thread, because the system's resolver has no timeout."""
        answer: Future[Sequence[str]] = Future()

        def resolve() -> None:
            try:
                answer.set_result(self._resolve(host, port))
            except (OSError, UnicodeError) as error:
                answer.set_exception(error)

        left = self.seconds_left(httpcore.ConnectTimeout)
        Thread(target=resolve, name="headrace-resolve", daemon=True).start()
        try:
            return answer.result(left)
        except FutureTimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} is not known: {error}") from error


class _DeadlineStream(httpcore.NetworkStream):
    """A connection whose steps all end at the deadline of its backend."""

    def __init__(self, stream: httpcore.NetworkStream, backend: GuardedBackend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, self._backend.seconds_left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        connection: socket.socket = self._stream.get_extra_info("socket")
        view = memoryview(buffer)
        while view:
            # httpcore's write() has the whole time for each piece.
            connection.settimeout(self._backend.seconds_left(httpcore.WriteTimeout))
            try:
                view = view[connection.send(view) :]
            except TimeoutError as error:
                raise httpcore.WriteTimeout(str(error)) from error
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: Any,  # noqa: ANN401  truststore's class is not a subclass of ssl's
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        left = self._backend.seconds_left(httpcore.ConnectTimeout)
        secured = self._stream.start_tls(ssl_context, server_hostname, left)
        return _DeadlineStream(secured, self._backend)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401
        return self._stream.get_extra_info(info)


@dataclass(frozen=True, slots=True)
class PushResponse:
    """An answer: names of ``headers`` are in lower case; not ``whole`` if the body was cut."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    whole: bool


@dataclass(slots=True)
class Requests:
    """The requests of one thread, over one connection."""

    backend: GuardedBackend
    ssl_context: Any = None  # httpcore's default if None
    monotonic: Callable[[], float] = time.monotonic
    _place: _Place | None = field(default=None, init=False)
    _stream: httpcore.NetworkStream | None = field(default=None, init=False)
    _protocol: h11.Connection = field(init=False)
    _idle_since: float = field(default=0.0, init=False)

    def post(
        self, to: Destination, headers: Sequence[tuple[str, str]], body: bytes, *, most: int
    ) -> PushResponse:
        """Send *body* and return the answer, with the first *most* bytes of its body.

        Raises TargetRefused, and httpcore's errors of the network and the protocol.
        """
        stream = self._stream_to(to)
        try:
            answer = self._exchange(stream, to.path, headers, body, most)
        except BaseException as error:
            self.close()
            if isinstance(error, h11.RemoteProtocolError):
                raise httpcore.RemoteProtocolError(str(error)) from error
            if isinstance(error, h11.LocalProtocolError):
                raise httpcore.LocalProtocolError(str(error)) from error
            raise
        if self._protocol.our_state is self._protocol.their_state is h11.DONE:
            self._protocol.start_next_cycle()
            self._idle_since = self.monotonic()
        else:  # the receiver closes the connection, or the body was not read to its end
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _stream_to(self, to: Destination) -> httpcore.NetworkStream:
        place = to.scheme, to.host, to.port
        if self._stream is not None:
            idle = self.monotonic() - self._idle_since
            # An idle connection is readable only if the receiver has closed it.
            ended = idle > _IDLE_SECONDS or self._stream.get_extra_info("is_readable")
            if place == self._place and not ended:
                return self._stream
            self.close()
        stream = self.backend.connect_tcp(to.host, to.port)
        if to.scheme == "https":
            context = self.ssl_context or httpcore.default_ssl_context()
            context.set_alpn_protocols(["http/1.1"])
            stream = stream.start_tls(context, to.host)
        self._stream, self._place = stream, place
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        return stream

    def _exchange(
        self,
        stream: httpcore.NetworkStream,
        path: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        most: int,
    ) -> PushResponse:
        protocol = self._protocol
        head = protocol.send(h11.Request(method="POST", target=path, headers=list(headers)))
        rest = protocol.send(h11.Data(data=body)), protocol.send(h11.EndOfMessage())
        with suppress(httpcore.WriteError):  # the receiver may answer before it has read all
            stream.write(b"".join(part for part in (head, *rest) if part))
        status, received = 0, bytearray()
        found: Sequence[tuple[bytes, bytes]] = ()
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                data = stream.read(_READ_BYTES)
                if not data and protocol.their_state is h11.SEND_RESPONSE:
                    raise httpcore.RemoteProtocolError("it ended the connection without an answer")
                protocol.receive_data(data)
            elif isinstance(event, h11.Response):
                status, found = event.status_code, list(event.headers)
            elif isinstance(event, h11.Data):
                received += event.data
                if len(received) > most:
                    return PushResponse(status, found, bytes(received[:most]), whole=False)
            elif isinstance(event, h11.EndOfMessage):
                return PushResponse(status, found, bytes(received), whole=True)
