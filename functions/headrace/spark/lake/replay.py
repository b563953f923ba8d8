"""Replay: enqueue again what any SQL over the lake's tables selects.

The ids of the new tasks are made from the replay's name and from task and version, so a replay that
is repeated, or killed and begun again, adds nothing twice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from headrace.client.client import Client
from headrace.client.codec import Codec
from headrace.client.sending import NewTask
from headrace.domain import cost
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import TASK_ID_RE
from headrace.spark.exit_codes import first_line
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.sources.rows import chunks

REQUIRED: Final = ("task_id", "payload")
_AT_ONCE: Final = 500
_KB: Final = 1024


class Verbatim:
    """A codec for payloads that are JSON text already: they go out as they once came in."""

    private = False

    def encode(self, value: object) -> bytes:
        """Return the text *value* as it is."""
        return str(value).encode()

    def decode(self, text: bytes) -> str:
        """Return *text* as it is."""
        return text.decode()


Connect = Callable[[Codec], Client]
"""Makes a client with the codec it is given."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay: the tasks to enqueue again, and how.

    Attributes:
        name: of the replay; a part of every new task's id.
        sql: selects ``task_id`` and ``payload``, and if they are there ``version``, ``queue``,
            and ``at``, when it was the first time.
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
    """What a replay would enqueue, and what that costs; ``without_payload`` cannot be replayed."""

    tasks: int
    without_payload: int
    payload_bytes: int
    queues: dict[str, int]
    first: datetime | None
    last: datetime | None
    write_units: int

    @property
    def usd(self) -> float:
        """The cost of the writes."""
        return self.write_units * cost.Prices().write / 1e6


@dataclass(slots=True)
class Replayed:
    """What a replay did: tasks that are new, that were there from an earlier run, and refused."""

    added: int = 0
    existing: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def selected(lake: LakeFrames, replay: Replay) -> DataFrame:
    """Return the rows of *replay*, cached: task_id, created_at, version, queue, payload, at.

    Raises InvalidRequest naming what is missing, or saying what Spark makes of the SQL.
    """
    _check(replay)
    lake.views()
    with _sql_errors():
        return _rows(lake.spark.sql(replay.sql), replay).cache()


@contextmanager
def _sql_errors() -> Iterator[None]:
    """Say in one line what Spark has against the SQL, before or while it runs."""
    try:
        yield
    except PySparkException as error:
        reason = first_line(error)
        raise InvalidRequest(f"sql: {reason}", errors=[FieldError("sql", reason)]) from error


def _rows(found: DataFrame, replay: Replay) -> DataFrame:
    for name in (*REQUIRED, *(("at",) if replay.speed else ())):
        if name not in found.columns:
            raise InvalidRequest.of(
                "sql", f"must select {name}, and selects {', '.join(found.columns)}"
            )
    if replay.queue is None and "queue" not in found.columns:
        raise InvalidRequest.of("queue", "is missing: give one, or select it")
    queue = f.lit(replay.queue) if replay.queue else f.col("queue")
    at = f.col("at").cast("timestamp") if "at" in found.columns else f.lit(None).cast("timestamp")
    version = f.col("version") if "version" in found.columns else f.lit(0)
    born = f.col("created_at") if "created_at" in found.columns else f.lit(None)
    rows = found.select(
        f.col("task_id").cast("string").alias("task_id"),
        f.unix_micros(born.cast("timestamp")).alias("created_at"),
        version.cast("bigint").alias("version"),
        queue.alias("queue"),
        f.col("payload").cast("string").alias("payload"),
        at.alias("at"),
    )
    return rows.dropDuplicates(["task_id", "created_at", "version"])


@_sql_errors()
def looked_at(rows: DataFrame) -> ReplaySelection:
    """Return how many *rows* there are and what they would cost: the dry run.

    Raises InvalidRequest when some of them name no queue, or saying why the SQL fails.
    """
    size = f.octet_length("payload")
    units = f.greatest(f.lit(1), f.ceil((size + cost.OVERHEAD_BYTES) / _KB)) + 1  # and its entry
    known = rows.where("payload IS NOT NULL")
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
    firsts = [_aware(row["first"]) for row in queues.values() if row["first"]]
    lasts = [_aware(row["last"]) for row in queues.values() if row["last"]]
    return ReplaySelection(
        tasks=sum(row["n"] for row in queues.values()),
        without_payload=rows.where("payload IS NULL").count(),
        payload_bytes=sum(row["bytes"] for row in queues.values()),
        queues={name: row["n"] for name, row in sorted(queues.items())},
        first=min(firsts, default=None),
        last=max(lasts, default=None),
        write_units=sum(row["units"] for row in queues.values()),
    )


def replayed(
    rows: DataFrame,
    replay: Replay,
    selection: ReplaySelection,
    connect: Connect = lambda codec: Client(codec=codec),
    *,
    now: datetime,
    say: Callable[[Replayed], None] = lambda _: None,
) -> Replayed:
    """Enqueue *rows*, looked at before as *selection*; *say* hears how far it is."""
    start = replay.start or now
    done = Replayed()
    ordered = rows.where("payload IS NOT NULL").orderBy("at", "task_id", "created_at", "version")
    with connect(Verbatim()) as client:
        for some in chunks(ordered.toLocalIterator(), _AT_ONCE):
            for queue in sorted({row["queue"] for row in some}):
                new = [
                    _new_task(row, replay, selection.first, start)
                    for row in some
                    if row["queue"] == queue
                ]
                _enqueue(client, queue, new, done)
            say(done)
    return done


def new_id(name: str, task_id: str, version: int, created_at: int | None = None) -> str:
    """Return the id of the task that replay *name* makes of a change, always the same one.

    *created_at*, in microseconds, tells apart the lives of one id.
    """
    life = "" if created_at is None else f"\0{created_at}"
    digest = blake2b(f"{name}\0{task_id}\0{version}{life}".encode(), digest_size=16)
    return f"rpl_{digest.hexdigest()}"


def _new_task(row: Row, replay: Replay, first: datetime | None, start: datetime) -> NewTask:
    due = None
    if replay.speed and first is not None and row["at"] is not None:
        due = start + (_aware(row["at"]) - first) / replay.speed
    elif replay.start is not None:
        due = start
    return NewTask(
        payload=row["payload"],
        id=new_id(replay.name, row["task_id"], row["version"], row["created_at"]),
        scheduled_at=due,
        tags={"replay": replay.name, "replay_of": row["task_id"]},
    )


def _enqueue(client: Client, queue: str, new: list[NewTask], done: Replayed) -> None:
    for result in client.enqueue_each(queue, new, errors="return"):
        if result.outcome == "CREATED":
            done.added += 1
        elif result.outcome == "EXISTING":
            done.existing += 1
        else:
            why = result.detail or result.outcome
            done.refused[why] = done.refused.get(why, 0) + 1


def _check(replay: Replay) -> None:
    if not TASK_ID_RE.fullmatch(replay.name):
        raise InvalidRequest.of("name", "must be 1 to 64 letters, digits, - or _")
    if replay.speed is not None and not replay.speed > 0:
        raise InvalidRequest.of("speed", f"must be more than 0, not {replay.speed:g}")


def _aware(instant: datetime) -> datetime:
    """An aware instant of what Spark hands out, this machine's local time."""
    return instant.astimezone(UTC)
