"""The composition root: settings from the environment, clients made once, use cases built.

The only place that reads the environment or the clock.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Final

import boto3
from botocore.config import Config

from headrace.ops.attempts import Attempts
from headrace.ops.audit import Audit
from headrace.ops.bulk import Bulk
from headrace.ops.changelog import Changelog
from headrace.ops.chores import Chores
from headrace.ops.cursor import Cursors
from headrace.ops.deliveries import Deliveries
from headrace.ops.explain import Explain
from headrace.ops.flows import Flows
from headrace.ops.inspect import Inspect
from headrace.ops.keys import Keys
from headrace.ops.leases import Leases
from headrace.ops.ledger import Ledger
from headrace.ops.limiting import Limiting
from headrace.ops.matched import MatchedSets
from headrace.ops.queues import Queues
from headrace.ops.reaping import Reaping
from headrace.ops.recording import Recording
from headrace.ops.reports import Reports
from headrace.ops.schedules import Schedules
from headrace.ops.spawning import Spawning
from headrace.ops.stats import Stats
from headrace.ops.tasks import Tasks
from headrace.ops.tick_tasks import TickTasks
from headrace.ops.ticking import Ticking
from headrace.ops.workers import Workers
from headrace.runtime.cron import read_cron
from headrace.store.base import Lake, Store
from headrace.store.dynamo import DynamoStore, Sender
from headrace.store.dynamo.lean import LeanClient
from headrace.store.lake import lake_at, s3_place


@dataclass(frozen=True)
class Settings:
    """What a deployment decides.

    ``dynamodb_url`` None is Amazon DynamoDB; ``admin_key`` None lets nobody in; ``session_secret``
    signs the console's sessions, None where there is no console; ``sender`` is how changes go out
    (see DynamoStore); the two times are seconds.  ``lake`` is where raw changes are written, a
    folder or ``s3://bucket/prefix``; ``lake_payloads`` are patterns of the queues whose payloads
    go there too.
    """

    tasks_table: str = "headrace-tasks"
    control_table: str = "headrace-control"
    dynamodb_url: str | None = None
    admin_key: str | None = None
    poll_after_seconds: float = 1.0
    settings_ttl_seconds: float = 10.0
    sender: Sender = "batch"
    session_secret: str | None = None
    lake: str | None = None
    lake_payloads: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        """Read the ``HEADRACE_…`` variables.  Raises ValueError naming the one that is wrong."""
        sender = env.get("HEADRACE_SENDER", "batch")
        if sender not in ("batch", "single"):
            message = f"HEADRACE_SENDER must be batch or single, not {sender!r}"
            raise ValueError(message)
        return cls(
            tasks_table=env.get("HEADRACE_TASKS_TABLE", cls.tasks_table),
            control_table=env.get("HEADRACE_CONTROL_TABLE", cls.control_table),
            dynamodb_url=env.get("HEADRACE_DYNAMODB_URL") or None,
            admin_key=env.get("HEADRACE_ADMIN_KEY") or None,
            poll_after_seconds=_seconds(env, "HEADRACE_POLL_AFTER_SECONDS", 1.0),
            settings_ttl_seconds=_seconds(env, "HEADRACE_SETTINGS_TTL_SECONDS", 10.0),
            session_secret=env.get("HEADRACE_SESSION_SECRET") or None,
            sender=sender,  # type: ignore[arg-type]  # checked above
            lake=_lake(env),
            lake_payloads=_patterns(env, "HEADRACE_LAKE_PAYLOADS"),
        )


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(env.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:  # noqa: PLR2004  an hour is more than anyone wants
        message = f"{name} must be a number of seconds from 0 to 3600"
        raise ValueError(message)
    return value


def _lake(env: Mapping[str, str]) -> str | None:
    address = env.get("HEADRACE_LAKE", "").strip()
    try:
        s3_place(address)
    except ValueError as error:
        message = f"HEADRACE_LAKE: {error}"
        raise ValueError(message) from error
    return None if address in ("", "none") else address


def _patterns(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(pattern.strip() for pattern in env.get(name, "").split(",") if pattern.strip())


@dataclass(frozen=True, slots=True)
class UseCases:
    """What an entry point may ask for."""

    settings: Settings
    now: Callable[[], datetime]
    queues: Queues
    tasks: Tasks
    deliveries: Deliveries
    leases: Leases
    reports: Reports
    inspect: Inspect
    explain: Explain
    flows: Flows
    bulk: Bulk
    matched: MatchedSets
    audit: Audit
    keys: Keys
    attempts: Attempts
    reaping: Reaping
    recording: Recording
    schedules: Schedules
    stats: Stats
    ticking: Ticking
    workers: Workers


def utc_now() -> datetime:
    """Return the service's clock: aware, UTC, microseconds."""
    return datetime.now(UTC)


def build(
    settings: Settings,
    store: Store,
    *,
    now: Callable[[], datetime] = utc_now,
    lake: Lake | None = None,
) -> UseCases:
    """Build the use cases over *store*; what it is told about tasks goes to *lake* too."""
    changelog = Changelog(lake, settings.lake_payloads) if lake is not None else None
    secret = sha256(f"cursor {settings.admin_key}".encode()).digest()
    cursors = Cursors(secret)
    audit = Audit(store, now, cursors)
    limiting = Limiting(store, now)
    chores = Chores(store, now, limiting)
    queues = Queues(store, now, cursors, chores, audit, settings.settings_ttl_seconds)
    leases = Leases(store, queues, now)
    reaping = Reaping(store, queues, chores, now, leases)
    inspect = Inspect(store, queues, now, cursors)
    bulk = Bulk(store, queues, inspect, audit, now, cursors)
    ledger = Ledger(store, now)
    keys = Keys(store, now, cursors, audit, settings.admin_key, settings.settings_ttl_seconds)
    ticking = Ticking(store, queues, TickTasks(store, now, read_cron), now, read_cron)
    poll_after = settings.poll_after_seconds
    return UseCases(
        settings=settings,
        now=now,
        queues=queues,
        tasks=Tasks(store, queues, now, audit),
        deliveries=Deliveries(store, queues, reaping, limiting, now, leases, poll_after),
        leases=leases,
        reports=Reports(store, queues, now, Spawning(store, queues, now)),
        inspect=inspect,
        flows=Flows(ledger, now),
        explain=Explain(store, queues, limiting, now),
        bulk=bulk,
        matched=MatchedSets(store, queues, inspect, bulk, audit, now),
        audit=audit,
        keys=keys,
        attempts=Attempts(store, now, keys),
        reaping=reaping,
        recording=Recording(queues, ledger, changelog),
        schedules=Schedules(store, ticking, audit, now),
        stats=Stats(store, queues, inspect, ledger, now),
        ticking=ticking,
        workers=Workers(store, now, cursors, audit),
    )


_IN_USE: Final[ContextVar[UseCases | None]] = ContextVar("headrace_use_cases", default=None)


def use_cases() -> UseCases:
    """Return the use cases an entry point should call."""
    return _IN_USE.get() or _from_env()


@contextmanager
def using(replacement: UseCases) -> Iterator[UseCases]:
    """Run a block over other use cases: a test's, or a script's."""
    token = _IN_USE.set(replacement)
    try:
        yield replacement
    finally:
        _IN_USE.reset(token)


@cache
def _from_env() -> UseCases:
    settings = Settings.from_env()  # once per process, not at import
    lake = lake_at(settings.lake) if settings.lake else None
    return build(settings, dynamo_store(settings), lake=lake)


def dynamo_store(settings: Settings) -> DynamoStore:
    """Return the store on the tables of *settings*."""
    config = Config(
        connect_timeout=2,
        read_timeout=10,
        max_pool_connections=50,
        parameter_validation=False,  # our requests are built in one place, and tested there
        retries={"mode": "standard", "total_max_attempts": 4},
    )
    session = boto3.Session()
    client = session.client("dynamodb", endpoint_url=settings.dynamodb_url, config=config)
    return DynamoStore(
        LeanClient(client, session.get_credentials()),
        tasks_table=settings.tasks_table,
        control_table=settings.control_table,
        sender=settings.sender,
    )
