"""One connection to the local service: HTTP/1.1 as h11 reads it, within bounds.

It lives on the server's loop and has no thread.  A request is handed on once it is there as a
whole, and the next one is looked at when it was answered.  What two readers could take for two
different requests is refused, and the connection ends with it: by h11 first of all, and by
`requests`.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

import h11

from headrace.http.events import GatewayAnswer
from headrace.local.phases import SECONDS, Phase
from headrace.local.requests import (
    Incoming,
    LocalRequest,
    RequestRefused,
    check_head,
    long_body,
    long_head,
    not_http,
    refusal,
)
from headrace.safe_logging import safe_logger

Done: TypeAlias = Callable[[GatewayAnswer], None]

# Of a body in chunks: each costs h11 some 10 µs, and it holds a line or trailers until their end.
_CHUNKS: Final = 10_000
_LINE_BYTES: Final = 4096
_AHEAD_BYTES: Final = 64 * 1024  # of requests behind the one that is answered
# A refused body is thrown away, because closing on it would take the answer along.
_LINGER_BYTES: Final = 64 * 1024 * 1024

_PIECE: Final = 256 * 1024  # of an answer that is not held
_PIECES: Final = 4  # of them at a time: others are on this loop too

_NO_BODY: Final = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}

_log = safe_logger(__name__)


class Owner(Protocol):
    """What a connection needs of its server."""

    stopping: bool

    def joined(self, connection: "Connection") -> None:
        """Note a new connection."""

    def left(self, connection: "Connection") -> None:
        """Forget one."""

    def holds(self, size: int, source: str) -> bool:
        """Count bytes of bodies held for *source* (less than 0: no longer); False: too many."""

    def incoming(self, request: LocalRequest, length: int | None) -> Incoming | None:
        """Return what takes the body of a request as it comes; None: hold it.

        Raises RequestRefused.
        """

    def work(self, request: LocalRequest, done: Done) -> None:
        """Have a request answered; `done` is called on the loop."""


class Connection(asyncio.Protocol):
    """The states of one connection; everything is called on the server's loop."""

    def __init__(
        self, owner: Owner, *, max_body: int, max_head: int, clock: Callable[[], float]
    ) -> None:
        """Take the bounds, in bytes."""
        self._owner = owner
        self._max_body = max_body
        self._max_head = max_head
        self._clock = clock
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head)
        self._raw = bytearray()  # the head as it came, which h11 does not keep
        self._head: LocalRequest | None = None
        self._body = bytearray()
        self._held = self._chunks = self._ahead = self._lingered = 0
        self._chunked = self._eof = self._full = False
        self._incoming: Incoming | None = None
        self._content: BinaryIO | None = None
        self._enter(Phase.IDLE)

    # -- what the loop calls -----------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 (asyncio says BaseTransport)
        """Begin."""
        self._transport: asyncio.Transport = transport
        self._source = (transport.get_extra_info("peername") or ("",))[0]
        self._port = transport.get_extra_info("sockname")[1]
        self._owner.joined(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """End."""
        self._release()
        self._end_content()
        self._owner.left(self)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        at = 0
        while at < len(data):
            # Piece by piece where h11 must find a line's end, so that what it holds has a bound.
            whole = self.phase is Phase.BODY and not self._chunked
            size = len(data) if whole else _LINE_BYTES
            self._receive(data[at : at + size])
            at += size

    def eof_received(self) -> bool:
        """Take the end of what the client sends; it may still read."""
        if self.phase is Phase.LEAVING:
            return False
        self._eof = True
        self._http.receive_data(b"")
        self._read()
        return True

    def pause_writing(self) -> None:
        """Note that the client does not keep up."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on: the client keeps up again."""
        self._full = False
        if self._content is not None:
            self._send_content()
        elif self.phase is Phase.TAKEN:
            self._next()

    # -- what the server calls ---------------------------------------------------------------------

    def overdue(self) -> None:
        """End what has taken too long."""
        if self.phase in (Phase.HEAD, Phase.BODY):
            what, seconds = self.phase.value, SECONDS[self.phase]
            detail = f"The request came too slowly: {what} must be here within {seconds:g} s."
            self._refuse(RequestRefused(HTTPStatus.REQUEST_TIMEOUT, detail))
        elif self.phase is Phase.IDLE:
            self._leave()
        else:
            self._transport.abort()

    @property
    def busy(self) -> bool:
        """Whether a request is under way, or its answer."""
        return self.phase in (Phase.ANSWER, Phase.TAKEN)

    @property
    def may_go(self) -> bool:
        """Whether it may make room for another: nothing is being done for it, or not taken."""
        return self.phase is not Phase.ANSWER

    def abort(self) -> None:
        """End now."""
        self._transport.abort()

    # -- reading -----------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        match self.phase:
            case Phase.LEAVING:
                self._lingered += len(data)
                if self._lingered > _LINGER_BYTES:
                    self._transport.abort()
            case _ if self.busy:
                self._http.receive_data(data)
                self._ahead += len(data)
                if self._ahead > _AHEAD_BYTES:
                    self._transport.pause_reading()
            case _:
                if self.phase is not Phase.BODY:
                    self._raw += data
                self._http.receive_data(data)
                self._read()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.deadline = self._clock() + SECONDS[phase]

    def _leave(self) -> None:
        """Hang up, once the client has what was sent."""
        self._enter(Phase.LEAVING)
        self._transport.close()

    def _read(self) -> None:
        """Read events until a request is whole, or there is nothing more to read."""
        try:
            while self.phase in (Phase.IDLE, Phase.HEAD, Phase.BODY):
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._check_wait()
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            wrong = not_http(str(error))
            if self._head is None and len(self._raw) > self._max_head:
                wrong = long_head(self._max_head)
            self._refuse(wrong)
        except RequestRefused as error:
            self._refuse(error)

    def _check_wait(self) -> None:
        """Raise RequestRefused where h11 waits for more than it may hold."""
        if self.phase is Phase.IDLE and self._raw:
            self._enter(Phase.HEAD)
        if self._chunked and len(self._http.trailing_data[0]) > _LINE_BYTES:
            detail = f"The line of a chunk, or the trailers, are larger than {_LINE_BYTES} bytes."
            raise RequestRefused(HTTPStatus.BAD_REQUEST, detail)

    def _take(self, event: object) -> None:
        match event:
            case h11.Request():
                self._head = self._request(event)
                self._begin(event, self._head)
                if self._http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    self._transport.write(self._http.send(go_on))
                self._enter(Phase.BODY)
            case h11.Data():
                self._take_part(event)
            case h11.EndOfMessage():
                self._hand_on()
            case _:  # the client has hung up
                self._leave()

    def _begin(self, head: h11.Request, request: LocalRequest) -> None:
        """Check a head, and see whether its body is to be held."""
        check_head(head, self._raw, max_head=self._max_head)
        fields = dict(request.headers)
        length = int(fields["content-length"]) if "content-length" in fields else None
        self._incoming = self._owner.incoming(request, length)
        if self._incoming is None and length is not None and length > self._max_body:
            raise long_body(self._max_body)
        self._chunked = "transfer-encoding" in fields

    def _take_part(self, part: h11.Data) -> None:
        if self._incoming is not None:
            self._incoming.write(part.data)
            self._enter(Phase.BODY)
            return
        self._body += part.data
        self._chunks += part.chunk_start
        self._held += len(part.data)
        if len(self._body) > self._max_body:
            raise long_body(self._max_body)
        if self._chunks > _CHUNKS:
            detail = f"A body may come in at most {_CHUNKS} chunks."
            raise RequestRefused(HTTPStatus.BAD_REQUEST, detail)
        if not self._owner.holds(len(part.data), self._source):
            detail = "There are too many large requests at once: try again in a second."
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail)

    def _hand_on(self) -> None:
        """Have the request answered: it is whole."""
        if self._head is None:
            raise AssertionError(self.phase)
        request = replace(
            self._head,
            body=bytes(self._body),
            incoming=self._incoming,
            client_gone=self._client_gone,
        )
        self._incoming = None  # whoever answers has it now
        self._body.clear()
        self._enter(Phase.ANSWER)
        self._owner.work(request, self._answered)

    def _client_gone(self) -> bool:
        return self._eof or self._transport.is_closing()

    def _request(self, head: h11.Request) -> LocalRequest:
        return LocalRequest(
            method=head.method.decode("ascii"),
            target=head.target.decode("ascii"),
            headers=tuple(
                [(name.decode(), value.decode("latin-1")) for name, value in head.headers]
            ),
            protocol="HTTP/" + head.http_version.decode("ascii"),
            source=self._source,
            port=self._port,
        )

    # -- answering ---------------------------------------------------------------------------------

    def _answered(self, answer: GatewayAnswer) -> None:
        self._release()
        if self._transport.is_closing():
            if answer.content is not None:
                answer.content.close()
            return
        try:
            self._content = answer.content
            self._send(answer, last=self._owner.stopping)
        except h11.LocalProtocolError:
            _log.exception("the answer to %s cannot be sent", self._head and self._head.target)
            detail = "The service's answer is none that can be sent; its log says why."
            self._refuse(RequestRefused(HTTPStatus.INTERNAL_SERVER_ERROR, detail))
            return
        self._enter(Phase.TAKEN)
        if self._content is None:
            self._sent()
        else:
            self._send_content()

    def _send_content(self) -> None:
        """Send the next parts of an answer that is not held, as fast as the client takes them."""
        for _ in range(_PIECES):
            if self._content is None or self._full or self._transport.is_closing():
                return
            self._enter(Phase.TAKEN)
            try:
                piece = self._content.read(_PIECE)
                if piece:
                    self._transport.write(self._http.send(h11.Data(data=piece)) or b"")
                    continue
                self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
            except (OSError, h11.LocalProtocolError):
                _log.exception("the answer to %s ends early", self._head and self._head.target)
                self._transport.abort()
                return
            self._end_content()
            self._sent()
            return
        asyncio.get_running_loop().call_soon(self._send_content)

    def _end_content(self) -> None:
        if self._content is not None:
            self._content.close()
            self._content = None

    def _sent(self) -> None:
        """Go on, or end, behind an answer."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._transport.close()  # when all is sent
        elif not self._full:
            self._next()

    def _refuse(self, error: RequestRefused) -> None:
        """Answer what cannot be taken, and end: nobody can tell where the next request begins."""
        self._release()
        self._send(refusal(error.status, str(error)), last=True)
        self._enter(Phase.LEAVING)
        if self._eof:
            self._transport.close()
        else:
            self._transport.write_eof()  # it may still be sending

    def _send(self, answer: GatewayAnswer, *, last: bool) -> None:
        silent = answer.status in _NO_BODY or (self._head and self._head.method == "HEAD")
        headers = [*answer.headers, ("Date", _date(int(time.time()))), ("Server", "Headrace")]
        if answer.status not in _NO_BODY:
            size = len(answer.body) if answer.content is None else answer.size
            headers.append(("Content-Length", str(size)))
        if last:
            headers.append(("Connection", "close"))
        try:
            reason = HTTPStatus(answer.status).phrase
        except ValueError:
            reason = "Unknown"
        start = h11.Response(status_code=answer.status, headers=headers, reason=reason.encode())
        parts = [self._http.send(start)]
        if answer.content is None:
            if not silent:
                parts.append(self._http.send(h11.Data(data=answer.body)))
            parts.append(self._http.send(h11.EndOfMessage()))
        self._transport.write(b"".join(filter(None, parts)))

    def _next(self) -> None:
        """Look for the next request, which may be here already."""
        self._http.start_next_cycle()
        self._raw[:] = self._http.trailing_data[0]
        self._head = None
        self._chunked = False
        self._chunks = self._ahead = 0
        self._enter(Phase.IDLE)
        self._transport.resume_reading()
        if self._owner.stopping:
            self._enter(Phase.TAKEN)
            self._transport.close()
        elif self._raw or self._eof:
            self._read()

    def _release(self) -> None:
        if self._incoming is not None:
            self._incoming.abandon()
            self._incoming = None
        self._body.clear()
        self._owner.holds(-self._held, self._source)
        self._held = 0


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
