"""Tasks as rows, leased under a group: taken shard by shard, kept alive, and swept in the end.

Called again for the same group and shard, whoever calls and why (a retried or a speculative task,
a stage run anew), it first finds what is leased already.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final
from zlib import crc32

import pyarrow as pa

from headrace.client.threads import PeriodicThread, Step
from headrace.domain.errors import HeadraceError, LeaseLost
from headrace.domain.instants import micros_of
from headrace.domain.lease import LeaseName, group_of
from headrace.domain.task import State, Task
from headrace.ops.delivery.reports import ReportOutcome, ReportStatus, TaskReport, WorkerError
from headrace.ops.delivery.shard_deliveries import ShardDeliveries
from headrace.ops.shared.leases import Leases
from headrace.spark.sources.connect import RateLimiter, StoreConnection, opened, store
from headrace.spark.sources.decode import INSTANT, schema_of
from headrace.spark.sources.rows import chunks

DROPPED: Final = WorkerError(
    "Dropped", "nothing settled this task: the transform gave no row of it"
)
_LOG: Final = logging.getLogger(__name__)
_PER_LEASE: Final = 3
ROWS: Final = 500
"""Of one record batch: payloads may be large, and all of a batch is in memory."""

SCHEMA: Final = (
    "id string, lease string, queue string, payload string, tags map<string,string>, attempts int,"
    " created_at timestamp, scheduled_at timestamp, expires_at timestamp,"
    " priority string, group_key string, batches array<string>, payload_ref string"
)
ARROW: Final = schema_of(SCHEMA)


@dataclass(frozen=True, slots=True)
class Intake:
    """What to lease: up to *max_rows* tasks, under *group* and in *worker*'s name.

    They are shared out over *shards*; if that is not known, each shard may give as many.
    *rate* is how many tasks a second each shard may give; None is as many as there are.
    """

    connection: StoreConnection
    queue: str
    group: str
    worker: str
    max_rows: int
    rate: float | None = None
    shards: int = 1

    def room(self, shard: int) -> int:
        """Return how many tasks *shard* may give, always the same for one group.

        Where the tasks do not divide evenly, some shards give one more, in turn: by the group,
        so that none of them starves.
        """
        each, more = divmod(self.max_rows, self.shards)
        return each + ((shard + crc32(self.group.encode())) % self.shards < more)


def leased(intake: Intake, shard: int) -> Iterator[pa.RecordBatch]:
    """Yield what *intake* holds in *shard*, and then what it can still lease there.

    Raises LeaseLost when the group is over.
    """
    uses = opened(intake.connection)
    room = intake.room(shard)
    held = uses.leases.held(intake.group, intake.queue, shard)
    source = {intake.queue: uses.queues.cached(intake.queue)}
    for tasks in chunks(held, ROWS):
        room -= len(tasks)
        yield record_batch(uses.deliveries.whole(source, list(tasks)))
    limiter = RateLimiter(intake.rate)
    pages = shard_deliveries(intake.connection).dequeue(
        intake.queue,
        shard,
        count=room,
        worker=intake.worker,
        lease_id=intake.group,
        page=lambda: limiter.next(ROWS),
    )
    for tasks in pages:
        yield record_batch(tasks)


def named(
    connection: StoreConnection, queue: str, group_id: str, ids: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield those tasks of *ids* that a group still holds of *queue*.

    Without those whose payload is lost: they are dead.
    """
    uses = opened(connection)
    source = {queue: uses.queues.cached(queue)}
    for start in range(0, len(ids), ROWS):
        found = store(connection).read(ids[start : start + ROWS]).values()
        held = [
            task for task in found if task.queue == queue and group_of(task.lease_id) == group_id
        ]
        yield record_batch(uses.deliveries.whole(source, held))


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
            pa.array([str(LeaseName.of(task)) for task in tasks], pa.string()),
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
    uses = opened(connection)
    return ShardDeliveries(
        store(connection), uses.queues, uses.reaping, uses.deliveries, uses.leases, uses.now
    )


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
    """
    uses = opened(connection)
    swept = 0
    for place in uses.queues.cached(queue).places(State.INFLIGHT):
        for tasks in chunks(uses.leases.held(group_id, queue, place.shard, payload=False), ROWS):
            reports = [
                TaskReport(task.id, str(LeaseName.of(task)), ReportStatus.FAILED, error=DROPPED)
                for task in tasks
            ]
            results = uses.reports.report(queue, reports)
            swept += sum(one.outcome is ReportOutcome.OK for one in results)
    return swept
