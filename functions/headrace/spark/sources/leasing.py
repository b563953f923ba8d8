"""Tasks as rows, leased under a group: taken shard by shard, kept alive, and swept in the end.

Spark may read a share again, for a retried or a speculative task or a stage that runs again.  Each
read has the rows that the claim log of the group names, as they were when they were leased.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    is_leased,
    lacking,
    lapsed_in,
    leases_in,
    only,
    with_payloads,
)
from headrace.spark.sources.connect import StoreConnection, opened, store
from headrace.spark.sources.decode import INSTANT, schema_of
from headrace.spark.sources.rate_limit import shared_limiter
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


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A request to lease tasks of *queue* under *group*, in *worker*'s name.

    *rooms* is how many tasks each shard may give, always the same for one group.  *rate* is how
    many tasks a second the whole group may lease, None for any number.  *first* is the
    number of its first shard among those of all queues that the group leases from.  *most_bytes* is
    how many bytes of payloads a shard may give, about; None for any number.  *stream* is
    whether a micro-batch of a stream reads, which ends with its group; other reads fail then.
    *lapsed* is of a stream: the lease of this micro-batch had ended when the query planned it.
    """

    connection: StoreConnection
    queue: str
    group: str
    worker: str
    rooms: tuple[int, ...]
    rate: float | None = None
    first: int = 0
    most_bytes: int | None = None
    stream: bool = False
    lapsed: bool = False


def leased(request: LeaseRequest, shard: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows that *request* has claimed in *shard*, and then those it can still lease.

    It leaves out rows whose lease ended before their tasks were settled: it reclaims their tasks,
    so they come again in a later batch.  All reads of one attempt at a micro-batch agree on that,
    because the driver decides it when it plans the attempt; each read of a frame decides for
    itself.  Raises LeaseLost when the group has ended.
    """
    uses = opened(request.connection)
    share = ShardShare(
        GroupClaims(store(request.connection), request.group),
        request.first + shard,
        request.rooms[shard],
        partial(_lease, request, shard),
        partial(_held, request, shard),
        partial(release, request.connection, request.queue),
        uses.now,
    )
    if request.lapsed:
        share.claims.note_lapsed(now=uses.now())
    for page, before in share.pages():
        ended = request.lapsed or (before and not request.stream and not _is_open(request))
        rows = only(page, [not lapsed for lapsed in _taken_back(request, page)]) if ended else page
        if rows.num_rows:
            yield _as_it_was(uses, rows) if before else rows


def replayed(request: LeaseRequest, shard: int, ids: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield those rows of *ids* that were claimed in *shard*, as they were; lease nothing."""
    uses, number = opened(request.connection), 0
    claims = GroupClaims(store(request.connection), request.group)
    while (page := claims.page(request.first + shard, number)) is not None and page.num_rows:
        rows = only(page, [id_ in ids for id_, _ in leases_in(page)])
        if rows.num_rows:
            yield _as_it_was(uses, rows)
        number += 1


def _is_open(request: LeaseRequest) -> bool:
    group = find_group(store(request.connection), request.group)
    return group is not None and group.holds(opened(request.connection).now())


def _taken_back(request: LeaseRequest, page: pa.RecordBatch) -> list[bool]:
    """Reclaim the tasks of *page* that an ended group still holds; return which rows have lapsed.

    A late report counts until its task is reclaimed; after that no report under the old lease can
    settle it.  So this comes before the row is left out.
    Raises Unavailable if the tasks keep changing.
    """
    uses, tables = opened(request.connection), store(request.connection)
    for _ in range(_LOOKS):
        tasks = tables.read(page.column("id").to_pylist(), payload=False)
        held = [
            tasks[id_]
            for id_, lease in leases_in(page)
            if is_leased(tasks.get(id_), lease, request.queue)
        ]
        if not held:
            return lapsed_in(page, request.queue, request.group, tasks)
        entries = [Entry.of(task) for task in held]
        queue = uses.queues.cached(request.queue)
        statuses = GroupStatuses(tables, uses.now)
        list(uses.reaping.take_back(queue, entries, statuses))
    message = (
        f"{QUEUE}: queue {request.queue}, batch {request.group}: the lease has ended and tasks"
        " keep changing. Run the query or job again"
    )
    raise Unavailable(message)


def _lease(request: LeaseRequest, shard: int, room: int) -> Iterator[pa.RecordBatch]:
    shards = shard_deliveries(request.connection)
    limit = shared_limiter(request.connection, request.group, request.rate)
    allowed = taken = size = 0

    def page() -> int:
        nonlocal allowed
        limit.back(allowed)
        wanted = min(ROWS, room)
        if request.most_bytes is not None:  # by the mean size so far; at first as if all were large
            mean = size / taken if taken else INLINE
            wanted = max(1, min(wanted, int((request.most_bytes - size) / max(1, mean))))
        allowed = limit.next(wanted)
        return allowed

    try:
        for _ in range(_LOOKS):
            pages = shards.dequeue(
                request.queue,
                shard,
                count=room,
                worker=request.worker,
                lease_id=request.group,
                page=page,
            )
            before = room
            for tasks in pages:
                room -= len(tasks)
                allowed -= len(tasks)
                taken += len(tasks)
                size += sum(len((task.payload or "").encode()) for task in tasks)
                yield record_batch(tasks)
                if request.most_bytes is not None and size >= request.most_bytes:
                    return
            if room < before or not shards.contended(request.queue, shard):
                return
            time.sleep(_PAUSE)  # another reader of this share or another worker is leasing them
    except LeaseLost as lost:
        if not request.stream:
            message = (
                f"{QUEUE}: queue {request.queue}, batch {request.group}: its lease has ended."
                " Run it again; if the work takes longer, with a longer lease_seconds"
            )
            raise LeaseLost(message) from lost
    finally:
        limit.back(allowed)


def _held(request: LeaseRequest, shard: int) -> Iterator[pa.RecordBatch]:
    uses = opened(request.connection)
    source = {request.queue: uses.queues.cached(request.queue)}
    for tasks in chunks(uses.leases.held(request.group, request.queue, shard), ROWS):
        yield record_batch(uses.deliveries.with_payloads(source, list(tasks)))


def _as_it_was(uses: Service, page: pa.RecordBatch) -> pa.RecordBatch:
    """Return *page* with the payloads that were not written down, as their tasks have them now."""
    missing = lacking(page)
    tasks = list(uses.deliveries.store.read(missing).values()) if missing else []
    filled = uses.deliveries.service.texts.filled(tasks) if tasks else []
    return with_payloads(page, {task.id: task.payload for task in filled})


def release(
    connection: StoreConnection, queue: str, tasks: Sequence[Lease], *, delay: float = 0.0
) -> int:
    """Release tasks of *queue* by id and lease, no attempt used; return how many were released.

    The end of the group releases the others.
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
    """Report the tasks of *queue* that *group_id* still holds as failed; return how many.

    So a task that the transform drops each time is dead in the end, and a drain ends.  Tasks that
    were leased but not claimed are released, no attempt used: no transform has seen them.
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
    """Tasks by id and lease that a group still holds: those a reader has seen, and the others."""

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
