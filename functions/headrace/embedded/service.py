"""The services that this process has open, each once however many clients ask for it."""

import atexit
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.client.address import FileAddress, TablesAddress
from headrace.embedded.tables import over_tables
from headrace.runtime.wiring import Settings, UseCases, build
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore

ADMIN_KEY: Final = "embedded"
"""Who can open the file, or use the tables, is admin; no socket takes this key."""

_POLL_AFTER_SECONDS: Final = 0.02  # looking costs nothing here
_SETTINGS_TTL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class EmbeddedService:
    """The use cases over one store."""

    use: UseCases
    store: Store
    close: Callable[[], None] = lambda: None


_OPEN: Final[dict[FileAddress | TablesAddress, EmbeddedService]] = {}
_LOCK: Final = threading.Lock()


def opened(address: FileAddress | TablesAddress) -> EmbeddedService:
    """Return the service at *address*, opened if it is not yet.

    Raises Unavailable; of tables also what `over_tables` does.
    """
    with _LOCK:
        found = _OPEN.get(address)
        if found is None:
            found = _OPEN[address] = _open(address)
        return found


def _open(address: FileAddress | TablesAddress) -> EmbeddedService:
    if isinstance(address, TablesAddress):
        return EmbeddedService(*over_tables(address, admin_key=ADMIN_KEY))
    store = SqliteStore(address.path)
    settings = Settings(
        admin_key=ADMIN_KEY,
        poll_after_seconds=_POLL_AFTER_SECONDS,
        settings_ttl_seconds=_SETTINGS_TTL_SECONDS,
    )
    return EmbeddedService(build(settings, store), store, store.close)


@atexit.register
def close_all() -> None:
    """Close what is open."""
    with _LOCK:
        for service in _OPEN.values():
            service.close()
        _OPEN.clear()


def _begin_anew() -> None:
    """In the child of a fork, forget tables: their connections are those of the parent."""
    for address in [one for one in _OPEN if isinstance(one, TablesAddress)]:
        del _OPEN[address]
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_begin_anew
    )
