"""How long after a success whoever waits for the result has it, with the worker a process apart."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.progress import Progress

from benchmarks.results import Bar, PartOutcome, median, percentile, table
from benchmarks.services import folder_on_disk
from benchmarks.sizes import Sizes
from headrace.client.client import Client
from headrace.client.sending import Report
from infra.launch import launched

QUEUE: Final = "awaited"
HEARD_MS: Final = 20.0
_WARM_UP: Final = 3
_WORKS_SECONDS: Final = 0.02
"""How long a task takes, so that its result is waited for by then."""


@dataclass(frozen=True, slots=True)
class WaitFigure:
    """From the moment a worker sends its report to that when the result is there."""

    path: str
    tasks: int
    p50_ms: float
    p99_ms: float


def run(sizes: Sizes, progress: Progress, parent: Path) -> PartOutcome:
    """Wait for one task after the other, over a file inside *parent* and over HTTP."""
    figures = []
    bar = progress.add_task("wait: results", total=2 * sizes.waits)
    with folder_on_disk(parent) as folder, launched() as service:
        ways = {
            "file:": (f"file:{folder}/headrace.db", ""),
            "http:": (service.url, service.admin_key),
        }
        for path, (url, key) in ways.items():
            seconds = []
            with Client(url, key) as client:
                client.create_queue(QUEUE)
                with _worker(url, key) as worker:
                    for number in range(-_WARM_UP, sizes.waits):
                        task = client.enqueue(QUEUE, number)
                        client.wait(str(task.id), timeout=60)
                        heard_at = time.monotonic()
                        if number >= 0:
                            seconds.append(heard_at - next(worker))
                            progress.advance(bar)
                        else:
                            next(worker)
            p50, p99 = 1000 * median(seconds), 1000 * percentile(seconds, 99)
            figures.append(WaitFigure(path, len(seconds), p50, p99))
    shown = table("From a worker's report to the result, where somebody waits", "ms", "p50", "p99")
    for one in figures:
        shown.add_row(one.path, f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}")
    return PartOutcome(
        figures={"waits": [asdict(one) for one in figures]},
        tables=[shown],
        notes=["One worker, one who waits, each a process; the report's own sync is in it."],
        bars=[
            Bar(f"Result over {one.path}, p50", one.p50_ms, HEARD_MS, at_most=True, unit="ms")
            for one in figures
        ],
    )


@contextmanager
def _worker(url: str, key: str) -> Iterator[Iterator[float]]:
    """Run a worker; yield when it began to report on each task, by the clock of this machine."""
    environment = {**os.environ, "HEADRACE_URL": url, "HEADRACE_KEY": key}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield map(float, process.stdout or ())
    finally:
        process.terminate()
        process.wait()


def _work() -> None:
    with Client() as client:
        while True:
            for task in client.dequeue(QUEUE, wait_seconds=20, worker="bench").tasks:
                time.sleep(_WORKS_SECONDS)
                print(time.monotonic(), flush=True)
                client.report(QUEUE, [Report.on(task, "SUCCEEDED", result=task.payload)])


if __name__ == "__main__":
    _work()
