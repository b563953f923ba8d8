"""The composition root: clients made once, use cases built over them.

The only place that reads the clock.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

from headrace.domain.errors import Unavailable
from headrace.domain.offload import Lake, ObjectStore
from headrace.runtime.service import Service
from headrace.runtime.settings import Settings
from headrace.store.base import Store
from headrace.store.call_scope import during
from headrace.store.lake import lake_at

if TYPE_CHECKING:
    from headrace.store.dynamo import DynamoStore
    from headrace.store.dynamo.stream import TableStream

__all__ = [
    "Settings",
    "build",
    "current_service",
    "dynamo_store",
    "objects_of",
    "prepare",
    "table_stream",
    "using",
    "utc_now",
]


def utc_now() -> datetime:
    """Return the service's clock: aware, UTC, microseconds."""
    return datetime.now(UTC)


def build(
    settings: Settings,
    store: Store,
    *,
    now: Callable[[], datetime] = utc_now,
    lake: Lake | None = None,
    objects: ObjectStore | None = None,
    random: Random | None = None,
) -> Service:
    """Return the use cases over *store*.

    What it records of tasks goes to *lake* too, and what was is read from there.  Large texts of
    tasks are kept in *objects*, if the settings say from which size on.
    """
    return Service(settings, tables_of(settings, store, objects), now, lake, objects, random)


def tables_of(settings: Settings, store: Store, objects: ObjectStore | None) -> Store:
    """Return *store* with offloaded texts."""
    if objects is None or (not settings.payload_offload_bytes and objects.unused()):
        return store
    from headrace.store.objects import Offloading  # noqa: PLC0415  most functions start without

    return Offloading(store, objects, settings.payload_offload_bytes).store


def objects_of(settings: Settings) -> "ObjectStore | None":
    """Return where the settings say that large texts are kept."""
    if settings.payloads is None:
        return None
    from headrace.store.objects import objects_at  # noqa: PLC0415  AWS only, and a file needs none of it

    return objects_at(settings.payloads)


_IN_USE: Final[ContextVar[Service | None]] = ContextVar("headrace_service", default=None)


def current_service() -> Service:
    """Return the use cases an entry point should call."""
    return _IN_USE.get() or (_SERVED[-1] if _SERVED else _from_env())


def prepare(*names: str) -> None:
    """In Lambda, build the parts of the service with these names now.

    While a function's modules are read, Lambda gives it a whole processor, later only what its
    memory pays for.  Elsewhere nothing is done at import.
    """
    if os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
        with suppress(Unavailable):  # what it needs is away: let the first call say so
            for name in names:
                getattr(current_service(), name)


def using(replacement: Service) -> during[Service]:
    """Run a block over other use cases: a test's, or a script's."""
    return during(_IN_USE, replacement)


_SERVED: Final[list[Service]] = []


@contextmanager
def serving(use: Service) -> Iterator[None]:
    """Let every thread of this process that has no others call *use*, for the length of a block."""
    _SERVED.append(use)
    try:
        yield
    finally:
        _SERVED.remove(use)


@cache
def _from_env() -> Service:
    from headrace.store.services import secret  # noqa: PLC0415  AWS's, which a file needs none of

    settings = Settings.from_env().with_secrets(secret)  # once per process
    lake = lake_at(settings.lake) if settings.lake else None
    return build(settings, dynamo_store(settings), lake=lake, objects=objects_of(settings))


def dynamo_store(settings: Settings, *, lanes: int = 1) -> "DynamoStore":
    """Return the store on the tables of *settings*; *lanes* as in DynamoStore."""
    from headrace.store.dynamo import DynamoStore  # noqa: PLC0415  AWS only, and a file needs none of it
    from headrace.store.dynamo.connect import connected  # noqa: PLC0415  AWS only, and a file needs none of it

    return DynamoStore(
        connected(settings.dynamodb_url),
        tasks_table=settings.tasks_table,
        control_table=settings.control_table,
        sender=settings.sender,
        lanes=lanes,
    )


def table_stream(settings: Settings) -> "TableStream":
    """Return the stream of the tasks table of *settings*."""
    from headrace.store.dynamo.stream import TableStream  # noqa: PLC0415  AWS only, and a file needs none of it

    return TableStream(settings.dynamodb_url, settings.tasks_table)
