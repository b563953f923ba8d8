"""What a read by the format ``headrace`` asks for: its options, and the shares that it makes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, TypeAlias, cast
from zlib import crc32

from pyspark.sql import datasource as api
from pyspark.sql.types import StructType

from headrace.domain.errors import FieldError, InvalidRequest, NotFound
from headrace.domain.limits import KEEPALIVE_SECONDS, LEASE_QUEUES
from headrace.domain.task import State
from headrace.spark.sources import QUEUE, connect
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.ending import OnCommit, on_commit
from headrace.spark.sources.leasing import (
    SCHEMA,
    LeaseRequest,
    shard_deliveries,
)
from headrace.spark.sources.options import (
    SourceOption,
    check_queues,
    number,
    parsed,
    queue_name,
    queue_names,
    queue_pattern,
    refused,
    whole,
)

_BATCH_SECONDS: Final = 600.0
_STREAM_SECONDS: Final = 60.0  # a heartbeat extends it; who is killed holds its tasks no longer
_POLL_SECONDS: Final = 5.0
_FILE_POLL_SECONDS: Final = 0.5
_FILE_PAUSE: Final = 0.05  # seconds; to look into a file costs nothing
MOST_ROWS: Final = 1_000_000
MOST_BYTES: Final = 1 << 40
NAMING: Final = ("queue", "queues", "queue_pattern")
_PAGE: Final = 250  # queues
Shards: TypeAlias = int | Mapping[str, int]
"""How many shards are read of one queue, or of each of several by name."""

READING: Final = (
    SourceOption("queue", queue_name, "the queue to lease from; this, `queues` or `queue_pattern`"),
    SourceOption("queues", queue_names, "several, with commas, under one lease"),
    SourceOption(
        "queue_pattern",
        queue_pattern,
        "all whose name is like this, with `*` and `?`, also queues made later; without queues"
        f" that have a target. A read is of the {LEASE_QUEUES} with the most due tasks",
    ),
    SourceOption("station", queue_name, "the worker's name on the tasks it takes", "spark"),
    SourceOption(
        "max_rows", whole(1, MOST_ROWS), "most tasks of a read, or of a micro-batch", 5_000
    ),
    SourceOption(
        "max_bytes",
        whole(1, MOST_BYTES),
        "most bytes of payloads of a read or a micro-batch, about: each shard has an even part, and"
        " stops at the task that reaches it",
    ),
    SourceOption(
        "lease_seconds",
        number(*KEEPALIVE_SECONDS),
        "how long a read holds its tasks: for a batch, which nothing extends, longer than the job,"
        f" else {_BATCH_SECONDS:g}; for a stream, which is extended while it runs, else"
        f" {_STREAM_SECONDS:g}",
    ),
    SourceOption("rate", number(0.001, 1_000_000), "most tasks a second, all shards together"),
    SourceOption(
        "on_commit",
        on_commit,
        "for a stream into any other sink: `succeed` or `move:QUEUE` settles the tasks of a"
        " micro-batch once Spark has committed it; `none` leaves that to the sink `headrace`",
    ),
    SourceOption(
        "poll_after_seconds",
        number(0.01, 3_600),
        "how long a stream that finds nothing waits at the most until it looks again; it begins"
        " with a pause in which it makes one query per shard and second, and doubles it; else"
        f" {_POLL_SECONDS:g}, of a file {_FILE_POLL_SECONDS:g}",
    ),
    *connect.OPTIONS,
)


class QueuePartition(api.InputPartition):
    """One partition: a shard of the queue, and the group that its tasks are leased under."""

    def __init__(self, request: LeaseRequest, shard: int) -> None:
        super().__init__((request.group, request.first + shard))
        self.request = request
        self.shard = shard


@dataclass(frozen=True, slots=True)
class Plan:
    """The shards of a batch, and how many tasks are *due* in each of them."""

    shards: Shards
    due: list[int]


@dataclass(frozen=True, slots=True)
class QueueReading:
    """The options of a read."""

    connection: StoreConnection
    queue: str | None
    queues: tuple[str, ...] | None
    queue_pattern: str | None
    station: str
    max_rows: int
    lease_seconds: float
    rate: float | None
    max_bytes: int | None = None
    on_commit: OnCommit | None = None
    poll_after_seconds: float = _POLL_SECONDS

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool = False) -> "QueueReading":
        """Make it from the options *given*.  Raises InvalidRequest."""
        values = parsed(READING, given, of=QUEUE)
        if values["lease_seconds"] is None:
            values["lease_seconds"] = _STREAM_SECONDS if stream else _BATCH_SECONDS
        named = [name for name in NAMING if values[name] is not None]
        if not named:
            raise refused(
                [FieldError("queue", f"must be given, or {' or '.join(NAMING[1:])}")], of=QUEUE
            )
        if len(named) > 1:
            raise refused([FieldError(named[1], f"has no meaning beside {named[0]}")], of=QUEUE)
        if values["on_commit"] is not None and not stream:
            message = "has a meaning only for a stream: a batch job settles its tasks by a write"
            raise refused([FieldError("on_commit", message)], of=QUEUE)
        own = {row.name: values[row.name] for row in READING if row not in connect.OPTIONS}
        connection = StoreConnection.of(values)
        if own["poll_after_seconds"] is None:
            own["poll_after_seconds"] = _FILE_POLL_SECONDS if connection.url else _POLL_SECONDS
        return cls(connection, **own)

    def check(self, columns: str) -> None:
        """Refuse, before anything is leased, what can be known to be wrong.

        Raises InvalidRequest for other *columns* than the format's, and NotFound for a queue of
        ``on_commit`` that is missing, and where no queue is like the pattern.
        """
        if columns != SCHEMA:
            message = (
                f"{QUEUE}: leave out the schema: a read always has the columns {SCHEMA}. Say"
                " .select(…) for some of them"
            )
            raise InvalidRequest(message, errors=[FieldError("schema", message)])
        self.known()
        named = [("queue", self.queue), *(("queues", name) for name in self.queues or ())]
        if self.on_commit is not None:
            named.append(("on_commit", self.on_commit.to_queue))
        check_queues(opened(self.connection).queues, named, of=QUEUE)

    @property
    def about(self) -> str:
        """What it reads, for people."""
        return self.queue or self.queue_pattern or ", ".join(self.queues or ())

    def names(self) -> list[str]:
        """Return the queues that there are to read now."""
        if self.queue is not None:
            return [self.queue]
        if self.queue_pattern is None:
            return list(self.queues or ())
        queues, cursor = opened(self.connection).queues, None
        found: list[str] = []
        while True:
            page = queues.list(prefix=_literal(self.queue_pattern), limit=_PAGE, cursor=cursor)
            found += [one.name for one in page.shown if one.settings.target is None]
            cursor = page.cursor
            if cursor is None:
                return [name for name in found if fnmatchcase(name, self.queue_pattern)]

    def known(self) -> list[str]:
        """Return names().  Raises NotFound where no queue is like the pattern."""
        names = self.names()
        if not names and self.queue_pattern is not None:
            message = f"{QUEUE}: option queue_pattern: no queue is like {self.queue_pattern}"
            raise NotFound(message, errors=[FieldError("queue_pattern", message)])
        return names

    def due(self, *, by: datetime | None = None) -> bool:
        """Whether a task is due, or was due *by* an instant.

        Raises NotFound for a queue that is missing, and InvalidRequest for one with a target.
        """
        shards = shard_deliveries(self.connection)
        names = self.names()
        for name in names:
            shards.source(name)  # each of them is there, though another has something
        return any(shards.due(name, by=by) for name in names)

    def plan(self) -> "Plan":
        """Return the shards of a batch of all tasks that are due now.

        Raises NotFound for a queue that is missing, and InvalidRequest for one with a target.
        """
        shards = shard_deliveries(self.connection)
        waiting = {name: shards.waiting(name) for name in self.names()}
        if self.queue is not None:
            return Plan(len(waiting[self.queue]), waiting[self.queue])
        most = sorted(waiting, key=lambda name: -sum(waiting[name]))[:LEASE_QUEUES]
        some = sorted(name for name in most if any(waiting[name])) or sorted(most)
        due = [number for name in some for number in waiting[name]]
        return Plan({name: len(waiting[name]) for name in some}, due)

    def oldest_ready(self) -> float | None:
        """Return for how many seconds the oldest ready task has been due; None without one.

        Raises as plan() does.
        """
        shards = shard_deliveries(self.connection)
        ages = [age for name in self.names() if (age := shards.oldest_ready(name)) is not None]
        return max(ages, default=None)

    def pause(self) -> float:
        """Return the seconds from a look that found nothing until the next."""
        if self.connection.url is not None:
            return _FILE_PAUSE
        shards = shard_deliveries(self.connection)
        return max((shards.queries(name) for name in self.names()), default=1.0)

    def open(self) -> list[QueuePartition]:
        """Open a group and divide it: a share for each shard.  Raises as plan() does."""
        plan = self.plan()
        group = opened(self.connection).leases.open(None, keepalive=self.lease_seconds)
        rooms = rooms_by(self.max_rows, plan.due, group.id)
        return self.shares(group.id, plan.shards, rooms)

    def batch(self, group_id: str) -> list[QueuePartition]:
        """Return the shares of a station's batch.  Raises as plan() does.

        Those of one queue are even, without a count of due tasks in each shard.
        """
        if self.queue is None:
            plan = self.plan()
            return self.shares(group_id, plan.shards, rooms_by(self.max_rows, plan.due, group_id))
        queue = shard_deliveries(self.connection).source(self.queue)
        shards = max(queue.shards_of(State.ENQUEUED), queue.shards_of(State.INFLIGHT))
        return self.shares(group_id, shards, even_rooms(self.max_rows, shards, group_id))

    def most(self, limit: object, due: int) -> int:
        """Return how many rows a micro-batch may have at Spark's *limit*, if so many are *due*.

        With the trigger ``once`` there is no limit: all of them are wanted.
        """
        if limit is None:  # before Spark 4.2
            return self.max_rows
        most = getattr(limit, "max_rows", None)
        return max(self.max_rows, min(due, MOST_ROWS)) if most is None else int(most)

    def by_queue(self, shards: Shards) -> dict[str, int]:
        """Return how many shards are read of each queue, in the order of their names.

        Raises InvalidRequest where *shards* are those of one queue, and this is of several.
        """
        if not isinstance(shards, int):
            return dict(sorted(shards.items()))
        if self.queue is not None:
            return {self.queue: shards}
        message = f"{QUEUE}: this checkpoint is of one queue: name it by the option queue"
        raise InvalidRequest(message, errors=[FieldError("queue", message)])

    def shares(
        self,
        group_id: str,
        shards: Shards,
        rooms: Sequence[int],
        *,
        stream: bool = False,
        lapsed: bool = False,
    ) -> list[QueuePartition]:
        """Return the shares of a group: always the same for the same arguments.

        *rooms* is how many tasks each shard may give.  *lapsed* is whether the lease of a
        micro-batch of a *stream* has ended.  Raises as by_queue() does.
        """
        made: list[QueuePartition] = []
        parts = sum(room > 0 for room in rooms)
        most_bytes = self.max_bytes and max(1, self.max_bytes // max(1, parts))
        for queue, of in self.by_queue(shards).items():
            first = len(made)
            request = LeaseRequest(
                self.connection,
                queue,
                group_id,
                self.station,
                tuple(rooms[first : first + of]),
                self.rate,
                first,
                most_bytes,
                stream,
                lapsed,
            )
            made += [QueuePartition(request, shard) for shard in range(of)]
        return made


def even_rooms(rows: int, shards: int, group: str) -> tuple[int, ...]:
    """Return how many of *rows* tasks each of so many *shards* may give to a *group*.

    Where they do not divide evenly, some shards give one more; the group decides which, so that no
    shard starves.
    """
    each, more = divmod(rows, shards)
    turn = crc32(group.encode())
    return tuple(each + ((shard + turn) % shards < more) for shard in range(shards))


def rooms_by(rows: int, due: Sequence[int], group: str) -> tuple[int, ...]:
    """Return how many of *rows* tasks each shard may give, of which so many are *due*.

    They are shared evenly; where a shard has fewer due, the shards with more give the rest.
    """
    rooms = even_rooms(rows, len(due), group)
    less = [max(0, room - number) for room, number in zip(rooms, due, strict=True)]
    more = [max(0, number - room) for room, number in zip(rooms, due, strict=True)]
    spare = min(sum(less), sum(more))
    taken, given = _spread(spare, less), _spread(spare, more)
    return tuple(room - out + into for room, out, into in zip(rooms, taken, given, strict=True))


def _spread(number: int, most: Sequence[int]) -> list[int]:
    """Divide *number* into parts as even as can be, none larger than *most* says."""
    parts = [0] * len(most)
    for done, place in enumerate(sorted(range(len(most)), key=most.__getitem__)):
        parts[place] = min(most[place], number // (len(most) - done))
        number -= parts[place]
    return parts


def _literal(pattern: str) -> str:
    """Return the text before the first wildcard of *pattern*."""
    return re.split(r"[*?]", pattern, maxsplit=1)[0]


def columns_of(schema: StructType) -> str:
    """Return the columns of *schema* as SCHEMA has them."""
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in schema)


def partition_of(given: api.InputPartition) -> QueuePartition:
    """Return a partition as it was made here."""
    return cast("QueuePartition", given)
