"""The way to the tables, from the driver and from every worker process alike, and its pace.

A ``StoreConnection`` is plain data: it is made once, where a job is planned, and travels with it,
so that all its processes work on the same tables whatever their own environment says.  While the
tables are throttled or away, a call is made again; a rate limiter keeps a job from asking too much.
"""

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from headrace.domain.errors import FieldError, InvalidRequest, Unavailable
from headrace.runtime.wiring import Settings, UseCases, build, dynamo_store
from headrace.spark.sources.options import SourceOption, word
from headrace.store.base import Store

LANES: Final = 4
"""Batches of writes that one process has under way at a time."""

OPTIONS: Final = (
    SourceOption("tasks_table", word, "name of the table of tasks; else `HEADRACE_TASKS_TABLE`"),
    SourceOption("control_table", word, "name of the control table; else `HEADRACE_CONTROL_TABLE`"),
    SourceOption(
        "dynamodb_url", word, "an endpoint of its own; else `HEADRACE_DYNAMODB_URL`, else AWS"
    ),
    SourceOption("region", word, "region of the tables; else `AWS_REGION`, `AWS_DEFAULT_REGION`"),
)
"""What every format takes; each may be left out where the environment says it."""

ENGINE_NOTE: Final = "engine.url"
"""In the data folder of a local service that runs: where its engine answers."""

TRIES: Final = 9
_FIRST: Final = 0.1  # seconds
_LONGEST: Final = 10.0
_BURST: Final = 0.5  # seconds' worth of tasks
_REGION: Final = "AWS_DEFAULT_REGION"
_WAYS: Final = (
    "set HEADRACE_DATA_DIR to the folder of a local service that runs elsewhere, or"
    " HEADRACE_DYNAMODB_URL to an endpoint, or for AWS a region (AWS_REGION) and credentials"
)
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_ANY: Final = {  # an engine on this machine asks for credentials and believes any
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    _REGION: "us-east-1",
}


@dataclass(frozen=True, slots=True)
class StoreConnection:
    """Which tables, and where they are; None for *dynamodb_url* is Amazon DynamoDB."""

    tasks_table: str = Settings.tasks_table
    control_table: str = Settings.control_table
    dynamodb_url: str | None = None
    region: str | None = None

    @classmethod
    def of(
        cls, given: Mapping[str, Any] | None = None, env: Mapping[str, str] = os.environ
    ) -> "StoreConnection":
        """Make it from the parsed options *given*, and else from the environment.

        Where neither names an endpoint, a local service that runs in this folder is found by
        itself.
        """
        chosen = {name: value for name, value in (given or {}).items() if value is not None}
        settings = Settings.from_env(env)
        region = env.get("AWS_REGION") or env.get(_REGION)
        return cls(
            chosen.get("tasks_table", settings.tasks_table),
            chosen.get("control_table", settings.control_table),
            chosen.get("dynamodb_url", settings.dynamodb_url) or _local_engine(env),
            chosen.get("region", region),
        )

    def options(self) -> dict[str, str]:
        """Return it as options of a format."""
        every = {row.name: getattr(self, row.name) for row in OPTIONS}
        return {name: value for name, value in every.items() if value is not None}


@cache
def opened(connection: StoreConnection) -> UseCases:
    """Return the use cases over the tables, made once in each process."""
    return build(_settings(connection), store(connection))


@cache
def store(connection: StoreConnection) -> Store:
    """Return the store on the tables, made once in each process; throttling makes it wait.

    Raises InvalidRequest where nothing says where they are, as every call does for tables that are
    not there, and without credentials.
    """
    if connection.region:
        os.environ[_REGION] = connection.region
    if _is_here(connection):
        for name, value in _ANY.items():
            os.environ.setdefault(name, value)
    try:
        made = dynamo_store(_settings(connection), lanes=LANES)
    except Exception as error:
        if meant := _meant(error, connection):
            raise meant from None
        raise
    return cast("Store", RetryingStore(made, connection=connection))


def _meant(error: Exception, connection: StoreConnection) -> InvalidRequest | None:
    """The error for whoever set this up, if *error* is about the setup.

    Recognised by names: botocore's errors are known to the store alone.
    """
    if type(error).__name__ == "NoRegionError":
        return _nowhere("region", "no local service runs here, and no region is known")
    if type(error.__cause__).__name__ == "NoCredentialsError":
        return _nowhere("credentials", "there are no credentials for the tables")
    if "ResourceNotFound" in str(error):
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
        sender="together" if _is_here(connection) else "batch",
    )


def _is_here(connection: StoreConnection) -> bool:
    """Whether the tables are on this machine, where units are free and syncs are not."""
    url = connection.dynamodb_url
    return url is not None and urlsplit(url).hostname in _LOOPBACK


def _local_engine(env: Mapping[str, str]) -> str | None:
    note = Path(env.get("HEADRACE_DATA_DIR") or ".headrace", ENGINE_NOTE)
    try:
        return note.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class RetryingStore:
    """A store, or its pages, whose every call is made again while it is unavailable.

    It waits a random time up to a bound that doubles (full jitter), so that many who were throttled
    together do not come back together; in all half a minute at most.  All calls of a store may be
    repeated.  What is wrong with the way to it, a *connection*, is said at once.
    """

    store: Any
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[float, float], float] = random.uniform
    connection: StoreConnection = field(default_factory=StoreConnection)

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self.store, name)

        def retrying(*given: object, **named: object) -> object:
            left, bound = TRIES, _FIRST
            while True:
                try:
                    answer = call(*given, **named)
                except Exception as error:
                    left -= 1
                    if meant := _meant(error, self.connection):
                        raise meant from None
                    if not left or not isinstance(error, Unavailable):
                        raise
                    self.sleep(self.chance(0, bound))
                    bound = min(_LONGEST, 2 * bound)
                else:
                    return replace(self, store=answer) if name == "pages" else answer

        return retrying


@dataclass(slots=True)
class RateLimiter:
    """Lets no more than *rate* tasks a second through; None is any number."""

    rate: float | None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _next: float | None = field(default=None, init=False)

    def next(self, wanted: int) -> int:
        """Wait until some may go through; how many: *wanted* at the most.

        The time they take is waited before they go, so that no batch begins with a burst.
        """
        if self.rate is None:
            return wanted
        number = max(1, min(wanted, int(self.rate * _BURST)))
        now = self.clock()
        due = max(now, self._next if self._next is not None else now) + number / self.rate
        self.sleep(max(0.0, due - now))
        self._next = due
        return number
