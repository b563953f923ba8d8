"""Requests one after the other over one connection, which is made anew where it is gone.

httpcore's own pool is made for many that share it, and took half the CPU of a task that is pushed:
here each thread has its connection, and between h11 and the guard there is nothing else.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import h11
import httpcore2 as httpcore

from headrace.domain.push import Destination
from headrace.push.guard import GuardedBackend

_IDLE_SECONDS: Final = 4.0
"""How long a connection is kept for the next request: less than receivers keep one, usually 5."""
_READ_BYTES: Final = 65_536
_HEAD_BYTES: Final = 102_400  # of an answer, at most; as httpcore has it

_Place: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class PushResponse:
    """An answer as it came in: names of ``headers`` in lower case, ``whole`` unless cut."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    whole: bool


@dataclass(slots=True)
class Requests:
    """What one thread sends, and where to."""

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
        """Send *body* and return the answer, of its body the first *most* bytes.

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
        else:  # it ends, or was not read to its end
            self.close()
        return answer

    def close(self) -> None:
        """Let go of the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _stream_to(self, to: Destination) -> httpcore.NetworkStream:
        place = to.scheme, to.host, to.port
        if self._stream is not None:
            idle = self.monotonic() - self._idle_since
            # What can be read from one that nothing was asked of is its end.
            gone = idle > _IDLE_SECONDS or self._stream.get_extra_info("is_readable")
            if place == self._place and not gone:
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
        with suppress(httpcore.WriteError):  # it may have answered before it had read all
            stream.write(b"".join(part for part in (head, *rest) if part))
        status, came = 0, bytearray()
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
                came += event.data
                if len(came) > most:
                    return PushResponse(status, found, bytes(came[:most]), whole=False)
            elif isinstance(event, h11.EndOfMessage):
                return PushResponse(status, found, bytes(came), whole=True)
