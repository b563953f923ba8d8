"""The one door from the client to the service within this process; see ``headrace.embedded``.

Nothing of the service is imported before a file, or a deployment's tables, are asked for.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol, Self

from headrace.client.address import Address, FileAddress, TablesAddress
from headrace.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.embedded.transport import AsyncEmbeddedConnections, EmbeddedConnections

_NEEDED: Final = ("aws_lambda_powertools", "cronsim", "pydantic")
"""What the service stands on and a client of HTTP does not: the extra `file`."""

_NEEDED_FOR_TABLES: Final = (*_NEEDED, "botocore")
"""The same for a deployment's tables: the extra `dynamodb`."""


def connections_to(address: FileAddress | TablesAddress) -> "EmbeddedConnections":
    """Return what requests to the service in this process go through.

    Raises InvalidRequest where the service's libraries are not installed.
    """
    _need_packages(address)
    from headrace.embedded.transport import EmbeddedConnections  # noqa: PLC0415  see above

    return EmbeddedConnections(address)


def async_connections_to(address: FileAddress | TablesAddress) -> "AsyncEmbeddedConnections":
    """Return the same for an event loop.  Raises InvalidRequest likewise."""
    _need_packages(address)
    from headrace.embedded.transport import AsyncEmbeddedConnections  # noqa: PLC0415  see above

    return AsyncEmbeddedConnections(address)


class FileCare(Protocol):
    """What a file needs now and then, beside the API."""

    def backup(self, path: str) -> None:
        """Write a copy to *path*.  Raises Conflict where there is a file already, Unavailable."""

    def try_write(self) -> None:
        """Write something and remove it again.  Raises Unavailable where that cannot be done."""

    def check(self) -> Sequence[str]:
        """Return a line for each damage of the file, none where it is whole.

        Raises Unavailable.
        """


def care_of(address: FileAddress) -> FileCare:
    """Return the care of a file.  Raises Unavailable where it cannot be opened."""
    _need_packages(address)
    from headrace.embedded.service import opened  # noqa: PLC0415  see above
    from headrace.embedded.timers import file_store  # noqa: PLC0415  see above

    return file_store(opened(address))


def stack_parameters(address: TablesAddress) -> Mapping[str, str]:
    """Return what a deployment's stack was deployed with, by the template's names.

    Raises InvalidRequest where there is no such stack, Unauthenticated, Forbidden, Unavailable.
    """
    _need_packages(address)
    from headrace.embedded.tables import parameters_of  # noqa: PLC0415  see above

    return parameters_of(address)


class TimersBeside(Protocol):
    """A block beside which timers run, or others run them."""

    def __enter__(self) -> object:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End."""
        ...

    def catch_up(self) -> bool:
        """Count what was written until now; tell whether that is done here.  Raises Unavailable."""
        ...


class TimersElsewhere:
    """Others run them: nothing is done here."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End."""

    def catch_up(self) -> bool:
        """Count nothing."""
        return False


def timers_of(address: Address) -> TimersBeside:
    """Return a block beside which the timers of a file run; elsewhere others run them."""
    if not isinstance(address, FileAddress):
        return TimersElsewhere()
    from headrace.embedded.service import opened  # noqa: PLC0415  see above
    from headrace.embedded.timers import EmbeddedTimers  # noqa: PLC0415  see above

    service = opened(address)
    return EmbeddedTimers(service, now=service.use.now)


def _need_packages(address: Address) -> None:
    tables = isinstance(address, TablesAddress)
    needed, extra = (_NEEDED_FOR_TABLES, "dynamodb") if tables else (_NEEDED, "file")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise InvalidRequest.of(
            "url",
            "names no HTTP service, and a service in this process needs Python packages that are"
            f" not here ({', '.join(missing)}): pip install 'headrace[{extra}]'",
        )
