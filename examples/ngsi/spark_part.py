"""The demo's second part: the same queues, worked by two stations on Spark in one process.

It has a Python of its own, because Spark is no part of what the demo needs.  What it logs is kept
in a file, to be shown when it fails.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from examples.ngsi.accounting import compared, expected, retries
from examples.ngsi.display import Display
from examples.ngsi.posting import Posting
from examples.ngsi.running import Options, StationsFailed, Stuck, service, tasks_of, watch
from examples.ngsi.summary import OfType, SparkSummary
from examples.ngsi.traffic import series
from headrace.domain.task import State
from headrace.wire.tasks import Task

PROJECT: Final = Path(__file__).parents[2]
USUAL: Final = PROJECT / ".venv-spark" / "bin" / "python"
"""Where ``make`` puts the Python that has PySpark."""

NO_PYSPARK: Final = "there is no PySpark: `make .venv-spark/.ready` sets it up, or says why not"
END_SECONDS: Final = 60.0
"""How long it may take to end, the last look at the table included."""

TIDY_SECONDS: Final = 5.0
"""How long its Java has to remove its temporary files."""

LOOK_SECONDS: Final = 0.1
SHOWN_CHARACTERS: Final = 2000
SHARDS: Final = 1
"""Of each queue: a core for each of two stations is what a small machine has."""

LEASE_SECONDS: Final = 30
START_SECONDS: Final = 120.0
"""How long Spark may take to start."""


class SparkLeftOut(Exception):
    """There is no Spark here, or no Java for it; the text says which in one line."""


@dataclass(frozen=True, slots=True)
class Up:
    """Spark has started: its version, its Java's, and the seconds it took."""

    spark: str
    java: str
    seconds: float


class Stations:
    """The process, started; to be used as a context, which ends it."""

    def __init__(self, python: Path, url: str, folder: Path, fatal: str) -> None:
        """Start it.  *folder* takes table and log; at *fatal* one of its workers dies."""
        if not python.exists():
            raise SparkLeftOut(NO_PYSPARK)
        folder = folder.absolute()
        self.token = folder / "fatal-token"
        self.token.touch()
        self._log = folder / "spark.log"
        self._facts: dict[str, Any] = {}
        self.settled = 0
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")},
            "HEADRACE_URL": url,
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "functions"), str(PROJECT)]),
        }
        command = [str(python.absolute()), "-m", "examples.ngsi.spark", str(folder)]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 (our own program and arguments)
                [*command, f"--fatal={fatal}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=PROJECT,
                env=environment,
                text=True,
                # Ctrl-C reaches the demo only, which then ends this in good order.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def up(self) -> Up | None:
        """What has started, or None as long as it has not.

        Raises SparkLeftOut when it never will, StationsFailed when the process has ended.
        """
        self._check()
        facts = self._facts
        return Up(facts["spark"], facts["java"], facts["seconds"]) if "java" in facts else None

    @property
    def killed(self) -> bool:
        """Whether the worker that was to die has died."""
        return not self.token.exists()

    def finished(self) -> Mapping[str, int]:
        """Let the stations end; return how many readings there are, and how many in the files.

        Raises StationsFailed.
        """
        if self._process.stdin:
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
            self._reader.join()
        if self._process.poll() != 0 or "readings" not in self._facts:
            raise StationsFailed(self._last_words())
        return self._facts

    @contextlib.contextmanager
    def ended_after(self) -> Iterator[None]:
        """End it after the block, however that ends; whatever it has started goes with it."""
        try:
            yield
        finally:
            deadline = time.monotonic() + TIDY_SECONDS
            number = signal.SIGTERM
            with contextlib.suppress(ProcessLookupError):  # until none of the group is left
                while True:
                    os.killpg(self._process.pid, number)
                    self._process.poll()
                    time.sleep(LOOK_SECONDS)
                    if time.monotonic() > deadline:
                        number = signal.SIGKILL
            self._reader.join()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            facts = json.loads(line)
            if "queue" in facts:
                self.settled += facts["tasks"]
            else:
                self._facts = {**self._facts, **facts}

    def _check(self) -> None:
        if self._process.poll() is None:
            return
        self._reader.join()
        if "missing" in self._facts:
            raise SparkLeftOut(self._facts["missing"])
        raise StationsFailed(self._last_words())

    def _last_words(self) -> str:
        log = self._log.read_text(errors="replace")[-SHOWN_CHARACTERS:]
        ended = f"the stations' process ended, status {self._process.poll()}"
        return "\n".join(filter(None, [ended, self._facts.get("failed"), log]))


def by_stations(options: Options, python: Path, folder: Path, console: Console) -> SparkSummary:
    """Send a series to a service started for it, and count what the stations made of it.

    Raises SparkLeftOut.
    """
    plan = series(options.notifications, datetime.now(UTC))
    sent = plan.sent
    with ExitStack() as stack:
        console.print("The same on Spark, which takes some seconds to start …")
        running, client = stack.enter_context(service(lease_seconds=LEASE_SECONDS, shards=SHARDS))
        fatal = sent[len(sent) // 2].correlator
        stations = Stations(python, running.file_url, folder, fatal)
        stack.enter_context(stations.ended_after())
        posting = Posting(running.url, running.admin_key, sent, at_half=lambda: None)
        stack.callback(posting.stop)
        posting.start()
        up = _started(stations)
        display = Display(console, len(sent))
        display.say(f"Spark {up.spark}, Java {up.java}: {len(sent):,} notifications, two stations")
        seen = stations.killed

        def look() -> None:
            nonlocal seen
            _ = stations.up
            if stations.killed and not seen:
                seen = True
                display.say("a Spark worker was killed while it held tasks")

        with display:
            seconds = watch(client, posting, display, options.timeout, look)
        look()
        facts = stations.finished()
        tasks = [task for of_queue in tasks_of(client).values() for task in of_queue]
    should_be = expected(sent, tasks)
    lines = (folder / "readings.jsonl").read_text(encoding="utf-8").splitlines()
    return SparkSummary(
        notifications=len(sent),
        malformed=sum(each.error is not None for each in sent),
        late=plan.late,
        repeated=plan.repeated,
        entities=should_be.entities,
        rejected=_rejected(tasks),
        retries=retries(tasks),
        worker_killed=stations.killed,
        readings_came=should_be.came,
        readings=facts["readings"],
        readings_in_files=facts["in_files"],
        by_type=_by_type(lines),
        spark=up.spark,
        java=up.java,
        start_seconds=up.seconds,
        seconds=round(seconds, 3),
        tasks_per_second=round(len(sent) / seconds, 1),
        problems=(*should_be.problems, *compared(should_be.readings, lines)),
    )


def _started(stations: Stations) -> Up:
    deadline = time.monotonic() + START_SECONDS
    while (up := stations.up) is None:
        if time.monotonic() > deadline:
            message = f"Spark has not started within {START_SECONDS:.0f} s"
            raise Stuck(message)
        time.sleep(LOOK_SECONDS)
    return up


def _rejected(tasks: Sequence[Task]) -> Mapping[str, int]:
    dead = (task for task in tasks if task.state is State.DEAD)
    return dict(Counter(task.errors[-1].message if task.errors else "" for task in dead))


def _by_type(lines: Sequence[str]) -> Mapping[str, OfType]:
    readings = [json.loads(line) for line in lines]
    numbers = Counter(reading["entity_type"] for reading in readings)
    days = Counter(kind for kind, _ in {(one["entity_type"], one["day"]) for one in readings})
    return {kind: OfType(number, days[kind]) for kind, number in numbers.items()}
