"""The one door from the client to the service within this process; see ``headrace.embedded``.

Nothing of the service is imported before a file, or a deployment's tables, are asked for.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from headrace.client.address import Address, FileAddress, HttpAddress, TablesAddress
from headrace.domain.errors import InvalidRequest

if TYPE_CHECKING:
    import httpx2 as httpx

_NEEDED: Final = ("aws_lambda_powertools", "cronsim", "pydantic")
"""What the service stands on and a client of HTTP does not: the extra `file`."""

_NEEDED_FOR_TABLES: Final = (*_NEEDED, "botocore")
"""The same for a deployment's tables: the extra `dynamodb`."""


def transport_to(address: Address) -> "httpx.BaseTransport | None":
    """Return the transport in place of the network; None where the network is.

    Raises InvalidRequest where the service's libraries are not installed.
    """
    if isinstance(address, HttpAddress):
        return None
    _need_packages(address)
    from headrace.embedded.transport import EmbeddedTransport  # noqa: PLC0415  see above

    return EmbeddedTransport(address)


def async_transport_to(address: Address) -> "httpx.AsyncBaseTransport | None":
    """Return the same for an event loop.  Raises InvalidRequest likewise."""
    if isinstance(address, HttpAddress):
        return None
    _need_packages(address)
    from headrace.embedded.transport import AsyncEmbeddedTransport  # noqa: PLC0415  see above

    return AsyncEmbeddedTransport(address)


class FileCare(Protocol):
    """What a file needs now and then, beside the API."""

    def backup(self, path: str) -> None:
        """Write a copy to *path*.  Raises Conflict where there is a file already, Unavailable."""

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


def timers_of(address: Address) -> AbstractContextManager[object]:
    """Return a block beside which the timers of a file run; elsewhere others run them."""
    if not isinstance(address, FileAddress):
        return nullcontext()
    from headrace.embedded.service import opened  # noqa: PLC0415  see above
    from headrace.embedded.timers import FileTimers  # noqa: PLC0415  see above

    service = opened(address)
    return FileTimers(service, now=service.use.now)


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
