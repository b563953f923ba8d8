"""Replay: enqueue again, whole, what any SQL over the lake's tables selects.

The ids of the new tasks are made from the replay's name and from task and version, so a replay that
is repeated, or killed and begun again, adds nothing twice.

The SQL selects the tasks, and may select their new values; other values are read from ``changes``,
as of the selected version.  Nothing is guessed: a task whose values the lake does not have is left
out, and counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial, reduce
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import TAGS, TASK_ID_RE
from headrace.domain.task import Priority
from headrace.spark.exit_codes import first_line
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.schemas import CHANGES, REPLAYED_TYPES
from headrace.spark.sources import connect
from headrace.spark.sources.connect import StoreConnection
from headrace.spark.sources.decode import schema_of
from headrace.spark.sources.enqueue import Sending, enqueued
from headrace.spark.sources.newrows import Identity
from headrace.spark.sources.rows import chunks

REQUIRED: Final = ("task_id", "payload")
SETTINGS: Final = REPLAYED_TYPES
"""The columns that a new task has from the old one besides its payload, and their types."""

NO_TAGS: Final = "its tags are not in the lake; select them, or map() AS tags for none"
UNCLEAR: Final = "its id was used again; select created_at, which tells its lives apart"
_WHICH: Final = ("task_id", "created_at", "version")
_KB: Final = 1024
_OVERHEAD_BYTES: Final = 600  # of an item, besides payload and result
_WRITE_USD: Final = 0.625e-6  # a write unit: us-east-1, on demand, since November 2024
_LOOKED_UP: Final = 500  # ids at a time
_COUNTS: Final = "outcome string, n bigint"


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay: the tasks to enqueue again, and how.

    Attributes:
        name: of the replay; a part of every new task's id.
        sql: selects ``task_id``, and if they are there ``created_at``, ``version``, ``queue``,
            ``at``, when it was the first time, ``payload`` and the SETTINGS.
        queue: where everything goes, whatever the selection says.
        speed: keep the times between ``at`` of one and of the next, so many times as fast;
            None makes all due at once.
        start: when the first is due; now unless given.

    """

    name: str
    sql: str
    queue: str | None = None
    speed: float | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReplaySelection:
    """What a replay would enqueue, and what that costs.

    ``without_payload`` and ``refused``, by the reason, cannot be replayed.  ``existing`` are there
    from an earlier run; None where the service was not asked.
    """

    tasks: int
    without_payload: int
    payload_bytes: int
    queues: dict[str, int]
    first: datetime | None
    last: datetime | None
    write_units: int
    refused: dict[str, int] = field(default_factory=dict)
    existing: int | None = None

    @property
    def usd(self) -> float:
        """The cost of the writes."""
        return self.write_units * _WRITE_USD


@dataclass(slots=True)
class Replayed:
    """What a replay did: tasks that are new, that were there from an earlier run, and refused.

    Of a part that Spark had to run twice it tells the second time.
    """

    added: int = 0
    existing: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def selected(lake: LakeFrames, replay: Replay) -> DataFrame:
    """Return the rows of *replay*, cached: which task, where to, and what it shall be.

    Raises InvalidRequest naming what is missing, or saying what Spark makes of the SQL.
    """
    _check(replay)
    lake.views()
    with _sql_errors():
        return _rows(lake, lake.spark.sql(replay.sql), replay).cache()


@contextmanager
def _sql_errors() -> Iterator[None]:
    """Say in one line what Spark has against the SQL, before or while it runs."""
    try:
        yield
    except PySparkException as error:
        reason = first_line(error)
        raise InvalidRequest(f"sql: {reason}", errors=[FieldError("sql", reason)]) from error


def _rows(lake: LakeFrames, found: DataFrame, replay: Replay) -> DataFrame:
    for name in (*REQUIRED, *(("at",) if replay.speed else ())):
        if name not in found.columns:
            raise InvalidRequest.of(
                "sql", f"must select {name}, and selects {', '.join(found.columns)}"
            )
    if replay.queue is None and "queue" not in found.columns:
        raise InvalidRequest.of("queue", "is missing: give one, or select it")
    given = {name: kind for name, kind in _SELECTED.items() if name in found.columns}
    born = f.col("created_at") if "created_at" in given else f.lit(None)
    columns = {
        **{name: f.col(name).cast(kind) for name, kind in given.items()},
        "created_at": f.unix_micros(born.cast("timestamp")),
    }
    if replay.queue is not None:
        columns["queue"] = f.lit(replay.queue)
    for name in ("version", "at"):
        columns.setdefault(name, f.lit(None).cast(_SELECTED[name]))
    rows = found.select(*(column.alias(name) for name, column in columns.items()))
    missing = [name for name in SETTINGS if name not in given]
    return _completed(rows.dropDuplicates([*_WHICH]), lake.read(CHANGES), missing)


_SELECTED: Final = {
    "task_id": "string",
    "created_at": "timestamp",
    "version": "bigint",
    "queue": "string",
    "payload": "string",
    "at": "timestamp",
    **SETTINGS,
}


def _completed(rows: DataFrame, changes: DataFrame, missing: Sequence[str]) -> DataFrame:
    """Add to *rows* the settings *missing*, as ``changes`` had them at a row's version.

    ``lives`` says how many tasks of that id there were among which a row does not choose.
    """
    if not missing:
        return rows.withColumn("lives", f.lit(1))
    known_of = changes.where("tags IS NOT NULL")  # and with them the others, if there are any
    seen = known_of.select(
        *(f.col(name).alias(f"_{name}") for name in ("task_id", "version", *missing)),
        f.unix_micros("created_at").alias("_created_at"),
    )
    same = f.col("task_id") == f.col("_task_id")
    life = f.coalesce(f.col("created_at") == f.col("_created_at"), f.expr("created_at IS NULL"))
    so_far = f.coalesce(f.col("_version") <= f.col("version"), f.expr("version IS NULL"))
    known = rows.select(*_WHICH).join(seen, same & life & so_far)
    latest = f.max_by(f.struct(*(f.col(f"_{name}").alias(name) for name in missing)), "_version")
    lives = f.count_distinct("_created_at").alias("lives")
    keys = [f.col(name).alias(f"_{name}") for name in _WHICH]
    facts = known.groupBy(*_WHICH).agg(lives, latest.alias("latest"))
    facts = facts.select(*keys, "lives", "latest.*")
    same_row = [f.col(name).eqNullSafe(f.col(f"_{name}")) for name in _WHICH]
    joined = rows.join(facts, reduce(Column.__and__, same_row), "left")
    return joined.select(*rows.columns, "lives", *missing)


def _problem() -> Column:
    """Return why a row cannot be replayed; null if it can."""
    return (
        f.when(f.col("lives") > 1, UNCLEAR)
        .when(f.col("payload").isNull(), "")
        .when(f.col("tags").isNull(), NO_TAGS)
    )


@_sql_errors()
def looked_at(
    rows: DataFrame, replay: Replay, connection: StoreConnection | None = None
) -> ReplaySelection:
    """Return how many *rows* there are and what they would cost: the dry run.

    With a *connection* the service is asked too: for the queues, and what an earlier run added.
    Raises InvalidRequest when some of them name no queue, or saying why the SQL fails; NotFound for
    a queue that is missing.
    """
    size = f.octet_length("payload")
    said = f.octet_length(f.to_json(f.struct(*SETTINGS)))
    units = f.greatest(f.lit(1), f.ceil((size + said + _OVERHEAD_BYTES) / _KB)) + 1  # its entry
    left_out = {
        row["problem"]: row["count"]
        for row in rows.groupBy(_problem().alias("problem")).count().collect()
        if row["problem"] is not None
    }
    known = whole(rows)
    lost = known.where("queue IS NULL").count()
    if lost:
        raise InvalidRequest.of(
            "queue", f"is null in {lost:,} of the rows selected: select others, or give one"
        )
    queues = {
        row["queue"]: row
        for row in known.groupBy("queue")
        .agg(
            f.count(f.lit(1)).alias("n"),
            f.sum(size).alias("bytes"),
            f.sum(units).alias("units"),
            f.min("at").alias("first"),
            f.max("at").alias("last"),
        )
        .collect()
    }
    if connection is not None:
        for name in queues:
            connect.opened(connection).queues.get(name)
    firsts = [_aware(row["first"]) for row in queues.values() if row["first"]]
    lasts = [_aware(row["last"]) for row in queues.values() if row["last"]]
    return ReplaySelection(
        tasks=sum(row["n"] for row in queues.values()),
        without_payload=left_out.pop("", 0),
        payload_bytes=sum(row["bytes"] for row in queues.values()),
        queues={name: row["n"] for name, row in sorted(queues.items())},
        first=min(firsts, default=None),
        last=max(lasts, default=None),
        write_units=sum(row["units"] for row in queues.values()),
        refused=left_out,
        existing=None if connection is None else _existing(known, replay, connection),
    )


def whole(rows: DataFrame) -> DataFrame:
    """Return those of *rows* of which everything is known."""
    return rows.where(_problem().isNull())


def _existing(rows: DataFrame, replay: Replay, connection: StoreConnection) -> int:
    """Return how many of the new tasks are there already."""
    which = rows.select(*_WHICH)
    found = which.mapInArrow(partial(_looked_up, replay.name, connection), _COUNTS).collect()
    return sum(row["n"] for row in found)


def _looked_up(
    name: str, connection: StoreConnection, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for some in chunks((row for batch in batches for row in batch.to_pylist()), _LOOKED_UP):
        found = connect.store(connection).read([_id_of(name, row) for row in some], payload=False)
        yield _counts({"existing": len(found)})


def replayed(
    rows: DataFrame,
    replay: Replay,
    selection: ReplaySelection,
    connection: StoreConnection,
    *,
    now: datetime,
) -> Replayed:
    """Enqueue *rows*, looked at before as *selection*, through ``headrace.enqueue``.

    In each part the earliest go first, and a group is in one part: its order is kept.
    """
    sending = Sending(connection, Identity("id"), random_ids=True)
    parts = rows.sparkSession.sparkContext.defaultParallelism
    together = f.coalesce("group_key", "task_id")
    known = whole(rows).repartition(parts, "queue", together)
    in_order = known.sortWithinPartitions("at", "task_id", "created_at", "version")
    times = _Times(replay.speed, replay.start, selection.first, replay.start or now)
    sent = in_order.mapInArrow(partial(_sent, sending, replay.name, times), _COUNTS).collect()
    totals: Counter[str] = Counter()
    for row in sent:
        totals[row["outcome"]] += row["n"]
    done = Replayed(totals.pop("created", 0), totals.pop("existing", 0))
    done.refused = {**selection.refused, **totals}
    return done


@dataclass(frozen=True, slots=True)
class _Times:
    """When tasks fall due: plain data, which travels to every worker."""

    speed: float | None
    given: datetime | None
    first: datetime | None
    start: datetime

    def due(self, at: datetime | None) -> datetime | None:
        """Return when a task enqueued *at* some time falls due, or None for now."""
        if self.speed and self.first is not None and at is not None:
            return self.start + (_aware(at) - self.first) / self.speed
        return self.given


def _sent(
    sending: Sending, name: str, times: _Times, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Enqueue the rows of one part; yield how many there were of each outcome."""
    rows = (row for batch in batches for row in batch.to_pylist())
    summary = enqueued(sending, (_new_row(row, name, times) for row in rows))
    del summary.counts["bad"]
    yield _counts(summary.counts + summary.reasons)


def _new_row(row: Mapping[str, Any], name: str, times: _Times) -> dict[str, Any]:
    """Return a row of ``headrace.enqueue``."""
    tags = dict(row["tags"])
    for tag, value in (("replay", name), ("replay_of", row["task_id"])):
        if tag in tags or len(tags) < TAGS:  # its own come first
            tags[tag] = value
    usual = row["priority"] == Priority.NORMAL  # as has who says none, in any queue
    return {
        **row,
        "id": _id_of(name, row),
        "tags": tags,
        "priority": None if usual else row["priority"],
        "scheduled_at": times.due(row["at"]),
    }


def _id_of(name: str, row: Mapping[str, Any]) -> str:
    return new_id(name, row["task_id"], row["version"] or 0, row["created_at"])


def new_id(name: str, task_id: str, version: int, created_at: int | None = None) -> str:
    """Return the id of the task that replay *name* makes of a change, always the same one.

    *created_at*, in microseconds, tells apart the lives of one id.
    """
    life = "" if created_at is None else f"\0{created_at}"
    digest = blake2b(f"{name}\0{task_id}\0{version}{life}".encode(), digest_size=16)
    return f"rpl_{digest.hexdigest()}"


def _counts(numbers: Mapping[str, int]) -> pa.RecordBatch:
    rows = [{"outcome": outcome, "n": n} for outcome, n in numbers.items()]
    return pa.RecordBatch.from_pylist(rows, schema=schema_of(_COUNTS))


def _check(replay: Replay) -> None:
    if not TASK_ID_RE.fullmatch(replay.name):
        raise InvalidRequest.of("name", "must be 1 to 64 letters, digits, - or _")
    if replay.speed is not None and not replay.speed > 0:
        raise InvalidRequest.of("speed", f"must be more than 0, not {replay.speed:g}")


def _aware(instant: datetime) -> datetime:
    """An aware instant of what Spark hands out, this machine's local time."""
    return instant.astimezone(UTC)
