"""The only imports of the client from the service in this process; see ``headrace.embedded``.

The service is imported only when a file, or the tables of a deployment, are used.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, Self

from headrace.client.address import Address, FileAddress, TablesAddress
from headrace.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.embedded.timers import EmbeddedTimers
    from headrace.embedded.transport import AsyncEmbeddedConnections, EmbeddedConnections


def connections_to(address: FileAddress | TablesAddress) -> "EmbeddedConnections":
    """Return the connections to the service in this process.

    Raises InvalidRequest for tables of AWS without the extra `dynamodb`.
    """
    _need_packages(address)
    from headrace.embedded.transport import EmbeddedConnections  # noqa: PLC0415  see above

    return EmbeddedConnections(address)


def async_connections_to(address: FileAddress | TablesAddress) -> "AsyncEmbeddedConnections":
    """Return the connections for an event loop. Raises InvalidRequest as connections_to()."""
    _need_packages(address)
    from headrace.embedded.transport import AsyncEmbeddedConnections  # noqa: PLC0415  see above

    return AsyncEmbeddedConnections(address)


class FileCare(Protocol):
    """The maintenance of a file, beside the API."""

    def backup(self, path: str) -> None:
        """Write a copy to *path*. Raises Conflict if the file exists, Unavailable."""

    def try_write(self) -> None:
        """Write and remove a record. Raises Unavailable if that fails."""

    def check(self) -> Sequence[str]:
        """Return a line for each damage of the file, none if it is intact.

        Raises Unavailable.
        """


def care_of(address: FileAddress) -> FileCare:
    """Return the maintenance of a file. Raises Unavailable if it cannot be opened."""
    from headrace.embedded.service import opened  # noqa: PLC0415  see above
    from headrace.embedded.timers import file_store  # noqa: PLC0415  see above

    return file_store(opened(address))


class TimersElsewhere:
    """A block for services whose timers run in another process."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def catch_up(self) -> bool:
        """Count nothing."""
        return False


def timers_of(address: Address) -> "EmbeddedTimers | TimersElsewhere":
    """Return a block during which the timers of a file run; other services have their own."""
    if not isinstance(address, FileAddress):
        return TimersElsewhere()
    from headrace.embedded.service import opened  # noqa: PLC0415  see above
    from headrace.embedded.timers import EmbeddedTimers  # noqa: PLC0415  see above

    service = opened(address)
    return EmbeddedTimers(service, now=service.use.now)


def _need_packages(address: Address) -> None:
    """Raise InvalidRequest if *address* names tables and botocore is not installed."""
    if isinstance(address, TablesAddress) and find_spec("botocore") is None:
        raise InvalidRequest.of(
            "url", "names tables of AWS, which need botocore: pip install 'headrace[dynamodb]'"
        )
