"""One batch of a station: open a group, lease, transform, settle, sweep, close."""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.client.threads import PeriodicThread
from headrace.domain.errors import HeadraceError, Unavailable
from headrace.domain.ids import group_of
from headrace.domain.task import State
from headrace.ops.delivery.reports import ReportStatus, TaskReport
from headrace.ops.shared.leases import find_group
from headrace.spark.sources.claims import GroupClaims
from headrace.spark.sources.connect import opened, store
from headrace.spark.sources.leasing import group_heartbeat, sweep
from headrace.spark.sources.reading import QueuePartition, QueueReading
from headrace.spark.sources.rows import chunks
from headrace.spark.sources.settle_target import SettleTarget
from headrace.spark.sources.settling import SettleSummary
from headrace.spark.stations import jobs
from headrace.spark.stations.figures import Batch
from headrace.spark.stations.jobs import JobError, StationFailed, job_error, worker_error
from headrace.spark.stations.settings import StationSettings
from headrace.spark.stations.transforms import settling_frame

_LOG: Final = logging.getLogger(__name__)
_CRASHES: Final = 3
"""After so many deaths of its job a single task counts as the cause."""
_PARTS: Final = 1_000
"""Partitions of a search for tasks at fault: each is a part of a job, which costs milliseconds."""
_HALVING_JOBS: Final = 100
"""Jobs of a search that needs a plan for each, which costs seconds."""
_CANCELLED: Final = "SPARK_JOB_CANCELLED"
_LOOK_EVERY: Final = 0.1  # seconds, for a shutdown


@dataclass(slots=True)
class _Under:
    """The batch under way: its group, and whether it was called off."""

    group_id: str
    called_off: bool = False
    lost: bool = False
    jobs: int = 0
    shares: Sequence[QueuePartition] = ()
    summary: SettleSummary = field(default_factory=SettleSummary)

    def is_over(self) -> bool:
        """Return whether another thread has called it off by now."""
        return self.called_off


@dataclass(slots=True)
class _Poison:
    """The tasks of a batch at fault, by id, and whether the transform works for any other."""

    errors: dict[str, Exception] = field(default_factory=dict)
    works: bool = False


class BatchRunner:
    """Makes the batches of one run of a station, one after the other."""

    def __init__(
        self,
        station: StationSettings,
        spark: SparkSession,
        reading: QueueReading,
        stopping: threading.Event,
        clock: Callable[[], float],
        *,
        divides: bool,
    ) -> None:
        """Prepare a run.

        *divides* is whether the transform may put the rows of a task into different partitions.
        *stopping* ends a batch early, *clock* is seconds for its figures.
        """
        self._station = station
        self._spark = spark
        self._reading = reading
        self._connection = connection = reading.connection
        self._uses = opened(connection)
        self._divides = divides
        self._stopping = stopping
        self._clock = clock
        self._number = 0
        self._target = SettleTarget(connection, station.queue, station.to)

    def next(self) -> Batch:
        """Lease, transform and settle the tasks that are due, up to the station's batch size.

        Raises StationFailed, and Unavailable when the tables stay away; held tasks are released.
        """
        begin = self._clock()
        self._number += 1
        under = _Under(self._uses.leases.open(None, keepalive=self._station.lease_seconds).id)
        try:
            with self._watched(under):
                self._work(under)
        finally:
            self._close(under)
        counts = {outcome: number for outcome, number in under.summary.counts.items() if number}
        seconds = self._clock() - begin
        return Batch(self._number, seconds, counts, under.summary.reasons, under.lost)

    @contextmanager
    def _watched(self, under: _Under) -> Iterator[None]:
        """Extend the group, and call the batch off when it is lost or stopping takes too long."""
        context = self._spark.sparkContext
        name = under.group_id.rpartition("_")[2]
        about = f"station {self._station.about} {self._number}"
        context.setJobGroup(name, about, interruptOnCancel=True)

        def call_off() -> None:
            under.called_off = True
            context.cancelJobGroup(name)

        def lost() -> None:
            under.lost = True
            call_off()

        leases, station = self._uses.leases, self._station
        beat = group_heartbeat(
            leases, under.group_id, lease_seconds=station.lease_seconds, on_lost=lost
        )
        try:
            with beat, _shutdown_deadline(self._stopping, station.grace_seconds, call_off):
                yield
        except BaseException:
            context.cancelJobGroup(name)  # also what Ctrl-C has cut off
            raise

    def _work(self, under: _Under) -> None:
        under.shares = self._reading.batch(under.group_id)
        error = self._ran(under, lambda: self._settled(jobs.leasing(self._spark, under.shares)))
        if error is not None and not under.called_off and job_error(error) is JobError.CRASHED:
            error = self._part(under, self._held(under))  # mostly not a task's doing
        if error is not None and not under.called_off:
            self._search(under, self._held(under))
        if not under.called_off:
            for queue in self._queues(under):
                swept = sweep(self._connection, queue, under.group_id)
                under.summary.counts["dropped"] += swept

    def _queues(self, under: _Under) -> list[str]:
        """Return the queues that the batch has leased from."""
        if self._station.queue is not None:
            return [self._station.queue]
        group = find_group(store(self._connection), under.group_id)
        return sorted(group.queues) if group is not None else []

    def _settled(self, leased: DataFrame) -> SettleSummary:
        return jobs.settled(self._made(leased), self._target)

    def _made(self, leased: DataFrame) -> DataFrame:
        """Return the settling frame that the transform makes of what is *leased*."""
        made = settling_frame(self._station.transform(leased), several=self._target.queue is None)
        return made.repartition("id").sortWithinPartitions("id") if self._divides else made

    def _ran(self, under: _Under, job: Callable[[], SettleSummary]) -> Exception | None:
        """Run a *job* and note its outcomes; return an error that the tasks may cause.

        Raises Unavailable when it was the tables' doing, and what Spark says of a wrong plan.
        """
        under.jobs += 1
        try:
            under.summary.merge(job())
        except AnalysisException:
            raise
        except (PySparkException, Py4JError) as error:
            if self._stopping.is_set() and _CANCELLED in str(error):
                under.called_off = True  # run_together() has cancelled all jobs
            if under.called_off:
                return error
            cause = job_error(error)
            if cause is JobError.AWAY:
                message = f"station {self._station.about}, batch {self._number}: {cause.value}"
                raise Unavailable(message) from error
            if cause is JobError.OVER:
                under.lost = under.called_off = True
            _LOG.warning(
                "station %s, batch %d: a job failed, and the tasks at fault are looked for: %s",
                self._station.about,
                self._number,
                worker_error(error).message,
            )
            return error
        return None

    def _held(self, under: _Under) -> list[str]:
        return [
            task.id
            for queue in self._queues(under)
            for place in self._uses.queues.cached(queue).places(State.INFLIGHT)
            for task in self._uses.leases.held(under.group_id, queue, place.shard, payload=False)
        ]

    def _search(self, under: _Under, ids: list[str]) -> None:
        """Find the tasks of *ids* that make the transform fail, and settle all others.

        Those are dead with the error.  Raises StationFailed when there are too many of them: then
        they are dead only if the transform has worked for any other, else it is to blame.

        The tasks are divided into partitions, mostly of one task, and the frame is planned once.
        Then some partitions at a time are run, and where that fails each of them by itself.
        """
        found = _Poison()
        while ids and not under.called_off:
            parts = jobs.divided(ids, _PARTS)
            planned = self._planned(under, parts)
            if planned is None:
                self._halve(under, _halves(ids), found)
                break
            ids = []
            for number, error in self._failing(under, planned, len(parts), found):
                if len(parts[number]) == 1:
                    found.errors[parts[number][0]] = error
                else:
                    ids += parts[number]
        self._dead_letter(under, {} if under.called_off else found.errors)

    def _planned(self, under: _Under, parts: Sequence[Sequence[str]]) -> jobs.PartitionJobs | None:
        """Return the jobs of a frame with a partition for each of *parts*.

        None where the transform brings rows of several partitions together.
        """
        if self._divides:
            return None
        given = jobs.of_parts(self._spark, self._connection, under.group_id, parts)
        made = self._made(given)
        try:
            planned = jobs.PartitionJobs(made, self._target)
            return planned if planned.partitions == len(parts) else None
        except (PySparkException, Py4JError):  # of a part that planning runs, such as a broadcast
            return None

    def _failing(
        self, under: _Under, planned: jobs.PartitionJobs, partitions: int, found: _Poison
    ) -> Iterator[tuple[int, Exception]]:
        """Run all *partitions*; yield each that fails, with its error.

        Raises StationFailed when there are too many of them.
        """
        number = len(found.errors)
        for some in chunks(iter(range(partitions)), math.isqrt(partitions) + 1):
            if self._ran(under, partial(planned.run, some)) is None:
                found.works = True
                continue
            if under.is_over():
                return
            for one in some:
                error = self._ran_alone(under, partial(planned.run, [one]))
                if under.is_over():  # what it ended with is no task's doing
                    return
                if error is None:
                    found.works = True
                    continue
                yield one, error
                number += 1
                if number > self._station.max_poison:
                    self._give_up(under, found, error, self._too_many)

    def _ran_alone(self, under: _Under, job: Callable[[], SettleSummary]) -> Exception | None:
        """Run a *job* once more each time that a process dies in it, a few times in all."""
        error = self._ran(under, job)
        for _ in range(_CRASHES - 1):
            if error is None or under.called_off or job_error(error) is not JobError.CRASHED:
                break
            error = self._ran(under, job)
        return error

    def _halve(self, under: _Under, parts: list[list[str]], found: _Poison) -> None:
        """Run one part after the other, halving each that fails, down to the tasks at fault.

        It is for a transform that brings rows of several tasks together, so that each part needs a
        new plan.  Raises StationFailed if too many tasks fail or too many jobs were needed.
        """
        most = under.jobs + _HALVING_JOBS
        while parts and not under.called_off:
            part = parts.pop()
            if not part:
                continue
            error = self._ran_alone(under, self._job_of(under, part))
            if error is None:
                found.works = True
            elif len(part) > 1:
                parts += _halves(part)
            elif not under.called_off:
                found.errors[part[0]] = error
            if error is None or under.called_off:
                continue
            if len(found.errors) > self._station.max_poison:
                found.works = found.works or self._works_for_any(under, parts, most)
                self._give_up(under, found, error, self._too_many)
            if under.jobs >= most:
                why = (
                    f"the transform fails, and {_HALVING_JOBS} jobs did not find all tasks at fault"
                )
                self._give_up(under, found, error, why)

    def _works_for_any(self, under: _Under, parts: Sequence[Sequence[str]], most: int) -> bool:
        return any(under.jobs < most and not self._part(under, rest) for rest in parts if rest)

    @property
    def _too_many(self) -> str:
        most = self._station.max_poison
        return f"max_poison: the transform fails for more than {most} tasks of one batch"

    def _give_up(self, under: _Under, found: _Poison, error: Exception, why: str) -> NoReturn:
        """End the station; the tasks that were found are dead if the transform works for others."""
        self._dead_letter(under, found.errors if found.works else {})
        cause = worker_error(error)
        message = (
            f"station {self._station.about}, batch {self._number}: {why}: {cause.type}:"
            f" {cause.message}. The other tasks were released: correct the transform, and start the"
            " station again"
        )
        raise StationFailed(message) from error

    def _part(self, under: _Under, ids: Sequence[str]) -> Exception | None:
        return self._ran(under, self._job_of(under, ids))

    def _job_of(self, under: _Under, ids: Sequence[str]) -> Callable[[], SettleSummary]:
        return lambda: self._settled(jobs.replaying(self._spark, under.shares, ids))

    def _dead_letter(self, under: _Under, poison: Mapping[str, Exception]) -> None:
        """End the tasks that make the transform fail, if they are still ours."""
        tasks = store(self._connection).read(poison, payload=False)
        for task_id, error in poison.items():
            task = tasks.get(task_id)
            if task is None or group_of(task.lease_id) != under.group_id:
                continue
            reason = worker_error(error)
            report = TaskReport(
                task_id, task.lease_id or "", ReportStatus.FAILED, error=reason, retryable=False
            )
            self._uses.reports.report(task.queue, [report])
            under.summary.note("dead", f"{reason.type}: {reason.message}")
            under.summary.counts["poison"] += 1

    def _close(self, under: _Under) -> None:
        """Release the remaining tasks; the reaper reclaims them if that fails."""
        with suppress(HeadraceError):
            self._uses.leases.close(under.group_id)
        with suppress(HeadraceError):  # the table forgets it in time
            GroupClaims(store(self._connection), under.group_id).forget()


def _shutdown_deadline(
    stopping: threading.Event, seconds: float, call_off: Callable[[], None]
) -> PeriodicThread:
    """Call a batch off, for the length of a with block, when stopping it takes too long.

    *call_off* is called from another thread.
    """
    rests = iter((seconds,))

    def step() -> float | None:
        if not stopping.is_set():
            return _LOOK_EVERY
        rest = next(rests, None)
        if rest is None:
            call_off()
        return rest

    return PeriodicThread("shutdown-deadline", step, log=_LOG)


def _halves(ids: list[str]) -> list[list[str]]:
    """Return the second half, and the first, which is to come first."""
    half = len(ids) // 2
    return [ids[half:], ids[:half]] if half else [ids]
