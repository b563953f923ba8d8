"""Tasks as rows, leased under a group: taken shard by shard, kept alive, and swept in the end.

Called again for the same group and shard, whoever calls and why (a retried or a speculative task,
a stage run anew), it first finds what is leased already.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import Final

import pyarrow as pa

from headrace.client.threads import PeriodicThread, Step
from headrace.domain.change import Entry
from headrace.domain.errors import HeadraceError, LeaseLost, Unavailable
from headrace.domain.ids import group_of
from headrace.domain.task import State, Task
from headrace.domain.times import micros_of
from headrace.ops.delivery.reports import (
    ReportOutcome,
    ReportStatus,
    TaskReport,
    WorkerError,
)
from headrace.ops.delivery.shard_deliveries import ShardDeliveries
from headrace.ops.shared.leases import GroupStatuses, Leases, find_group
from headrace.runtime.service import Service
from headrace.spark.sources import QUEUE
from headrace.spark.sources.claims import (
    INLINE,
    GroupClaims,
    Lease,
    ShardShare,
    held_in,
    is_leased,
    lacking,
    lapsed_in,
    leases_in,
    only,
    with_payloads,
)
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.decode import INSTANT, schema_of
from headrace.spark.sources.pace import pace
from headrace.spark.sources.rooms import even_rooms
from headrace.spark.sources.rows import chunks

DROPPED: Final = WorkerError(
    "Dropped", "nothing settled this task: the transform gave no row of it"
)
_LOG: Final = logging.getLogger(__name__)
_PER_LEASE: Final = 3
_LOOKS: Final = 4
_PAUSE: Final = 0.1  # seconds
ROWS: Final = 500
"""Of one record batch: payloads may be large, and all of a batch is in memory."""

SCHEMA: Final = (
    "id string, lease string, queue string, payload string, tags map<string,string>, attempts int,"
    " created_at timestamp, scheduled_at timestamp, expires_at timestamp,"
    " priority string, group_key string, batches array<string>, payload_ref string"
)
ARROW: Final = schema_of(SCHEMA)
FRAME: Final = f"{SCHEMA}, lapsed boolean"
"""The columns of a frame and a stream, whose rows may be read again.

``lapsed`` marks a row whose lease ended before its task was settled.  The task was taken back
before the row was shown, so this lease can no longer settle it: it comes again in a later batch.
"""
FRAME_ARROW: Final = schema_of(FRAME)


class Reading(StrEnum):
    """Who reads, and so what a reader is given of what was claimed before.

    A station's job is given only what it still holds; a frame, and a stream whose batch comes
    again, all of it as it was.  A stream's batch ends with its group; the others fail then.
    """

    STATION = "station"
    FRAME = "frame"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Intake:
    """What to lease: up to *max_rows* tasks, under *group* and in *worker*'s name.

    They are shared out over *shards*, as *rooms* says or else evenly; if neither is known, each
    shard may give as many.  *rate* is how many tasks a second the whole group may lease; None is as
    many as there are.  *first* is the number of its first shard among those of all queues that the
    group leases from.  *lapsed* is of a stream: the rows of this micro-batch are shown as lapsed.
    """

    connection: StoreConnection
    queue: str
    group: str
    worker: str
    max_rows: int
    rate: float | None = None
    shards: int = 1
    reading: Reading = Reading.STATION
    rooms: tuple[int, ...] | None = None
    first: int = 0
    lapsed: bool = False

    def room(self, shard: int) -> int:
        """Return how many tasks *shard* may give, always the same for one group."""
        rooms = self.rooms or even_rooms(self.max_rows, self.shards, self.group)
        return rooms[shard % len(rooms)]


def leased(intake: Intake, shard: int) -> Iterator[pa.RecordBatch]:
    """Yield what *intake* has claimed in *shard*, and then what it can still lease there.

    Raises LeaseLost when the group is over.
    """
    for rows, _ in claimed(intake, shard):
        yield rows


def claimed(intake: Intake, shard: int) -> Iterator[tuple[pa.RecordBatch, list[bool]]]:
    """Yield rows as leased() does, and of each whether its lease has lapsed.

    All reads of one attempt at a micro-batch agree on that: the driver decides it when it plans
    the attempt.  A frame has no such moment, so each read of a frame decides for itself.
    """
    uses = opened(intake.connection)
    again = intake.reading is not Reading.STATION
    share = ShardShare(
        GroupClaims(store(intake.connection), intake.group),
        intake.first + shard,
        intake.room(shard),
        partial(_lease, intake, shard),
        partial(_held, intake, shard),
        partial(release, intake.connection, intake.queue),
        uses.now,
        INLINE if again else 0,
    )
    if intake.lapsed:
        share.claims.note_shown_as_lapsed(now=uses.now())
    for page, before in share.pages():
        none_lapsed = [False] * page.num_rows
        if again:
            over = intake.lapsed or (
                before and intake.reading is Reading.FRAME and not _is_open(intake)
            )
            lapsed = _taken_back(intake, page) if over else none_lapsed
            yield (_as_it_was(uses, page) if before else page), lapsed
        elif not before:
            yield page, none_lapsed
        else:
            tasks = store(intake.connection).read(page.column("id").to_pylist(), payload=False)
            held = held_in(page, intake.queue, tasks, opened=_is_open(intake))
            if any(held):
                yield from ((rows, [False] * rows.num_rows) for rows in _still(intake, page, held))


def _is_open(intake: Intake) -> bool:
    group = find_group(store(intake.connection), intake.group)
    return group is not None and group.holds(opened(intake.connection).now())


def _taken_back(intake: Intake, page: pa.RecordBatch) -> list[bool]:
    """Take back what a group that is over still holds of *page*; return which rows have lapsed.

    A late report counts until a task is taken back.  So this comes before a row is shown as lapsed:
    afterwards no report under the lease can settle its task, whoever makes it.
    Raises Unavailable if the tasks keep changing.
    """
    uses, tables = opened(intake.connection), store(intake.connection)
    for _ in range(_LOOKS):
        tasks = tables.read(page.column("id").to_pylist(), payload=False)
        held = [
            tasks[id_]
            for id_, lease in leases_in(page)
            if is_leased(tasks.get(id_), lease, intake.queue)
        ]
        if not held:
            return lapsed_in(page, intake.queue, intake.group, tasks)
        entries = [Entry.of(task) for task in held]
        queue = uses.queues.cached(intake.queue)
        statuses = GroupStatuses(tables, uses.now)
        list(uses.reaping.take_back(queue, entries, statuses))
    message = f"{QUEUE}: tasks of queue {intake.queue} keep changing while they are taken back"
    raise Unavailable(message)


def framed(intake: Intake, shard: int) -> Iterator[pa.RecordBatch]:
    """Yield what claimed() does as rows of FRAME.  Raises as it does."""
    for rows, lapsed in claimed(intake, shard):
        arrays = [*rows.columns, pa.array(lapsed, pa.bool_())]
        yield pa.RecordBatch.from_arrays(arrays, schema=FRAME_ARROW)


def _lease(intake: Intake, shard: int, room: int) -> Iterator[pa.RecordBatch]:
    shards = shard_deliveries(intake.connection)
    limit = pace(intake.connection, intake.group, intake.rate)
    allowed = 0

    def page() -> int:
        nonlocal allowed
        limit.back(allowed)
        allowed = limit.next(min(ROWS, room))
        return allowed

    try:
        for _ in range(_LOOKS):
            pages = shards.dequeue(
                intake.queue,
                shard,
                count=room,
                worker=intake.worker,
                lease_id=intake.group,
                page=page,
            )
            before = room
            for tasks in pages:
                room -= len(tasks)
                allowed -= len(tasks)
                yield record_batch(tasks)
            if room < before or not shards.contended(intake.queue, shard):
                return
            time.sleep(_PAUSE)  # another reader of this share is leasing them, or somebody else
    except LeaseLost:
        if intake.reading is not Reading.STREAM:
            raise
    finally:
        limit.back(allowed)


def _held(intake: Intake, shard: int) -> Iterator[pa.RecordBatch]:
    uses = opened(intake.connection)
    source = {intake.queue: uses.queues.cached(intake.queue)}
    for tasks in chunks(uses.leases.held(intake.group, intake.queue, shard), ROWS):
        yield record_batch(uses.deliveries.with_payloads(source, list(tasks)))


def _as_it_was(uses: Service, page: pa.RecordBatch) -> pa.RecordBatch:
    """Return *page* with the payloads that were not written down, as their tasks have them now."""
    missing = lacking(page)
    tasks = list(uses.deliveries.store.read(missing).values()) if missing else []
    filled = uses.deliveries.service.texts.filled(tasks) if tasks else []
    return with_payloads(page, {task.id: task.payload for task in filled})


def _still(intake: Intake, page: pa.RecordBatch, held: list[bool]) -> Iterator[pa.RecordBatch]:
    """Yield those rows of *page* that are held, without those whose payload is lost."""
    rows = only(page, held)
    uses = opened(intake.connection)
    source = {intake.queue: uses.queues.cached(intake.queue)}
    found = store(intake.connection).read(rows.column("id").to_pylist())
    leases = dict(leases_in(rows))
    tasks = [task for id_, task in found.items() if task.lease_id == leases[id_]]
    if tasks := uses.deliveries.with_payloads(source, tasks):
        yield record_batch(tasks)


def release(
    connection: StoreConnection, queue: str, tasks: Sequence[Lease], *, delay: float = 0.0
) -> int:
    """Give back tasks of *queue* by id and lease, no attempt used; return how many went.

    What cannot be given back now comes back when its group ends.
    """
    if not tasks:
        return 0
    reports = [
        TaskReport(id_, lease, ReportStatus.RELEASED, delay_in_seconds=delay or None)
        for id_, lease in tasks
    ]
    with suppress(HeadraceError):
        results = opened(connection).reports.report(queue, reports)
        return sum(one.outcome is ReportOutcome.OK for one in results)
    return 0


def named(
    connection: StoreConnection, group_id: str, ids: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield those tasks of *ids* that a group still holds.

    Without those whose payload is lost: they are dead.
    """
    uses = opened(connection)
    for start in range(0, len(ids), ROWS):
        found = store(connection).read(ids[start : start + ROWS]).values()
        held = [task for task in found if group_of(task.lease_id) == group_id]
        sources = {name: uses.queues.cached(name) for name in {task.queue for task in held}}
        yield record_batch(uses.deliveries.with_payloads(sources, held))


def record_batch(tasks: Sequence[Task]) -> pa.RecordBatch:
    """Return *tasks*, all in flight, as rows of SCHEMA."""
    instants = [
        [None if at is None else micros_of(at) for at in column]
        for column in (
            [task.created_at for task in tasks],
            [task.due_at for task in tasks],
            [task.expires_at for task in tasks],
        )
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([task.id for task in tasks], pa.string()),
            pa.array([task.lease_id for task in tasks], pa.string()),
            pa.array([task.queue for task in tasks], pa.string()),
            pa.array([task.payload for task in tasks], pa.string()),
            pa.array([list(task.tags.items()) for task in tasks], ARROW.field("tags").type),
            pa.array([task.attempts for task in tasks], pa.int32()),
            *(pa.array(column, pa.int64()).cast(INSTANT) for column in instants),
            pa.array([task.priority for task in tasks], pa.string()),
            pa.array([task.group_key for task in tasks], pa.string()),
            pa.array([list(task.batch_ids) for task in tasks], ARROW.field("batches").type),
            pa.array([_uploaded(task) for task in tasks], pa.string()),
        ],
        schema=ARROW,
    )


def _uploaded(task: Task) -> str | None:
    """Return size, sha256 and name of a payload that was uploaded, as ``headrace.table`` does."""
    one = task.uploaded
    return None if one is None else f"{one.bytes} {one.sha256} {one.name}"


@cache
def shard_deliveries(connection: StoreConnection) -> ShardDeliveries:
    """Return the use cases of whole shards, made once in each process."""
    return opened(connection).shard_deliveries


def heartbeat(seconds: float, call: Callable[[], bool], *, name: str) -> Step:
    """The step that does *call* every so many seconds, until it returns False.

    An error of the service is logged: the next call may get through.
    """

    def step() -> float | None:
        try:
            return seconds if call() else None
        except HeadraceError as error:
            _LOG.warning("%s: %s", name, error)
            return seconds

    return step


def group_heartbeat(
    leases: Leases,
    group_id: str,
    *,
    lease_seconds: float,
    on_lost: Callable[[], None] = lambda: None,
) -> PeriodicThread:
    """Extend a group at each third of its lease, from a thread: one write for all its tasks.

    *on_lost* is called, from the thread, when the group has ended all the same: what it held is
    others' now.
    """

    def extend() -> bool:
        try:
            leases.extend(group_id)
        except LeaseLost:
            on_lost()
            return False
        return True

    seconds, name = lease_seconds / _PER_LEASE, "heartbeat of a station's lease"
    step = heartbeat(seconds, extend, name=name)
    return PeriodicThread(name, step, first_after=seconds, log=_LOG)


def sweep(connection: StoreConnection, queue: str, group_id: str) -> int:
    """Report what *group_id* still holds of *queue* as failed; return how many tasks that were.

    So a task that is dropped time and again is dead in the end, and no drain goes on for ever.
    What nobody was given, because it was leased but never claimed, goes back with no attempt used.
    """
    swept = 0
    for held in leftovers(connection, queue, group_id):
        release(connection, queue, held.unseen)
        swept += dropped(connection, queue, held.seen)
    return swept


def dropped(connection: StoreConnection, queue: str, tasks: Sequence[Lease]) -> int:
    """Report tasks of *queue* as failed that no row was given of; return how many they were."""
    reports = [TaskReport(id_, lease, ReportStatus.FAILED, error=DROPPED) for id_, lease in tasks]
    results = opened(connection).reports.report(queue, reports)
    return sum(one.outcome is ReportOutcome.OK for one in results)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Tasks by id and lease that a group holds still: those that a reader was given, and others."""

    seen: list[Lease]
    unseen: list[Lease]


def leftovers(connection: StoreConnection, queue: str, group_id: str) -> Iterator[Leftovers]:
    """Yield what *group_id* still holds of *queue*."""
    uses = opened(connection)
    claims: dict[str, str] | None = None
    for place in uses.queues.cached(queue).places(State.INFLIGHT):
        for tasks in chunks(uses.leases.held(group_id, queue, place.shard, payload=False), ROWS):
            if claims is None:
                claims = GroupClaims(store(connection), group_id).leases()
            held = [(task.id, task.lease_id or "") for task in tasks]
            seen = [one for one in held if claims.get(one[0]) == one[1]]
            yield Leftovers(seen, [one for one in held if claims.get(one[0]) != one[1]])
