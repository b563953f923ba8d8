"""The connections of a client: to the network, to a test's transport, or to this process."""

from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Protocol

CONNECT_WITHIN: Final = 5.0
"""Seconds until there is a connection, or less where a try may take less."""

MOST_CONNECTIONS: Final = 100


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
