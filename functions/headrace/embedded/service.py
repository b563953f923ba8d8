"""The services that this process has open, each once however many clients ask for it."""

import atexit
import threading
from dataclasses import dataclass
from typing import Final

from headrace.client.address import FileAddress, TablesAddress
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.sqlite import SqliteStore

ADMIN_KEY: Final = "embedded"
"""Who can open the file is admin; no socket takes this key."""

_POLL_AFTER_SECONDS: Final = 0.02  # looking costs nothing here
_SETTINGS_TTL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class EmbeddedService:
    """The use cases over one store."""

    use: UseCases
    store: SqliteStore


_OPEN: Final[dict[str, EmbeddedService]] = {}
_LOCK: Final = threading.Lock()


def opened(address: FileAddress | TablesAddress) -> EmbeddedService:
    """Return the service at *address*, opened if it is not yet.  Raises Unavailable."""
    if isinstance(address, TablesAddress):
        raise NotImplementedError
    with _LOCK:
        found = _OPEN.get(address.path)
        if found is None:
            store = SqliteStore(address.path)
            settings = Settings(
                admin_key=ADMIN_KEY,
                poll_after_seconds=_POLL_AFTER_SECONDS,
                settings_ttl_seconds=_SETTINGS_TTL_SECONDS,
            )
            found = _OPEN[address.path] = EmbeddedService(build(settings, store), store)
        return found


@atexit.register
def close_all() -> None:
    """Close what is open."""
    with _LOCK:
        for service in _OPEN.values():
            service.store.close()
        _OPEN.clear()
