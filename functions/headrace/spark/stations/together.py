"""Several stations in one process and one Spark: a pipeline whose parts wait for each other."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from pyspark.sql import SparkSession

from headrace.spark.sources.connect import StoreConnection
from headrace.spark.stations.figures import Batch, Run, logged
from headrace.spark.stations.station import Station

FAIR: Final = {"spark.scheduler.mode": "FAIR"}
"""The setting with which no station's jobs wait for those of another."""

_POOL: Final = "spark.scheduler.pool"
_LOOK_EVERY: Final = 0.2  # seconds, for Ctrl-C


def run_together(
    stations: Mapping[str, Station],
    spark: SparkSession,
    *,
    drain: bool = False,
    until: datetime | None = None,
    connection: StoreConnection | None = None,
    on_batch: Callable[[str, Batch], None] = lambda _, batch: logged(batch),
    stop: threading.Event | None = None,
) -> dict[str, Run]:
    """Run all *stations*, each by a thread; return the run of each, by its name.

    A drain ends when no station has found a task, because one station feeds another.
    *on_batch* is called from their threads.  The first error stops the others, and is raised when
    they have ended; KeyboardInterrupt too, after they have released their batches.
    """
    stopping = stop or threading.Event()
    totals: dict[str, Run] = {}
    while True:
        some = _Round(spark, stopping, drain=drain, until=until, connection=connection)
        runs = some.of(stations, on_batch)
        for name, run in runs.items():
            totals[name] = _added(totals.get(name), run)
        if not drain or stopping.is_set() or not any(run.batches for run in runs.values()):
            return totals


def _added(before: Run | None, run: Run) -> Run:
    if before is None:
        return run
    counts = Counter(before.counts)
    counts.update(run.counts)
    return Run(before.batches + run.batches, before.seconds + run.seconds, counts, run.why)


class _Round:
    """One run of each station."""

    def __init__(
        self,
        spark: SparkSession,
        stopping: threading.Event,
        *,
        drain: bool,
        until: datetime | None,
        connection: StoreConnection | None,
    ) -> None:
        self._spark = spark
        self._stopping = stopping
        self._drain = drain
        self._until = until
        self._connection = connection
        self._errors: list[Exception] = []
        self._runs: dict[str, Run] = {}

    def of(
        self, stations: Mapping[str, Station], on_batch: Callable[[str, Batch], None]
    ) -> dict[str, Run]:
        """Run them; return the run of each.  Raises what the first of them raised."""
        threads = [
            threading.Thread(target=self._run, args=(name, station, on_batch), name=name)
            for name, station in stations.items()
        ]
        for thread in threads:
            thread.start()
        try:
            self._join(threads)
        except KeyboardInterrupt:
            self._stopping.set()
            with suppress(Exception):  # Spark may be gone already
                self._spark.sparkContext.cancelAllJobs()
            self._join(threads)
            raise
        if self._errors:
            raise self._errors[0]
        return {name: self._runs[name] for name in stations}

    def _run(self, name: str, station: Station, on_batch: Callable[[str, Batch], None]) -> None:
        self._spark.sparkContext.setLocalProperty(_POOL, name)
        try:
            self._runs[name] = station.run(
                self._spark,
                drain=self._drain,
                until=self._until,
                connection=self._connection,
                on_batch=lambda batch: on_batch(name, batch),
                stop=self._stopping,
            )
        except Exception as error:  # noqa: BLE001  raised again by the thread that waits for this
            self._errors.append(error)
            self._stopping.set()

    @staticmethod
    def _join(threads: list[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_EVERY)
