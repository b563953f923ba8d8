"""The one door from the client to the service within this process; see ``headrace.embedded``.

Nothing of the service is imported before a file, or a deployment's tables, are asked for.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from headrace.client.address import Address, FileAddress, HttpAddress

if TYPE_CHECKING:
    import httpx2 as httpx


def transport_to(address: Address) -> "httpx.BaseTransport | None":
    """Return what takes the place of the network; None where the network is."""
    if isinstance(address, HttpAddress):
        return None
    from headrace.embedded.transport import EmbeddedTransport  # noqa: PLC0415  see above

    return EmbeddedTransport(address)


def async_transport_to(address: Address) -> "httpx.AsyncBaseTransport | None":
    """Return the same for an event loop."""
    if isinstance(address, HttpAddress):
        return None
    from headrace.embedded.transport import AsyncEmbeddedTransport  # noqa: PLC0415  see above

    return AsyncEmbeddedTransport(address)


def timers_of(address: Address) -> AbstractContextManager[object]:
    """Return a block beside which the timers of a file run; elsewhere others run them."""
    if not isinstance(address, FileAddress):
        return nullcontext()
    from headrace.embedded.service import opened  # noqa: PLC0415  see above
    from headrace.embedded.timers import Timers  # noqa: PLC0415  see above

    service = opened(address)
    return Timers(service, now=service.use.now)
