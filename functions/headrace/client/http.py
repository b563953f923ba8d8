"""HTTP's side of a call: requests made of calls, answers read.  The clients do the sending.

A call is repeated with growing, random waits (or the Retry-After that the service names) after
429, 5xx and lost connections.  One that must not happen twice carries a key by which the service
knows a repeat; where it has none, it is repeated only if it surely did not happen.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

import httpx2 as httpx
import msgspec
import tenacity

from headrace.client.address import HttpAddress
from headrace.client.calls import (
    ATTEMPT_HEADER,
    KEY_HEADER,
    UNITS_HEADER,
    ApiCall,
    CallFailed,
    RawAnswer,
    Usage,
)
from headrace.client.codec import Codec
from headrace.client.embedding import async_transport_to, transport_to
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

T = TypeVar("T")
Sleep: TypeAlias = Callable[[float], None]
AsyncSleep: TypeAlias = Callable[[float], Awaitable[None]]
Connections: Final = httpx.Client
AsyncConnections: Final = httpx.AsyncClient
Retrying: Final = tenacity.Retrying
AsyncRetrying: Final = tenacity.AsyncRetrying

_NO_HOST: Final = "http://embedded"
"""What requests that no socket sees are addressed to."""

_LONGEST_WAIT: Final = 10.0  # seconds between two tries
_CONNECT_WITHIN: Final = 5.0
_REDIRECTED: Final = 300
_REFUSED: Final = 400
_SERVER_ERROR: Final = 500
_TOO_MANY: Final = 429
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=100)
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

_spread: Final = tenacity.wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT)


def _wait(state: tenacity.RetryCallState) -> float:
    """Wait as long as the service says, else at random up to twice as long each time."""
    error = state.outcome.exception() if state.outcome is not None else None
    named = error.wait if isinstance(error, CallFailed) else None
    if named is None:
        return _spread(state)
    return min(named, _LONGEST_WAIT) + _spread(state) / 10


class HttpCalls:
    """Calls of one client as requests and answers, and what they have cost."""

    def __init__(self, settings: ClientSettings, codec: Codec, *, retries: int) -> None:
        """*retries* are tries after the first."""
        self._settings, self._codec = settings, codec
        self._base = settings.url if isinstance(settings.address, HttpAddress) else _NO_HOST
        self.usage = Usage()
        self.connecting: dict[str, Any] = {
            "headers": {
                "Authorization": f"Bearer {settings.key}",
                "Accept": "application/json",
                "User-Agent": "headrace-python",
            },
            "timeout": timeout_of(settings),
            "limits": _LIMITS,
        }
        self.retrying: dict[str, Any] = {
            "retry": tenacity.retry_if_exception_type(CallFailed),
            "wait": _wait,
            "stop": tenacity.stop_after_attempt(retries + 1),
            "reraise": True,
        }

    def way(self, given: httpx.BaseTransport | None) -> httpx.BaseTransport | None:
        """What requests go through in place of the network, if anything does."""
        return given or transport_to(self._settings.address)

    def async_way(self, given: httpx.AsyncBaseTransport | None) -> httpx.AsyncBaseTransport | None:
        """The same for an event loop."""
        return given or async_transport_to(self._settings.address)

    def request(
        self,
        connections: httpx.Client | httpx.AsyncClient,
        call: ApiCall[T],
        timeout: float | None,
    ) -> httpx.Request:
        """The request that *call* is; *timeout* takes the place of the one in the settings."""
        body = None if call.body is None else call.body(self._codec)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if call.key is not None:
            headers[KEY_HEADER] = call.key
        if call.attempt is not None:
            headers[ATTEMPT_HEADER] = str(call.attempt)
        return connections.build_request(
            call.method,
            self._base + call.path,
            params=call.params or None,
            content=body,
            headers=headers,
            timeout=timeout_of(self._settings) if timeout is None else timeout,
        )

    @contextmanager
    def sending(self, call: ApiCall[T], request: httpx.Request) -> Iterator[None]:
        """One try of *call*: raises CallFailed or Unavailable for what httpx raises.

        The next try of *request* carries the next number, if tries of it are counted.
        """
        try:
            yield
        except httpx.RequestError as error:
            why = str(error) or type(error).__name__
            unavailable = Unavailable(f"{call.method} {call.path} got no answer: {why}")
            if call.repeatable or isinstance(error, _NEVER_SENT):
                raise CallFailed(unavailable) from None  # it says all that is known
            raise unavailable from None
        finally:
            if ATTEMPT_HEADER in request.headers:
                request.headers[ATTEMPT_HEADER] = str(int(request.headers[ATTEMPT_HEADER]) + 1)

    def read(self, call: ApiCall[T], response: httpx.Response) -> T:
        """What *call* is answered.  Raises CallFailed, or an error of headrace.domain.errors."""
        self.usage.add(response.headers.get(UNITS_HEADER))
        status, where = response.status_code, f"{call.method} {call.path}"
        if _REDIRECTED <= status < _REFUSED:
            to = response.headers.get("Location", "nowhere")
            raise HeadraceError(f"{where} is redirected to {to}: that is another url")
        if status < _REFUSED:
            try:
                return call.read(RawAnswer(status, response.content, self._codec))
            except (msgspec.DecodeError, RecursionError) as error:
                raise HeadraceError(
                    f"{where}: the answer is none of Headrace's: {error}"
                ) from error
        request_id = response.headers.get("X-Request-Id")
        refused = refusal(status, response.content, where=where, request_id=request_id)
        wait = _retry_after(response)
        if isinstance(refused, Unavailable) and wait is not None:
            refused.retry_after_seconds = max(1, round(wait))
        if status == _TOO_MANY or (status >= _SERVER_ERROR and call.repeatable):
            raise CallFailed(refused, wait=wait)
        raise refused


def timeout_of(settings: ClientSettings) -> httpx.Timeout:
    """How long one try may take, and how much of that until it is connected."""
    return httpx.Timeout(settings.timeout, connect=min(_CONNECT_WITHIN, settings.timeout))


def refusal(
    status: int, body: bytes, *, where: str, request_id: str | None = None
) -> HeadraceError:
    """The error that a refused request, *where*, is answered with; *request_id* is its header's."""
    problem = problem_of(body)
    code = problem.get("code")
    detail = problem.get("detail") or problem.get("message") or problem.get("Message")
    detail = str(detail or f"{where} was answered with {status}")
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


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds that Retry-After names; dates are not sent by API Gateway or us."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return None
