"""Sending calls: over one pool of connections, retried after failures, errors as our own classes.

A call is repeated with growing, random waits (or the Retry-After that the service names) after
429, 5xx and lost connections.  One that must not happen twice carries a key by which the service
knows a repeat; where it has none, it is repeated only if it surely did not happen.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

import httpx2 as httpx
import msgspec
import tenacity

from headrace.client.call import ApiCall, RawAnswer
from headrace.client.codec import Codec
from headrace.client.consumed import HEADER, Usage
from headrace.client.refusal import refusal
from headrace.client.settings import RETRIES, ClientSettings
from headrace.domain.errors import HeadraceError, Unavailable

T = TypeVar("T")
Sleep: TypeAlias = Callable[[float], None]
AsyncSleep: TypeAlias = Callable[[float], Awaitable[None]]

_LONGEST_WAIT: Final = 10.0  # seconds between two tries
_CONNECT_WITHIN: Final = 5.0
_REDIRECTED: Final = 300
_REFUSED: Final = 400
_SERVER_ERROR: Final = 500
_TOO_MANY: Final = 429
KEY_HEADER: Final = "Idempotency-Key"
ATTEMPT_HEADER: Final = "X-Attempt"
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=100)


class _CallError(Exception):
    """A try that failed and may be repeated; ``error`` is what is raised in the end."""

    def __init__(self, error: HeadraceError, *, wait: float | None = None) -> None:
        super().__init__(error.detail)
        self.error = error
        self.wait = wait


_spread: Final = tenacity.wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT)


def _wait(state: tenacity.RetryCallState) -> float:
    """Wait as long as the service says, else at random up to twice as long each time."""
    error = state.outcome.exception() if state.outcome is not None else None
    named = error.wait if isinstance(error, _CallError) else None
    if named is None:
        return _spread(state)
    return min(named, _LONGEST_WAIT) + _spread(state) / 10


class Transport:
    """Sends calls and waits for their answers.  Threads may share it."""

    def __init__(
        self,
        settings: ClientSettings,
        codec: Codec,
        *,
        retries: int = RETRIES,
        transport: httpx.BaseTransport | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        """Prepare connections; none is opened yet.  *retries* are tries after the first."""
        self._settings, self._codec = settings, codec
        self.usage = Usage()
        self._given = transport
        self._http, self._process = self._connections(), os.getpid()
        self._again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_CallError),
            wait=_wait,
            stop=tenacity.stop_after_attempt(retries + 1),
            sleep=sleep,
            reraise=True,
        )

    def send(self, call: ApiCall[T], *, again: bool = True, timeout: float | None = None) -> T:
        """Send *call* and return its decoded answer.  Raises the errors of headrace.domain.errors.

        *again* False leaves it to the caller to repeat what did not work; *timeout* (seconds)
        takes the place of the one in the settings.
        """
        if os.getpid() != self._process:
            # A fork has the connections of its parent, and would be given its answers.
            self._http, self._process = self._connections(), os.getpid()
        request = _request(self._http, self._settings, self._codec, call, timeout)
        try:
            if not again:
                return self._once(call, request)
            answered: T = self._again(self._once, call, request)
            return answered
        except _CallError as failure:
            raise failure.error from None

    def _connections(self) -> httpx.Client:
        return httpx.Client(
            headers=_headers(self._settings),
            timeout=_timeout(self._settings),
            limits=_LIMITS,
            transport=self._given,
        )

    def _once(self, call: ApiCall[T], request: httpx.Request) -> T:
        try:
            response = self._http.send(request)
        except httpx.RequestError as error:
            raise _lost(call, error) from None  # it says all that is known
        finally:
            _count(request)
        self.usage.add(response.headers.get(HEADER))
        return _read(call, response, self._codec)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncTransport:
    """Sends calls without holding up the event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        codec: Codec,
        *,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: AsyncSleep = asyncio.sleep,
    ) -> None:
        """Prepare connections; none is opened yet.  *retries* are tries after the first."""
        self._settings, self._codec = settings, codec
        self.usage = Usage()
        self._http = httpx.AsyncClient(
            headers=_headers(settings),
            timeout=_timeout(settings),
            limits=_LIMITS,
            transport=transport,
        )
        self._again = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_CallError),
            wait=_wait,
            stop=tenacity.stop_after_attempt(retries + 1),
            sleep=sleep,
            reraise=True,
        )

    async def send(
        self,
        call: ApiCall[T],
        *,
        again: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109 (of the request, as the synchronous twin)
    ) -> T:
        """Send *call* and return its decoded answer; takes and raises as ``Transport.send``."""
        request = _request(self._http, self._settings, self._codec, call, timeout)
        try:
            if not again:
                return await self._once(call, request)
            return await self._again.copy()(self._once, call, request)  # it keeps state of one call
        except _CallError as failure:
            raise failure.error from None

    async def _once(self, call: ApiCall[T], request: httpx.Request) -> T:
        try:
            response = await self._http.send(request)
        except httpx.RequestError as error:
            raise _lost(call, error) from None  # it says all that is known
        finally:
            _count(request)
        self.usage.add(response.headers.get(HEADER))
        return _read(call, response, self._codec)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _headers(settings: ClientSettings) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {settings.key}",
        "Accept": "application/json",
        "User-Agent": "headrace-python",
    }


def _timeout(settings: ClientSettings) -> httpx.Timeout:
    return httpx.Timeout(settings.timeout, connect=min(_CONNECT_WITHIN, settings.timeout))


def _request(
    http: httpx.Client | httpx.AsyncClient,
    settings: ClientSettings,
    codec: Codec,
    call: ApiCall[T],
    timeout: float | None,
) -> httpx.Request:
    body = None if call.body is None else call.body(codec)
    headers = {} if body is None else {"Content-Type": "application/json"}
    if call.key is not None:
        headers[KEY_HEADER] = call.key
    if call.attempt is not None:
        headers[ATTEMPT_HEADER] = str(call.attempt)
    return http.build_request(
        call.method,
        settings.url + call.path,
        params=call.params or None,
        content=body,
        headers=headers,
        timeout=_timeout(settings) if timeout is None else timeout,
    )


def _count(request: httpx.Request) -> None:
    """Count the attempt up in the next try of *request*, if this one is counted."""
    if ATTEMPT_HEADER in request.headers:
        request.headers[ATTEMPT_HEADER] = str(int(request.headers[ATTEMPT_HEADER]) + 1)


def _lost(call: ApiCall[T], error: httpx.RequestError) -> Exception:
    unavailable = Unavailable(f"{call.method} {call.path} got no answer: {_described(error)}")
    if call.repeatable or isinstance(error, _NEVER_SENT):
        return _CallError(unavailable)
    return unavailable


def _described(error: httpx.RequestError) -> str:
    return str(error) or type(error).__name__


def _read(call: ApiCall[T], response: httpx.Response, codec: Codec) -> T:
    status = response.status_code
    if _REDIRECTED <= status < _REFUSED:
        to = response.headers.get("Location", "nowhere")
        raise HeadraceError(f"{call.method} {call.path} is redirected to {to}: that is another url")
    if status < _REFUSED:
        try:
            return call.read(RawAnswer(status, response.content, codec))
        except (msgspec.DecodeError, RecursionError) as error:
            raise HeadraceError(
                f"{call.method} {call.path}: the answer is none of Headrace's: {error}"
            ) from error
    refused = refusal(status, response.content, where=f"{call.method} {call.path}")
    wait = _retry_after(response)
    if isinstance(refused, Unavailable) and wait is not None:
        refused.retry_after_seconds = max(1, round(wait))
    if status == _TOO_MANY or (status >= _SERVER_ERROR and call.repeatable):
        raise _CallError(refused, wait=wait)
    raise refused


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds that Retry-After names; dates are not sent by API Gateway or us."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return None
