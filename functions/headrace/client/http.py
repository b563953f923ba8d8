"""HTTP's side of a call: requests made of calls, answers read.  The clients do the sending.

A call is repeated with growing, random waits (or the Retry-After that the service names) after
429, 5xx and lost connections.  One that must not happen twice carries a key by which the service
knows a repeat; where it has none, it is repeated only if it surely did not happen.
"""

import random
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from headrace.client.address import HttpAddress
from headrace.client.calls import (
    ATTEMPT_HEADER,
    KEY_HEADER,
    POLL_HEADER,
    UNITS_HEADER,
    ApiCall,
    CallFailed,
    RawAnswer,
    Usage,
    no_text,
)
from headrace.client.codec import Codec
from headrace.client.embedding import async_connections_to, connections_to
from headrace.client.settings import ClientSettings
from headrace.domain import errors
from headrace.domain.errors import (
    FieldError,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headrace.domain.retry import RetryStrategy

if TYPE_CHECKING:
    import httpx2 as httpx

T = TypeVar("T")
Sleep: TypeAlias = Callable[[float], None]
AsyncSleep: TypeAlias = Callable[[float], Awaitable[None]]

CONNECT_WITHIN: Final = 5.0
"""Seconds until there is a connection, or less where a try may take less."""

MOST_CONNECTIONS: Final = 100

_LONGEST_WAIT: Final = 10.0  # seconds between two tries
_REDIRECTED: Final = 300
_REFUSED: Final = 400
_SERVER_ERROR: Final = 500
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_BY_STATUS: Final[dict[int, type[HeadraceError]]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    413: PayloadTooLarge,
    429: RateLimited,
}
"""What API Gateway answers by itself has no code of ours."""
_BY_CODE: Final = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HeadraceError)
}

_SPREAD: Final = RetryStrategy(base_seconds=0.1, max_delay_seconds=_LONGEST_WAIT / 2, jitter=1)
"""Any wait up to 0.2 s after the first try, up to twice as long after each further one."""


class Unanswered(Exception):
    """A request got no answer; ``sent`` is False where the service surely never had it."""

    def __init__(self, error: Exception, *, sent: bool) -> None:
        """Say why: as *error* does, else by its kind."""
        super().__init__(str(error) or type(error).__name__)
        self.sent = sent


class SentRequest(Protocol):
    """A request that goes out."""

    @property
    def headers(self) -> MutableMapping[str, str]: ...


class ReceivedAnswer(Protocol):
    """What came back; the names of headers are asked for as ``X-Request-Id`` is written."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


class _Connections(Protocol):
    """What makes requests."""

    def build_request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        timeout: float,
    ) -> SentRequest: ...


class Connections(_Connections, Protocol):
    """What sends them.  Raises Unanswered."""

    def send(self, request: Any) -> ReceivedAnswer: ...  # noqa: ANN401  as build_request() returns it
    def close(self) -> None: ...


class AsyncConnections(_Connections, Protocol):
    """The same for an event loop."""

    async def send(self, request: Any) -> ReceivedAnswer: ...  # noqa: ANN401  as in Connections
    async def aclose(self) -> None: ...


class HttpCalls:
    """Calls of one client as requests and answers, and what they have cost."""

    def __init__(self, settings: ClientSettings, codec: Codec, *, retries: int) -> None:
        """*retries* are tries after the first."""
        self._settings, self._codec, self._retries = settings, codec, retries
        self._base = settings.url if isinstance(settings.address, HttpAddress) else ""
        self.usage = Usage()
        self._headers = {
            "Authorization": f"Bearer {settings.key}",
            "Accept": "application/json",
            "User-Agent": "headrace-python",
        }
        self._over_network = over_network = isinstance(settings.address, HttpAddress)
        # Long polls may use half of the connections, so that all other calls find one.
        self.turns = MOST_CONNECTIONS // 2 if over_network else sys.maxsize

    def connections(self, transport: "httpx.BaseTransport | None") -> Connections:
        """What requests go through; *transport* takes the place of the network."""
        address = self._settings.address
        if transport is None and not isinstance(address, HttpAddress):
            return connections_to(address)
        # httpx takes long to import: not before it is needed.
        from headrace.client.network import HttpxConnections  # noqa: PLC0415

        return HttpxConnections(self._headers, transport)

    def async_connections(self, transport: "httpx.AsyncBaseTransport | None") -> AsyncConnections:
        """The same for an event loop."""
        address = self._settings.address
        if transport is None and not isinstance(address, HttpAddress):
            return async_connections_to(address)
        from headrace.client.network import AsyncHttpxConnections  # noqa: PLC0415

        return AsyncHttpxConnections(self._headers, transport)

    def request(
        self,
        connections: Connections | AsyncConnections,
        call: ApiCall[T],
        timeout: float | None,
    ) -> SentRequest:
        """Return the request of *call*; *timeout* takes the place of the one in the settings.

        Raises InvalidRequest for a path or parameter that is no text.
        """
        body = None if call.body is None else call.body(self._codec)
        headers = {} if body is None else {"content-type": "application/json"}
        if call.key is not None:
            headers[KEY_HEADER] = call.key
        if call.attempt is not None:
            headers[ATTEMPT_HEADER] = str(call.attempt)
        try:
            return connections.build_request(
                call.method,
                self._base + call.path,
                params=call.params or None,
                content=body,
                headers=headers,
                timeout=call.wait_seconds
                + (self._settings.timeout if timeout is None else timeout),
            )
        except UnicodeEncodeError as error:
            raise no_text("path", error) from None

    def wait_after(self, failed: CallFailed, request: SentRequest, tries: int) -> float:
        """The seconds until the next try, after *tries*: as the service says, else at random.

        That try of *request* carries the next number, if tries of it are counted.
        Raises the error of *failed* where that was the last.
        """
        if tries > self._retries:
            raise failed.error from None
        if ATTEMPT_HEADER in request.headers:
            request.headers[ATTEMPT_HEADER] = str(int(request.headers[ATTEMPT_HEADER]) + 1)
        spread = _SPREAD.delay_seconds(tries, random.random())  # noqa: S311 (spreads load, hides nothing)
        return spread if failed.wait is None else min(failed.wait, _LONGEST_WAIT) + spread / 10

    def unanswered(self, call: ApiCall[T], why: Unanswered) -> CallFailed:
        """Return the failure of a try of *call* that got no answer.

        Raises Unavailable if the call must not be repeated.
        """
        where = f"{call.method} {self._base}{call.path}"
        unavailable = Unavailable(f"{where} got no answer: {why}")
        if why.sent and not call.repeatable:
            raise unavailable from None
        return CallFailed(unavailable)

    def read(self, call: ApiCall[T], response: ReceivedAnswer) -> T:
        """What *call* is answered.  Raises CallFailed, or an error of headrace.domain.errors."""
        self.usage.add(response.headers.get(UNITS_HEADER))
        status = response.status_code
        if status < _REDIRECTED:
            try:
                return call.read(self._answer(response))
            except (msgspec.DecodeError, RecursionError) as error:
                raise HeadraceError(
                    f"{call.method} {call.path}: the answer is not from Headrace: {error}"
                ) from error
        where = f"{call.method} {call.path}"
        if status < _REFUSED:
            to = response.headers.get("Location", "nowhere")
            raise HeadraceError(f"{where} is redirected to {to}: that is another url")
        request_id = response.headers.get("X-Request-Id")
        refused = refusal(status, response.content, where=where, request_id=request_id)
        wait = _seconds(response, "Retry-After")
        if isinstance(refused, Unavailable) and wait is not None:
            refused.retry_after_seconds = max(1, round(wait))
        if status == _TOO_MANY or (status >= _SERVER_ERROR and call.repeatable):
            raise CallFailed(refused, wait=wait)
        raise refused

    def _answer(self, response: ReceivedAnswer) -> RawAnswer:
        poll_after = _seconds(response, POLL_HEADER)
        return RawAnswer(
            response.status_code,
            response.content,
            self._codec,
            1.0 if poll_after is None else poll_after,
            self._over_network,
        )


def refusal(
    status: int, body: bytes, *, where: str, request_id: str | None = None
) -> HeadraceError:
    """The error that a refused request, *where*, is answered with; *request_id* is its header's."""
    problem = problem_of(body)
    code = problem.get("code")
    detail = problem.get("detail") or problem.get("message") or problem.get("Message")
    if not detail:
        detail = f"{where} was answered with {status}"
        if status == _NOT_FOUND:
            detail += ", by something that is not Headrace's API: is the URL the service's?"
    detail = str(detail)
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(status, HeadraceError)
    if kind is Unavailable or status >= _SERVER_ERROR:
        error: HeadraceError = Unavailable(detail)
    else:
        error = kind(detail, errors=list(_fields(problem.get("errors"))))
    named = problem.get("request_id")
    error.request_id = named if isinstance(named, str) else request_id
    if isinstance(code, str) and code != error.code:
        error.answered_code = code
    return error


def problem_of(body: bytes) -> dict[str, Any]:
    """The fields of the problem that *body* holds; none where it holds something else."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fields(named: object) -> Iterator[FieldError]:
    for entry in named if isinstance(named, list) else ():
        if isinstance(entry, dict):
            yield FieldError(str(entry.get("field", "")), str(entry.get("message", "")))


def _seconds(response: ReceivedAnswer, header: str) -> float | None:
    """The seconds that *header* names; dates are not sent by API Gateway or us."""
    named = response.headers.get(header)
    if named is None:  # as nearly always
        return None
    try:
        return max(0.0, float(named))
    except ValueError:
        return None
