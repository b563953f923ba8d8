"""The services that this process has open, each once however many clients ask for it."""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headrace.client.address import FileAddress, TablesAddress
from headrace.domain.access import covers
from headrace.embedded.tables import over_tables
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build, dynamo_store, objects_of
from headrace.store.base import Store
from headrace.store.lake import lake_at
from headrace.store.objects import objects_beside
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.connections import MEMORY

ADMIN_KEY: Final = "embedded"
"""Who can open the file, or use the tables, is admin; no socket takes this key."""

LAKE: Final = "lake"
"""The folder beside the file that is its lake, if it is there and no other place is named."""

_POLL_AFTER_SECONDS: Final = 0.02  # looking costs nothing here
_SETTINGS_TTL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class EmbeddedService:
    """The use cases over one file, or over tables."""

    use: Service
    store: Store
    close: Callable[[], None] = lambda: None


def service_on(path: str, settings: Settings) -> EmbeddedService:
    """Return a service on the file at *path*, with its lake if it has one.  Raises Unavailable."""
    beside = Path(path).parent / LAKE
    lake = settings.lake or (str(beside) if beside.is_dir() else None)
    patterns = settings.lake_payloads if lake else ()
    store = SqliteStore(path, keeps=lambda queue: _any(patterns, queue))
    use = build(
        settings, store, lake=lake_at(lake) if lake else None, objects=objects_beside(path, MEMORY)
    )
    return EmbeddedService(use, store, store.close)


def service_at(path: str | None, settings: Settings) -> EmbeddedService:
    """Return a service on the file at *path*; None: on the DynamoDB tables that *settings* name.

    Raises Unavailable.
    """
    if path is not None:
        return service_on(path, settings)
    store = dynamo_store(settings)
    lake = lake_at(settings.lake) if settings.lake else None
    return EmbeddedService(build(settings, store, lake=lake, objects=objects_of(settings)), store)


def _any(patterns: Sequence[str], queue: str) -> bool:
    return any(covers(pattern, queue) for pattern in patterns)


OPEN: Final[dict[FileAddress | TablesAddress, EmbeddedService]] = {}
_LOCK: Final = threading.Lock()


def opened(address: FileAddress | TablesAddress) -> EmbeddedService:
    """Return the service at *address*, opened if it is not yet.

    Raises Unavailable; of tables also what `over_tables` does.
    """
    with _LOCK:
        found = OPEN.get(address)
        if found is None:
            found = OPEN[address] = _open(address)
        return found


def _open(address: FileAddress | TablesAddress) -> EmbeddedService:
    if isinstance(address, TablesAddress):
        return EmbeddedService(*over_tables(address, admin_key=ADMIN_KEY))
    settings = replace(
        Settings.from_env(),
        admin_key=ADMIN_KEY,
        poll_after_seconds=_POLL_AFTER_SECONDS,
        settings_ttl_seconds=_SETTINGS_TTL_SECONDS,
    )
    return service_on(address.path, settings)


@atexit.register
def close_all() -> None:
    """Close what is open."""
    with _LOCK:
        for service in OPEN.values():
            service.close()
        OPEN.clear()


def _begin_anew() -> None:
    """In the child of a fork, forget tables: their connections are those of the parent."""
    for address in [one for one in OPEN if isinstance(one, TablesAddress)]:
        del OPEN[address]
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_begin_anew
    )
