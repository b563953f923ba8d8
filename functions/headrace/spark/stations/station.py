"""A station: it leases the due tasks of a queue, transforms them with Spark, and moves them on.

It is a loop of plain batch jobs in the driver.  Each batch has a group lease, which a thread
extends while the job runs; every task is settled by one conditional write that requires its lease.
So each task takes effect once, however often Spark runs a part of a job, and whichever process is
killed.  The end of a batch settles its remaining tasks, or, after a crash, the reaper does.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import SparkSession

from headrace import __version__
from headrace.client.threads import PeriodicThread
from headrace.domain.access import Principal, Role
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.limits import WORKER_QUEUES
from headrace.domain.worker import Command, WorkerHeartbeat
from headrace.runtime.service import Service
from headrace.spark.session import ELSEWHERE
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.leasing import heartbeat
from headrace.spark.sources.rate_limit import IdleBackoff
from headrace.spark.sources.reading import NAMING
from headrace.spark.stations.batch import BatchRunner
from headrace.spark.stations.figures import Batch, Run, logged
from headrace.spark.stations.settings import StationSettings, check
from headrace.spark.stations.transforms import kind_of, may_divide_tasks
from headrace.store.call_scope import acting

_POLL_SECONDS: Final = 1.0
_LONGEST_POLL: Final = 5.0
_AWAY: Final = 8  # batches in a row that the tables were away for
_LONGEST_WAIT: Final = 60.0  # seconds
_HEARTBEAT_SECONDS: Final = 30.0
_HEARTBEAT: Final = "a station's sign of life"
_STRICT: Final = "must not be strict: a station takes many tasks of a group at once"
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Station(StationSettings):
    """A worker on Spark: its transform receives due tasks and returns their outcomes.

    Its arguments are those of ``StationSettings``.
    """

    def run(
        self,
        spark: SparkSession,
        *,
        drain: bool = False,
        until: datetime | None = None,
        connection: StoreConnection | None = None,
        on_batch: Callable[[Batch], None] = logged,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> Run:
        """Work until nothing is due (*drain*), or *until* an instant, or until *stop* is set.

        Raises NotFound when a queue is missing, InvalidRequest for a transform that returns no
        settling frame and for wrong arguments, StationFailed when the transform fails for too many
        tasks, and Unavailable while the tables stay away; what Spark says of a wrong plan comes
        out as it is.
        """
        check({"spark": _session_fault(spark), "until": _instant_fault(until)})
        tables = connection or StoreConnection.of()
        uses = opened(tables)
        reading = self.reading(tables)
        names = reading.known()
        for queue in filter(None, (*names, self.to)):
            if uses.queues.get(queue).strict:
                field = next(name for name in NAMING if getattr(self, name) is not None)
                raise InvalidRequest.of(field if queue in names else "to", _STRICT)
        divides = may_divide_tasks(spark, self.transform, several=self.queue is None)
        stopping = stop or threading.Event()
        batches = BatchRunner(self, spark, reading, stopping, clock, divides=divides)
        run, away, idle = Run(), 0, IdleBackoff(_LONGEST_POLL, clock)
        with StationHeartbeat(self, uses, stopping, names) as heartbeat:
            while not stopping.is_set() and (until is None or uses.now() < until):
                if heartbeat.quiet or not reading.due():
                    if drain and not heartbeat.quiet:
                        return run.ended("drained")
                    idle.nothing(least=max(_POLL_SECONDS, reading.pause()))
                    stopping.wait(idle.wait)
                    continue
                idle.found()
                try:
                    batch, away = batches.next(), 0
                except Unavailable:
                    away += 1
                    if away > _AWAY:
                        raise
                    stopping.wait(chance(0, min(_LONGEST_WAIT, 2.0**away)))
                    continue
                run.add(batch)
                on_batch(batch)
                if not batch.tasks:  # other workers have them, or limits hold them
                    stopping.wait(_POLL_SECONDS)
        return run.ended("stopped" if stopping.is_set() else "until")


class StationHeartbeat(PeriodicThread):
    """Sends a station's worker heartbeat twice a minute, and obeys the command it gets back.

    ``quiet`` is set when nothing more is to be taken; to stop, *stopping* is set.
    """

    def __init__(
        self,
        station: StationSettings,
        uses: Service,
        stopping: threading.Event,
        queues: Sequence[str],
    ) -> None:
        """Prepare."""
        step = heartbeat(_HEARTBEAT_SECONDS, self.sign, name=_HEARTBEAT)
        super().__init__(_HEARTBEAT, step, first_after=_HEARTBEAT_SECONDS, log=_LOG)
        self.quiet = False
        self._workers = uses.workers
        self._sign = WorkerHeartbeat(
            station.worker, tuple(queues[: WORKER_QUEUES[1]]), uses.now(), version=__version__
        )
        self._stop_station = stopping

    def sign(self) -> bool:
        """Send one heartbeat; one write unit."""
        by = Principal("station", "station", Role.WORKER, self._sign.queues)
        with acting(by):
            command = self._workers.alive(self._sign)
        self.quiet = command is Command.QUIET
        if command is Command.STOP:
            self._stop_station.set()
        return True


def _session_fault(spark: object) -> str | None:
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return f"must be a session of this process: {ELSEWHERE}"
    right = isinstance(spark, SparkSession)
    return None if right else f"must be a SparkSession, not {kind_of(spark)}"


def _instant_fault(until: object) -> str | None:
    right = until is None or (isinstance(until, datetime) and until.utcoffset() is not None)
    return None if right else f"must be a datetime with a time zone, not {until!r}"
