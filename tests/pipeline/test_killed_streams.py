"""What is settled is in the sink, whichever processes of a stream are killed, and when."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.domain.queue import QueueSettings
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.spark.sources.connect import StoreConnection
from headrace.store.sqlite import SqliteStore
from infra import PROJECT_ROOT
from tests.pipeline import processes
from tests.pipeline.harness import PipelineHarness
from tests.pipeline.killed_streams import LEASE_SECONDS, SINKS, Sinks
from tests.waiting import until

KILLS = int(os.environ.get("HEADRACE_SPARK_KILLS", "50"))
SEED = int(os.environ.get("HEADRACE_SPARK_KILLS_SEED", "7"))
TASKS = 40  # of each queue at first, and TASKS_MORE with each kill
TASKS_MORE = 8
STARTING = 1_800.0  # seconds; a busy machine takes minutes to start Spark
_HALF = 0.5
LONGEST = 1_800.0  # seconds, for what is left after the last kill


@dataclass
class Driver:
    """The process of the queries: killed, away for a while, and started again."""

    folder: Path
    chance: random.Random
    process: "subprocess.Popen[bytes] | None" = None
    started: int = 0

    def start(self) -> None:
        self.started += 1
        args = [sys.executable, "-m", "tests.pipeline.killed_streams", str(self.folder)]
        with (self.folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*args, str(SEED + self.started)], cwd=PROJECT_ROOT, stdout=log, stderr=log
            )

    def kill(self, victim: str) -> bool:
        """Kill the driver, a worker or a source; return whether there was one."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "driver.log").read_text()[-3000:]
        if victim == "driver":
            self.stop()
            time.sleep(self.chance.uniform(0, 2 * LEASE_SECONDS))
            self.start()
            return True
        find = processes.workers if victim == "worker" else processes.sources
        found = find(self.process.pid)
        return bool(found) and processes.killed(self.chance.choice(found))

    def stop(self) -> None:
        if self.process is not None:
            below = processes.descendants(self.process.pid)
            self.process.kill()
            self.process.wait()
            for pid in below:  # Java ends by itself, but may take a while on a busy machine
                processes.killed(pid)


@contextmanager
def running(folder: Path, chance: random.Random) -> Iterator[Driver]:
    driver = Driver(folder, chance)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()


def reap(harness: PipelineHarness) -> None:
    for name in SINKS:
        queue = harness.uses.queues.cached(name)
        for place in queue.places(State.INFLIGHT):
            list(harness.uses.reaping.lapsed(queue, place))


@dataclass
class Streams:
    """The queues, their sinks, and how far the queries are."""

    harness: PipelineHarness
    sinks: Sinks

    @classmethod
    def made(cls, folder: Path) -> "Streams":
        path = folder / "headrace.db"
        SqliteStore(str(path)).close()
        made = cls(PipelineHarness(StoreConnection.of({"url": path.as_uri()})), Sinks(folder))
        often = RetryStrategy(Backoff.FIXED, 1_000, 0)
        for name in SINKS:
            made.harness.uses.queues.create(name, QueueSettings(shards=2, retry_strategy=often))
        made.fill(TASKS)
        made.sinks.make()
        return made

    def fill(self, number: int) -> None:
        for name in SINKS:
            self.harness.fill(name, number)

    def settled(self) -> int:
        return sum(self.harness.states(name).get("SUCCEEDED", 0) for name in SINKS)

    def go_on(self) -> None:
        """Wait until something more is settled."""
        before = self.settled()
        until(lambda: self.settled() > before, STARTING, every=0.5)

    def over(self) -> None:
        """Wait until all tasks are settled."""
        until(lambda: all(self._over(one) for one in SINKS), LONGEST, every=0.5)

    def _over(self, name: str) -> bool:
        return self.harness.states(name).keys() == {"SUCCEEDED"}


@pytest.mark.slow
def test_what_a_stream_settles_is_in_its_sink_whichever_of_its_processes_are_killed(
    tmp_path: Path,
) -> None:
    """Kill driver, workers and sources at random points; outages are longer than the leases.

    Then compare each queue with its sink, task by task.
    """
    chance = random.Random(SEED)
    streams = Streams.made(tmp_path)
    kills = Counter[str]()
    with running(tmp_path, chance) as driver:
        streams.go_on()
        while kills.total() < KILLS:
            time.sleep(chance.uniform(0.2, 4.0))  # any point of a batch will do
            victim = chance.choices(["driver", "worker", "source"], [1, 3, 3])[0]
            if driver.kill(victim):
                kills[victim] += 1
                streams.fill(TASKS_MORE)
            if chance.random() < _HALF:
                reap(streams.harness)
            if victim == "driver":
                streams.go_on()
        streams.over()

    found = streams.sinks.ids()
    for name in SINKS:
        tasks = {task.id: task for task in streams.harness.tasks(name)}
        rows = Counter(found[name])
        twice = {id_ for id_, number in rows.items() if number > 1}
        lost = tasks.keys() - rows.keys()
        print(  # noqa: T201  the figures of a long run
            f"{name}: {len(tasks)} tasks, {len(lost)} lost, {len(twice)} twice; {dict(kills)}"
        )
        assert not lost, f"{name} lacks {len(lost)} tasks that are settled"
        assert rows.keys() == tasks.keys()
        assert all(tasks[id_].attempts > 1 for id_ in twice), "twice, though never taken back"
