"""Several stations in one process and one Spark: a pipeline whose parts wait for each other."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
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
    totals = {name: Run() for name in stations}

    def run(name: str) -> Run:
        return stations[name].run(
            spark,
            drain=drain,
            until=until,
            connection=connection,
            on_batch=partial(on_batch, name),
            stop=stopping,
        )

    while True:
        runs = _round(list(stations), run, spark, stopping)
        for name, one in runs.items():
            totals[name].merge(one)
        if not drain or stopping.is_set() or not any(one.batches for one in runs.values()):
            return totals


def _round(
    names: Sequence[str],
    run: Callable[[str], Run],
    spark: SparkSession,
    stopping: threading.Event,
) -> dict[str, Run]:
    """Run each of the named stations in a thread to its end; return their runs.

    Raises the first error, for which it stops the others.
    """
    errors: list[Exception] = []
    runs: dict[str, Run] = {}

    def work(name: str) -> None:
        spark.sparkContext.setLocalProperty(_POOL, name)
        try:
            runs[name] = run(name)
        except Exception as error:  # noqa: BLE001  raised again by the thread that waits
            errors.append(error)
            stopping.set()

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in names]
    for thread in threads:
        thread.start()
    try:
        _join(threads)
    except KeyboardInterrupt:
        stopping.set()
        with suppress(Exception):  # Spark may have ended already
            spark.sparkContext.cancelAllJobs()
        _join(threads)
        raise
    if errors:
        raise errors[0]
    return runs


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_EVERY)
