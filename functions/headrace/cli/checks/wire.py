"""The connection of a smoke test: one try for each request, and every answer kept with its headers.

The SDK repeats what fails and keeps no headers; here a first failure is what one wants to see.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import httpx2 as httpx
import msgspec

from headrace.client.calls import (
    ATTEMPT_HEADER,
    KEY_HEADER,
    UNITS_HEADER,
    ApiCall,
    Consumed,
    PagedCall,
    RawAnswer,
    Usage,
)
from headrace.client.codec import PLAIN
from headrace.client.http import problem_of, refusal
from headrace.client.settings import ClientSettings
from headrace.client.through_httpx import timeout_of
from headrace.domain.errors import Unavailable

T = TypeVar("T")

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
_REDIRECTED: Final = range(300, 400)
_REFUSED: Final = 400
_PAGES: Final = 100


class Wrong(Exception):
    """The deployment answered, but not as it should; the text says what came."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer.

    ``path`` is without the address of the service and without the query; ``status`` is None where
    nothing came back.
    """

    method: str
    path: str
    status: int | None
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    body: bytes = field(default=b"", repr=False)

    @property
    def problem(self) -> dict[str, Any]:
        """The fields of the problem that came back; empty where none did."""
        return problem_of(self.body)

    @property
    def code(self) -> str | None:
        """The code of the problem that came back."""
        code = self.problem.get("code")
        return code if isinstance(code, str) else None

    @property
    def request_id(self) -> str | None:
        """The id under which the service's logs know the request."""
        return self.headers.get("X-Request-Id")

    @property
    def content_type(self) -> str:
        """The media type of the body, without its parameters."""
        return str(self.headers.get("Content-Type", "")).partition(";")[0].strip()


class Wire:
    """Sends requests to one deployment, one after the other, and keeps every exchange."""

    def __init__(
        self, settings: ClientSettings, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        """Prepare connections; *transport* takes the place of the network, in tests."""
        self.settings = settings
        self.exchanges: list[Exchange] = []
        self._units = Usage()
        self._http = httpx.Client(
            headers={"User-Agent": "headrace-smoke"},
            timeout=timeout_of(settings.timeout),
            transport=transport,
        )

    def __enter__(self) -> Self:
        """Give the wire; leaving the block closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def consumed(self) -> Consumed:
        """The cost of all requests together, by their answers' headers."""
        return self._units.so_far

    @property
    def last(self) -> Exchange:
        """The latest exchange.  There must have been one."""
        return self.exchanges[-1]

    def send(
        self,
        call: ApiCall[T],
        *,
        key: str | None = None,
        repeat: str | None = None,
        anonymous: bool = False,
    ) -> T:
        """Send a call of the SDK once, and read its answer.

        *key* takes the place of the one in the settings, *repeat* that of the idempotency key, for
        a request that goes out twice; *anonymous* sends no key.
        Raises the errors of headrace.domain.errors, and Wrong for an answer that cannot be read.
        """
        headers = {}
        if repeat or call.key:
            headers[KEY_HEADER] = repeat or str(call.key)
        if call.attempt is not None and repeat is None:
            headers[ATTEMPT_HEADER] = str(call.attempt)
        body = None if call.body is None else call.body(PLAIN)
        seen = self.ask(
            call.method,
            call.path,
            params=call.params,
            body=body,
            headers=headers,
            key=key,
            anonymous=anonymous,
        )
        status = self.accepted(seen)
        try:
            return call.read(RawAnswer(status, seen.body, PLAIN))
        except (msgspec.DecodeError, RecursionError, IndexError) as error:
            raise Wrong(f"the answer is none of Headrace's: {error}") from None

    def each(self, pages: PagedCall[T]) -> Iterator[T]:
        """Go through a list, page after page.  Raises Wrong for one that has no end."""
        cursor: str | None = None
        for _ in range(_PAGES):
            page = self.send(pages.at(cursor))
            yield from page.entries
            cursor = page.cursor
            if cursor is None:
                return
        raise Wrong(f"the list goes on after {_PAGES} pages")

    def accepted(self, seen: Exchange) -> int:
        """Return the status of an answer that grants the request.  Raises as send() does."""
        if seen.status is None or seen.status >= _REFUSED:
            raise refusal(seen.status or 0, seen.body, where=f"{seen.method} {seen.path}")
        if seen.status in _REDIRECTED:
            to = seen.headers.get("Location", "nowhere")
            raise Wrong(f"redirects to {to}: is that the address to use?")
        return seen.status

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Any = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        key: str | None = None,
        anonymous: bool = False,
    ) -> Exchange:
        """Send a request once, whatever comes back; *anonymous* sends no key.

        Raises Unavailable where nothing comes back.
        """
        sent = {} if body is None else {"Content-Type": JSON}
        if not anonymous:
            sent["Authorization"] = f"Bearer {key or self.settings.key}"
        request = self._http.build_request(
            method,
            self.settings.url + path,
            params=params or None,
            content=body,
            headers={**sent, **(headers or {})},
        )
        try:
            answer = self._http.send(request)
        except httpx.RequestError as error:
            self.exchanges.append(Exchange(method, path, None))
            text = str(error) or type(error).__name__
            raise Unavailable(f"{method} {path} got no answer: {text}") from None
        self._http.cookies.clear()  # the console's are sent by hand, and looked at
        self._units.add(answer.headers.get(UNITS_HEADER))
        seen = Exchange(method, path, answer.status_code, answer.headers, answer.content)
        self.exchanges.append(seen)
        return seen
