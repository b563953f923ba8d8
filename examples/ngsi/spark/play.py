"""Both stations side by side, as the demo has them: with trouble, until it wants no more."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from examples.ngsi.ngsi import CORRELATOR_TAG
from examples.ngsi.spark.stations import loading_into, split_up, splitting
from examples.ngsi.spark.table import read
from examples.ngsi.trouble import ON_PURPOSE, fails_once, taken
from headrace.spark import Station
from headrace.spark.stations.figures import Batch
from headrace.spark.stations.outcomes import Outcome, Retry, Taken, guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Reporter = Callable[..., None]


def play(spark: "SparkSession", folder: Path, fatal: str, report: Reporter) -> bool:
    """Run the stations until standard input ends, then tell what is in the table.

    Return whether all went well; what did not is told.
    """
    table = str(folder / "readings")
    rehearsed = Rehearsed(folder / "fatal-token", fatal)
    stations = [replace(splitting, transform=guard()(rehearsed)), loading_into(table)]
    failures = _worked(spark, stations, report)
    if failures:
        report(failed="; ".join(failures))
        return False
    _report_readings(spark, table, folder / "readings.jsonl", report)
    return True


def _worked(spark: "SparkSession", stations: Sequence[Station], report: Reporter) -> list[str]:
    """Run the stations side by side until standard input ends, or one of them; say what failed."""
    stop = threading.Event()
    failures: list[str] = []

    def work(station: Station) -> None:
        def after_batch(batch: Batch) -> None:
            report(queue=station.queue, **batch.body())

        try:
            station.run(spark, stop=stop, on_batch=after_batch)
        except Exception as error:  # noqa: BLE001 (reported by the main thread, which ends for it)
            failures.append(f"station {station.queue}: {type(error).__name__}: {error}")
            stop.set()

    threads = [threading.Thread(target=work, args=(station,)) for station in stations]
    threading.Thread(target=_set_at_end, args=(stop,), daemon=True).start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def _report_readings(spark: "SparkSession", table: str, file: Path, report: Reporter) -> None:
    number = 0
    with file.open("w", encoding="utf-8") as out:
        for line in lines_of(spark, table):
            out.write(f"{line}\n")
            number += 1
    in_files = spark.read.parquet(table).count() if number else 0
    report(readings=number, in_files=in_files)


def lines_of(spark: "SparkSession", table: str) -> Iterator[str]:
    """Yield each reading of a table once, as JSON, times to the microsecond."""
    if not Path(table).exists():
        return
    to_the_microsecond = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    line = f.to_json(f.struct("*"), to_the_microsecond)
    for row in read(spark, table).select(line).toLocalIterator():
        yield row[0]


def _set_at_end(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The first station's function: one task in ten fails once, and one kills its process once."""

    token: Path
    fatal: str
    """Correlator of the notification whose task kills whoever has it and finds the token."""

    def __call__(self, task: Taken) -> Outcome:
        """The outcome of *task*."""
        if task.tags.get(CORRELATOR_TAG) == self.fatal and taken(self.token):
            os.kill(os.getpid(), signal.SIGKILL)
        if task.attempts == 1 and fails_once(task.id):
            return Retry(ON_PURPOSE)
        return split_up(task)
