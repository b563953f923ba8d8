"""Tasks through two stations and a stream whose processes are killed, and the proof of them.

``python -m benchmarks.spark.chaos``: worker processes of Spark are killed again and again, and
each driver too, with SIGKILL; for a while nobody can write to the tables.  In the end the lake says
of every task what happened to it: moved by each of them exactly once, by legal moves only, and none
lost.  The stream has each in its Parquet, once.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import functions as f

from benchmarks.spark import processes
from benchmarks.spark.streaming import ROWS
from headrace.client.client import Client
from headrace.client.queue_fields import RetryFields
from headrace.client.sending import NewTask
from headrace.history.proof import ProofReport
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.rollup import rollup
from headrace.spark.lake.schemas import CHANGES
from headrace.spark.session import session
from infra import PROJECT_ROOT
from infra.launch import Launched, launched

STATIONS = ("first", "second")
STREAM = "stream"
_LONGEST = 2_400.0  # seconds
_HALF = 0.5
_LOOK_EVERY = 0.5


@dataclass
class Drivers:
    """The processes of stations and stream: started, killed, and started again."""

    service: Launched
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a station, or the stream, that goes on until it is ended."""
        where = {"HEADRACE_URL": self.service.file_url}
        station = ["headrace.spark.stations", "--json", f"benchmarks.spark.stations:{name}"]
        stream = ["benchmarks.spark.streaming", str(self.folder)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", *(stream if name == STREAM else station)],
                cwd=PROJECT_ROOT,
                env={**os.environ, **where},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_driver(self, name: str) -> None:
        """Kill a process and start it anew; its Java and workers end by themselves."""
        self.running[name].kill()
        self.running[name].wait()
        self.start(name)

    def tend(self) -> int:
        """Start anew what ended without being asked, as any supervisor does; return how many."""
        ended = [name for name, process in self.running.items() if process.poll() is not None]
        for name in ended:
            self.start(name)
        return len(ended)

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill a Python process of a task or of a stream's source; return whether there was one."""
        found = [pid for process in self.running.values() for pid in processes.python(process.pid)]
        return bool(found) and processes.killed(chance.choice(found))

    def stop(self) -> list[int]:
        """Ask all to end; return their exit codes."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(120) for process in self.running.values()]


@dataclass(frozen=True)
class ChaosOutcome:
    """What the run and its lake tell."""

    tasks: int
    stream: bool
    seconds: float
    workers_killed: int
    drivers_killed: int
    ended_by_themselves: int
    moved_as_planned: int
    rows: int
    rows_once: int
    in_queues: dict[str, int]
    exit_codes: list[int]
    proof: ProofReport

    @property
    def holds(self) -> bool:
        """Whether each task was settled exactly once by each of them, and none was lost."""
        last = "done" if self.stream else "out"
        written = not self.stream or self.rows == self.rows_once == self.tasks
        arrived = self.moved_as_planned == self.tasks == self.in_queues[last]
        return self.proof.holds and arrived and written

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        also = " and a stream" if self.stream else ""
        yield f"{self.tasks:,} tasks through two stations{also} in {self.seconds:.0f} s"
        yield f"killed {self.workers_killed} worker processes and {self.drivers_killed} drivers"
        yield f"{self.ended_by_themselves} drivers ended by themselves and were started again"
        yield f"asked to stop, they ended with {self.exit_codes}"
        yield f"in queues {self.in_queues}"
        yield f"moved exactly once by each: {self.moved_as_planned:,}"
        if self.stream:
            yield f"rows in Parquet: {self.rows:,}, of {self.rows_once:,} tasks"
        yield (
            f"proof of {self.proof.changes:,} changes of {self.proof.tasks:,} tasks: "
            f"{self.proof.violations or 'nothing found'}"
        )
        yield "holds" if self.holds else "DOES NOT HOLD"


def survived(
    folder: Path,
    *,
    tasks: int,
    workers: int,
    drivers: int,
    stream: bool = False,
    away: float = 0,
    seed: int = 7,
) -> ChaosOutcome:
    """Put *tasks* through both stations, killing as many *workers* and *drivers* on the way.

    With *stream* also through that; *away* is for how many seconds, halfway, nobody can write.
    """
    chance = random.Random(seed)
    queues = ("in", "middle", "out", *(["done"] if stream else []))
    names = (*STATIONS, *([STREAM] if stream else []))
    at_once: RetryFields = {"kind": "fixed", "max_retries": 50, "base_seconds": 0, "jitter": 0}
    with (
        launched(data_dir=folder) as service,
        Client(service.url, service.admin_key) as client,
        _stations(service, folder) as stations,
    ):
        for queue in queues:
            client.create_queue(queue, shards=2, retry_strategy=at_once)
        client.enqueue_many("in", [NewTask(payload={"n": n, "hops": 0}) for n in range(tasks)])
        begin = time.monotonic()
        for name in names:
            stations.start(name)
        killed, ended, by_themselves = 0, 0, 0
        while (done := _progress(client, tasks, queues)) < 1:
            if time.monotonic() - begin > _LONGEST:
                break
            if done * (workers + 1) >= killed + 1 and killed < workers:
                killed += stations.kill_worker(chance)
            if done * (drivers + 1) >= ended + 1 and ended < drivers:
                stations.kill_driver(names[ended % len(names)])
                ended += 1
            if done >= _HALF and away:
                _cut_off(service.file_url, away)
                away = 0
            by_themselves += stations.tend()
            time.sleep(_LOOK_EVERY)
        seconds = time.monotonic() - begin
        codes = stations.stop()
        in_queues = {name: _size(client, name) for name in queues}
        report, moved, (rows, once) = _lake(folder, tasks, queues)
    return ChaosOutcome(
        tasks,
        stream,
        seconds,
        killed,
        ended,
        by_themselves,
        moved,
        rows,
        once,
        in_queues,
        codes,
        report,
    )


@contextmanager
def _stations(service: Launched, folder: Path) -> Iterator[Drivers]:
    stations = Drivers(service, folder)
    try:
        yield stations
    finally:
        for process in stations.running.values():
            process.kill()


def _progress(client: Client, tasks: int, queues: Sequence[str]) -> float:
    """Return how much is done, from 0 to 1: an equal part of it is each of the *queues* to come.

    The end is counted first: a task that goes on in between may be missed, but not counted twice.
    """
    steps = range(len(queues) - 1, 0, -1)
    return sum(step * _size(client, queues[step]) for step in steps) / (len(steps) * tasks)


def _cut_off(url: str, seconds: float) -> None:
    """Keep everybody from writing for so many *seconds*."""
    with closing(sqlite3.connect(urlsplit(url).path, timeout=60, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        file.execute("ROLLBACK")


def _size(client: Client, queue: str) -> int:
    return client.count_tasks(queue).count


def _lake(
    folder: Path, tasks: int, queues: Sequence[str]
) -> tuple[ProofReport, int, tuple[int, int]]:
    """Roll the service's lake up until it has all moves; return proof and tasks moved as planned.

    And the rows that a stream has written, and of how many tasks.
    """
    spark = session("headrace chaos", **{"spark.master": "local[2]", "spark.driver.memory": "2g"})
    lake = LakeFrames(spark, str(folder / "lake"))
    deadline = time.monotonic() + 300
    while True:
        rollup(lake, today=datetime.now(UTC).date())
        moves = lake.read(CHANGES).where("move = 'move'")
        if moves.count() >= (len(queues) - 1) * tasks or time.monotonic() > deadline:
            break
    path = f.concat_ws(",", f.sort_array(f.collect_list("queue_from")))
    each = moves.groupBy("task_id").agg(path.alias("path"))
    planned = each.where(f.col("path") == ",".join(sorted(queues[:-1]))).count()
    rows = once = 0
    if (folder / ROWS).exists():
        written = spark.read.parquet(str(folder / ROWS)).select("id")
        rows, once = written.count(), written.distinct().count()
    return proof(lake), planned, (rows, once)


def main() -> int:
    """Run it, and say what was found; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=20, help="worker processes to kill")
    parser.add_argument("--drivers", type=int, default=4, help="drivers to kill")
    parser.add_argument("--away", type=float, default=15, help="seconds without tables")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        outcome = survived(
            Path(folder),
            tasks=options.tasks,
            workers=options.workers,
            drivers=options.drivers,
            stream=True,
            away=options.away,
        )
        for line in outcome.lines():
            print(line)
        if not outcome.holds:
            for kind, some in outcome.proof.examples.items():
                print(kind, json.dumps(some[:3], default=str))
            for name in (*STATIONS, STREAM):
                print(name, Path(folder, f"{name}.log").read_text()[-3000:])
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
