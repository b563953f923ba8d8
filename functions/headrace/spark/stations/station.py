"""A station: it takes what is due in a queue, transforms it with Spark, and moves it on.

A loop in the driver of plain batch jobs.  Each batch has a group lease of its own, which a thread
extends while the job runs; every task is settled by one conditional write that asks for its lease.
So however often Spark runs a part of a job, whoever is killed and when: each task takes effect
once.  What a batch leaves unsettled is seen to at its end, or, after a crash, by the reaper.
"""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.domain.errors import FieldError, InvalidRequest, Unavailable
from headrace.domain.limits import KEEPALIVE_SECONDS, NAME_RE
from headrace.spark.sources.connect import StoreConnection, opened
from headrace.spark.sources.leasing import shard_deliveries
from headrace.spark.stations.batch import BatchRunner
from headrace.spark.stations.claims import ClaimLog
from headrace.spark.stations.figures import Batch, Run, logged
from headrace.spark.stations.heartbeat import StationHeartbeat
from headrace.spark.stations.jobs import Transform
from headrace.spark.stations.plan_analysis import PlanAnalysis, analyse, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS: Final = (1, 1_000_000)
_POLL_SECONDS: Final = 1.0
_RATE: Final = (0.001, 1_000_000)
_AWAY: Final = 8  # batches in a row that the tables were away for
_LONGEST_WAIT: Final = 60.0  # seconds
_QUEUE: Final = "must be the name of a queue"


@dataclass(frozen=True, kw_only=True)
class Station:
    """A worker on Spark: *transform* is given what is due in *queue* and says what becomes of it.

    The frame it is given has the columns of ``sources.leasing.SCHEMA``; the one it gives back has
    ``id`` and ``lease`` as they came, and of ``action``, ``to_queue``, ``payload``,
    ``delay_seconds`` and ``error`` those it needs.  Without an action a task is moved to the queue
    *to*, or, where there is none, has succeeded.

    *max_rows* is the size of a batch, *rate* a limit of tasks a second.  *lease_seconds* is how
    long a dead station keeps its tasks.  *claim_log* is a folder that all executors reach; a
    transform that regroups tasks needs one.  More than *max_poison* tasks of a batch that make the
    transform fail are its own fault.  Asked to stop, it finishes its batch within *grace_seconds*
    or gives it back.
    """

    queue: str
    transform: Transform
    to: str | None = None
    name: str | None = None
    max_rows: int = 5_000
    lease_seconds: float = 60.0
    rate: float | None = None
    claim_log: str | None = None
    max_poison: int = 20
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense.  Raises InvalidRequest naming field and limit."""
        checks = {
            "queue": (_named(self.queue), _QUEUE),
            "transform": (callable(self.transform), "must be a function of a DataFrame"),
            "to": (
                self.to is None or (_named(self.to) and self.to != self.queue),
                "must be another queue than queue" if _named(self.to) else _QUEUE,
            ),
            "name": (
                self.name is None or _named(self.name),
                "must be 1 to 128 letters, digits, and _ . -",
            ),
            "max_rows": _within(self.max_rows, *_ROWS, whole=True),
            "lease_seconds": _within(self.lease_seconds, *KEEPALIVE_SECONDS),
            "rate": (True, "") if self.rate is None else _within(self.rate, *_RATE),
            "claim_log": (
                self.claim_log is None or isinstance(self.claim_log, str),
                f"must be the path of a folder as text, not {self.claim_log!r}",
            ),
            "max_poison": _within(self.max_poison, 0, _ROWS[1], whole=True),
            "grace_seconds": _within(self.grace_seconds, 0, KEEPALIVE_SECONDS[1]),
        }
        _check(checks)

    @property
    def worker(self) -> str:
        """Return the name under which this process takes tasks."""
        return f"{self.name or f'station.{self.queue}'}@{socket.gethostname()}:{os.getpid()}"

    def run(
        self,
        spark: "SparkSession",
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

        Raises NotFound when a queue is missing, InvalidRequest for a transform that gives back no
        settling frame and for wrong arguments, StationFailed when the transform fails for too many
        tasks, and Unavailable while the tables stay away; what Spark says of a wrong plan comes
        out as it is.
        """
        _check({"spark": _a_session(spark), "until": _an_instant(until)})
        tables = connection or StoreConnection.of()
        uses = opened(tables)
        for queue in filter(None, (self.queue, self.to)):
            uses.queues.get(queue)
        analysis = self._fit(spark)
        if self.claim_log:
            ClaimLog(spark, self.claim_log).tidy(tables, uses.now())
        stopping = stop or threading.Event()
        batches = BatchRunner(self, spark, tables, analysis, stopping, clock)
        shards = shard_deliveries(tables)
        run, away = Run(), 0
        with StationHeartbeat(self, uses, stopping) as heartbeat:
            while not stopping.is_set() and (until is None or uses.now() < until):
                if heartbeat.quiet or not shards.due(self.queue):
                    if drain and not heartbeat.quiet:
                        return run.ended("drained")
                    stopping.wait(_POLL_SECONDS)
                    continue
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
                if not batch.tasks:  # what is due is somebody else's, or held back by limits
                    stopping.wait(_POLL_SECONDS)
        return run.ended("stopped" if stopping.is_set() else "until")

    def _fit(self, spark: "SparkSession") -> PlanAnalysis:
        """Return the shape of the transform.  Raises InvalidRequest when it lacks a claim log."""
        analysis = analyse(spark, self.transform)
        if analysis.regroups and not self.claim_log:
            message = (
                "claim_log: must be given, a folder that all executors reach: the transform"
                " regroups tasks (it aggregates, joins or sorts)"
            )
            raise InvalidRequest(message, errors=[FieldError("claim_log", "must be given")])
        return analysis


def _check(checks: Mapping[str, tuple[bool, str]]) -> None:
    """Raise InvalidRequest naming each field whose check does not hold, and what it must be."""
    wrong = [FieldError(name, rule) for name, (holds, rule) in checks.items() if not holds]
    if wrong:
        problems = "; ".join(f"{one.field} {one.message}" for one in wrong)
        raise InvalidRequest(f"station: {problems}", errors=wrong)


def _a_session(spark: object) -> tuple[bool, str]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 (needs PySpark)

    return isinstance(spark, SparkSession), f"must be a SparkSession, not {kind_of(spark)}"


def _an_instant(until: object) -> tuple[bool, str]:
    holds = until is None or (isinstance(until, datetime) and until.utcoffset() is not None)
    return holds, f"must be a datetime with a time zone, not {until!r}"


def _named(name: object) -> bool:
    return isinstance(name, str) and NAME_RE.fullmatch(name) is not None


def _within(value: object, low: float, high: float, *, whole: bool = False) -> tuple[bool, str]:
    limits = f"from {low:,} to {high:,}, not {value!r}"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False, f"must be a {'whole ' * whole}number {limits}"
    return low <= value <= high, f"must be {limits}"
