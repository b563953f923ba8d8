"""The connection to the file or the tables, of the driver and all workers.

A ``StoreConnection`` is plain data: it is made once, where a job is planned, and travels with it,
so that all its processes work on the same tables whatever their own environment says.  While the
tables are throttled or unavailable, a call is made again.
"""

import logging
import os
import platform
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from headrace.client.address import (
    FileAddress,
    HttpAddress,
    TablesAddress,
    read_address,
)
from headrace.domain.errors import FieldError, InvalidRequest, Unavailable
from headrace.domain.limits import OFFLOAD_BYTES
from headrace.domain.offload import ObjectStore
from headrace.embedded.service import service_on
from headrace.runtime.service import Service
from headrace.runtime.wiring import Settings, build, objects_of, utc_now
from headrace.spark.sources.options import SourceOption, whole, word
from headrace.store.base import Store
from headrace.store.objects import objects_beside
from headrace.store.sqlite.connections import MEMORY
from headrace.store.sqlite.file import Unusable

if TYPE_CHECKING:
    from headrace.store.dynamo.raw_client import RawClient

LANES: Final = 4
"""Batches of writes that one process has under way at a time."""

OPTIONS: Final = (
    SourceOption(
        "url",
        word,
        "`file:PATH` or `dynamodb://REGION/STACK`; else `HEADRACE_URL`",
    ),
    SourceOption("tasks_table", word, "name of the table of tasks; else `HEADRACE_TASKS_TABLE`"),
    SourceOption("control_table", word, "name of the control table; else `HEADRACE_CONTROL_TABLE`"),
    SourceOption(
        "dynamodb_url", word, "another endpoint than AWS; else `HEADRACE_DYNAMODB_URL`, else AWS"
    ),
    SourceOption(
        "payloads",
        word,
        "where large payloads of tables are kept, `s3://bucket/prefix`; else `HEADRACE_PAYLOADS`,"
        " else as the stack says",
    ),
    SourceOption(
        "payload_offload_bytes",
        whole(0, OFFLOAD_BYTES[1]),
        "from how many bytes on a payload that is written is kept there, 0 for none; else"
        " `HEADRACE_PAYLOAD_OFFLOAD_BYTES`, else as the stack says",
    ),
    SourceOption("region", word, "region of the tables; else `AWS_REGION`, `AWS_DEFAULT_REGION`"),
)
"""What every format takes; each may be left out where the environment says it."""

FILE_NAME: Final = "headrace.db"
"""In the data folder of a local service: its tasks."""

PATIENCE: Final = 60.0
"""Seconds that a call waits, between its tries, for tables that are away."""

_LOG: Final = logging.getLogger(__name__)
_SKEW: Final = 5.0  # seconds that this machine's clock may be off
_FIRST: Final = 0.1  # seconds
_LONGEST: Final = 10.0
_REGION: Final = "AWS_DEFAULT_REGION"
_DATA_DIR: Final = "HEADRACE_DATA_DIR"
_TABLES: Final = ("tasks_table", "control_table", "dynamodb_url", "region")
_NAMED: Final = ("HEADRACE_TASKS_TABLE", "HEADRACE_CONTROL_TABLE", "HEADRACE_DYNAMODB_URL")
_WAYS: Final = (
    "set HEADRACE_URL to file:PATH, HEADRACE_DATA_DIR to the folder of a local service, or"
    " HEADRACE_DYNAMODB_URL to an endpoint, or for AWS a region (AWS_REGION) and credentials"
)
_LOCAL_MODE: Final = (
    "A file is for one machine: driver and executors in local mode (spark.master local[*])."
)
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class StoreConnection:
    """The tables, or the file, and how to reach them.

    Without a *dynamodb_url* the tables are in Amazon DynamoDB.  With a *url*, always ``file:``, the
    tasks are in that file, and the fields of tables have no meaning; *machine* is the machine with
    the file, None for no check.  Payloads of *payload_offload_bytes* or more are kept in
    *payloads*, those of a file beside it.
    """

    tasks_table: str = Settings.tasks_table
    control_table: str = Settings.control_table
    dynamodb_url: str | None = None
    region: str | None = None
    url: str | None = None
    machine: str | None = None
    payloads: str | None = None
    payload_offload_bytes: int = 0

    @classmethod
    def of(
        cls, given: Mapping[str, Any] | None = None, env: Mapping[str, str] = os.environ
    ) -> "StoreConnection":
        """Make it from the parsed options *given*, and else from the environment.

        Where neither names a place, the file of a local service in this folder is found by itself.
        Raises InvalidRequest naming the option or variable that is wrong.
        """
        chosen = {name: value for name, value in (given or {}).items() if value is not None}
        address = _address(chosen, env)
        settings = Settings.from_env(env)
        most = int(chosen.get("payload_offload_bytes", settings.payload_offload_bytes))
        if isinstance(address, FileAddress):
            url = Path(address.path).as_uri()
            return cls(url=url, machine=platform.node(), payload_offload_bytes=most)
        region = env.get("AWS_REGION") or env.get(_REGION)
        tasks, control = settings.tasks_table, settings.control_table
        payloads = settings.payloads
        if isinstance(address, TablesAddress):
            region = address.region
            if not settings.tables_named and not {"tasks_table", "control_table"} <= chosen.keys():
                tasks, control, payloads, decided = _deployed(address)
                most = int(chosen.get("payload_offload_bytes", decided))
        return cls(
            chosen.get("tasks_table", tasks),
            chosen.get("control_table", control),
            chosen.get("dynamodb_url", settings.dynamodb_url),
            chosen.get("region", region),
            payloads=chosen.get("payloads", payloads),
            payload_offload_bytes=most,
        )

    def options(self) -> dict[str, str]:
        """Return it as options of a format."""
        most = {"payload_offload_bytes": str(self.payload_offload_bytes)}
        given = most if self.payload_offload_bytes else {}
        if self.url is not None:
            return {"url": self.url, **given}
        every = {name: getattr(self, name) for name in (*_TABLES, "payloads")}
        return {**{name: value for name, value in every.items() if value is not None}, **given}


def _address(
    chosen: Mapping[str, Any], env: Mapping[str, str]
) -> FileAddress | TablesAddress | None:
    """Return the place named by an option, or HEADRACE_URL, or is found; None: tables by name."""
    tables = [name for name in _TABLES if name in chosen]
    if url := chosen.get("url"):
        address = read_address(url)
        if isinstance(address, HttpAddress):
            raise InvalidRequest.of(
                "url",
                f"must be file:PATH or dynamodb://REGION/STACK, not {url!r}: Spark works on the"
                " tasks themselves, not over HTTP",
            )
        if isinstance(address, FileAddress) and tables:
            raise InvalidRequest.of(tables[0], f"has no meaning beside the file {url}")
        return address
    if tables:
        return None
    url = env.get("HEADRACE_URL", "").strip()
    named = read_address(url) if url else None
    if named is not None and not isinstance(named, HttpAddress):
        return named
    elsewhere = named is not None and not named.local
    if elsewhere or any(env.get(name) for name in _NAMED):
        return None
    return _local_service(env)


@cache
def _deployed(address: TablesAddress) -> tuple[str, str, str | None, int]:
    """Return the tables of a deployment, where its large payloads are, and from which size."""
    from headrace.store.dynamo.connect import (  # noqa: PLC0415  a file needs no botocore
        CONTROL_TABLE,
        TASKS_TABLE,
        Deployment,
    )

    facts = Deployment(address.region, address.stack).facts()
    outputs, most = facts.outputs, facts.parameters.get("PayloadOffloadBytes")
    payloads = outputs.get("PayloadsAddress")
    return outputs[TASKS_TABLE], outputs[CONTROL_TABLE], payloads, int(most or 0)


def _local_service(env: Mapping[str, str]) -> FileAddress | None:
    folder = env.get(_DATA_DIR)
    path = Path(folder or ".headrace", FILE_NAME).absolute()
    if path.is_file():
        return FileAddress(str(path))
    if folder:
        raise InvalidRequest.of(
            _DATA_DIR, f"must be the data folder of a local service: there is no {path}"
        )
    return None


@cache
def opened(connection: StoreConnection) -> Service:
    """Return the use cases over the tables, made once in each process.

    They go by the tables' clock where this machine's is off: leases are instants.
    """
    settings, tables = _settings(connection), store(connection)
    return build(settings, tables, now=_clock(connection), objects=_objects(connection, settings))


def _clock(connection: StoreConnection) -> Callable[[], datetime]:
    if connection.url is not None:
        return utc_now  # a file is on this machine
    return clock_by(_client(connection).date)


def clock_by(
    theirs: Callable[[], datetime | None], ours: Callable[[], datetime] = utc_now
) -> Callable[[], datetime]:
    """Return *ours*, put right by as much as it is off *theirs*, if that is more than 5 seconds."""
    before = ours()
    date = theirs()
    off = timedelta() if date is None else date - (before + (ours() - before) / 2)
    if abs(off.total_seconds()) <= _SKEW:
        return ours
    _LOG.warning(
        "this machine's clock is %+.0f s off that of the tables, and is put right by that here: set"
        " it (NTP)",
        -off.total_seconds(),
    )
    return lambda: ours() + off


def _objects(connection: StoreConnection, settings: Settings) -> ObjectStore | None:
    if connection.url is None:
        return objects_of(settings)
    return objects_beside(cast("FileAddress", read_address(connection.url)).path, MEMORY)


@cache
def store(connection: StoreConnection) -> Store:
    """Return the store on the file or tables, made once in each process; throttling makes it wait.

    Raises InvalidRequest where nothing says where they are, for a file that is not there, as every
    call does for tables that are not, and without credentials; Unavailable for a file that cannot
    be used.  What IAM refuses is Forbidden, at the call.
    """
    if connection.url is not None:
        opening = SimpleNamespace(file=partial(_file_store, connection))
        made = RetryingStore(opening, connection=connection).file()  # others may be writing
        return cast("Store", RetryingStore(made, connection=connection))
    try:
        made = _tables_store(connection)
    except Exception as error:
        if meant := _meant(error, connection):
            raise meant from None
        raise
    return cast("Store", RetryingStore(made, connection=connection))


def _tables_store(connection: StoreConnection) -> Store:
    from headrace.store.dynamo import DynamoStore  # noqa: PLC0415  a file needs no botocore
    from headrace.store.dynamo.connect import CallersRights  # noqa: PLC0415  a file needs no botocore

    tasks, control = connection.tasks_table, connection.control_table
    rights = CallersRights(f"the tables {tasks} and {control}")
    return DynamoStore(
        rights.wrap(_client(connection)),
        tasks_table=tasks,
        control_table=control,
        lanes=LANES,
    )


@cache
def _client(connection: StoreConnection) -> "RawClient":
    from headrace.store.dynamo.connect import connected  # noqa: PLC0415  a file needs no botocore

    return connected(
        connection.dynamodb_url, region=connection.region, unchecked=_is_here(connection)
    )


def _file_store(connection: StoreConnection) -> Store:
    """Open the file: one store serves its process, and a child that is forked from it."""
    here = platform.node()
    if connection.machine not in (None, here):
        raise InvalidRequest.of(
            "url", f"names {connection.url} on {connection.machine}, not on {here}. {_LOCAL_MODE}"
        )
    path = cast("FileAddress", read_address(str(connection.url))).path
    if not Path(path).is_file():
        raise InvalidRequest.of(
            "url",
            f"names {path}, which is not there: the first program with"
            f" HEADRACE_URL=file:{path}, or headrace run, makes it. {_LOCAL_MODE}",
        )
    return service_on(path, Settings.from_env()).store


def _meant(error: Exception, connection: StoreConnection) -> InvalidRequest | None:
    """Return the error that explains a wrong setup, if *error* comes from one.

    It is recognised by names, because only the store imports botocore.
    """
    if type(error).__name__ == "NoRegionError":
        return _nowhere("region", "no local service runs here, and no region is known")
    if type(error.__cause__).__name__ == "NoCredentialsError":
        return _nowhere("credentials", "there are no credentials for the tables")
    if "ResourceNotFound" in str(error.__cause__):
        message = (
            f"table {connection.tasks_table} (tasks_table, HEADRACE_TASKS_TABLE) or"
            f" {connection.control_table} (control_table, HEADRACE_CONTROL_TABLE) is not there, at"
            f" {connection.dynamodb_url or connection.region or 'AWS'}"
        )
        return InvalidRequest(message, errors=[FieldError("tasks_table", message)])
    return None


def _nowhere(field: str, what: str) -> InvalidRequest:
    message = f"{what}: {_WAYS}"
    return InvalidRequest(message, errors=[FieldError(field, message)])


def _settings(connection: StoreConnection) -> Settings:
    return Settings(
        tasks_table=connection.tasks_table,
        control_table=connection.control_table,
        dynamodb_url=connection.dynamodb_url,
        payloads=connection.payloads,
        payload_offload_bytes=connection.payload_offload_bytes,
    )


def _is_here(connection: StoreConnection) -> bool:
    """Whether the tables are on this machine, where credentials are not checked."""
    url = connection.dynamodb_url
    return url is not None and urlsplit(url).hostname in _LOOPBACK


@dataclass(frozen=True, slots=True)
class RetryingStore:
    """A store, or its pages, whose every call is made again while it is unavailable.

    It waits a random time up to a bound that doubles (full jitter), so that many who were throttled
    together do not come back together; in all PATIENCE seconds.  All calls of a store may be
    repeated.  What is wrong with the way to it, a *connection*, is said at once.
    """

    store: Any
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[float, float], float] = random.uniform
    connection: StoreConnection = field(default_factory=StoreConnection)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever a store has
        call = getattr(self.store, name)
        if not callable(call):
            return call  # who tells of arrivals

        def retrying(*given: object, **named: object) -> object:
            left, bound = PATIENCE, _FIRST
            while True:
                try:
                    answer = call(*given, **named)
                except Exception as error:
                    if meant := _meant(error, self.connection):
                        raise meant from None
                    if left <= 0 or not isinstance(error, Unavailable):
                        raise
                    if isinstance(error, Unusable):
                        raise  # a file that somebody must see to
                    pause = self.chance(0, bound)
                    self.sleep(pause)
                    left -= max(pause, _FIRST)
                    bound = min(_LONGEST, 2 * bound)
                else:
                    return replace(self, store=answer) if name == "pages" else answer

        return retrying
