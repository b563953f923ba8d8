"""Connections to addresses that somebody else has named, and to none that must not be asked.

A name is resolved once, each address it has is checked, and the connection goes to one of those:
so a name that leads elsewhere a moment later leads nobody astray.  TLS and the request name the
host as ever.  Whatever is done over such a connection ends at one deadline.
"""

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from threading import Thread
from typing import Any, TypeAlias

import httpcore2 as httpcore

from headrace.domain.addresses import address_fault
from headrace.domain.push import PushHosts

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host, best first.  Raises OSError."""

Connect: TypeAlias = Callable[[str, int, float | None], httpcore.NetworkStream]
"""Connects to an address and a port within seconds.  Raises httpcore's errors."""


class TargetRefused(Exception):
    """Nothing was sent, because it must not be."""


def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of *host* as the system knows them.  Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def connected(address: str, port: int, timeout: float | None) -> httpcore.NetworkStream:
    """Return a connection to *address*."""
    return httpcore.SyncBackend().connect_tcp(address, port, timeout)


class GuardedBackend(httpcore.NetworkBackend):
    """Makes the connections of one thread.  ``until`` is when all ends, by its own clock."""

    def __init__(
        self,
        hosts: PushHosts,
        *,
        resolve: Resolve = resolved,
        connect: Connect = connected,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let *hosts* be wherever they are."""
        self._hosts, self._resolve, self._connect = hosts, resolve, connect
        self._monotonic = monotonic
        self.until = float("inf")

    def seconds_left(self, error: type[httpcore.TimeoutException]) -> float | None:
        """Return how long a step may take, None for ever.  Raises *error* at the end."""
        left = self.until - self._monotonic()
        if left <= 0:
            raise error("the time for the request is over")
        return None if left == float("inf") else left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  the deadline says it
        local_address: str | None = None,  # noqa: ARG002  of the protocol
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002  likewise
    ) -> httpcore.NetworkStream:
        """Connect to *host*.  Raises TargetRefused where one of its addresses may not be asked."""
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
        """Resolve *host* in a thread of its own: the system's resolver knows no deadline."""
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
        except NotInTime:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} is not known: {error}") from error


class _DeadlineStream(httpcore.NetworkStream):
    """A connection all of whose steps together end at the deadline, however small each is."""

    def __init__(self, stream: httpcore.NetworkStream, backend: GuardedBackend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002  above
        return self._stream.read(max_bytes, self._backend.seconds_left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002  above
        connection: socket.socket = self._stream.get_extra_info("socket")
        view = memoryview(buffer)
        while view:
            # httpcore's own would let a slow reader have the whole time for each piece.
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
        ssl_context: Any,  # noqa: ANN401  truststore's is none of ssl's own class
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002  above
    ) -> httpcore.NetworkStream:
        left = self._backend.seconds_left(httpcore.ConnectTimeout)
        secured = self._stream.start_tls(ssl_context, server_hostname, left)
        return _DeadlineStream(secured, self._backend)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  of many kinds
        return self._stream.get_extra_info(info)
