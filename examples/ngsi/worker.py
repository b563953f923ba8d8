"""One worker process of the demo: a loop on each of the two queues.

``ngsi.notify``: split a notification into rows and move the task on to ``ngsi.entities`` with the
rows as its new payload. A notification that cannot be read fails for good and ends DEAD.
``ngsi.entities``: write the rows to SQLite, then report success.

So that there is something to see, one task in ten fails on its first attempt; which one is decided
by its id, so everybody can work it out. Standard output carries one JSON object a line: what this
worker did and what its calls cost, running totals. Ends on SIGTERM or Ctrl-C.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.ngsi.http_client import QueueClient, Unavailable
from examples.ngsi.stations import ENTITIES_QUEUE, Loader, Splitter, Station, Task

GIVE_UP_SECONDS = 15.0
"""A service silent for so long has gone; the worker then ends."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one worker runs. ``crash_token`` is a file: who finds it takes it and freezes."""

    url: str
    key: str
    name: str
    rows: Path
    batch_size: int
    crash_token: Path | None


class Worker:
    """Two loops that share a client, their totals and their end."""

    def __init__(self, settings: Settings) -> None:
        """Nothing runs yet."""
        self._settings = settings
        self._client = QueueClient(settings.url, settings.key)
        self._totals: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._frozen = threading.Event()

    def stop(self, *_signal: object) -> None:
        """Take no more tasks; what is in hand is finished and reported."""
        self._stop.set()

    def run(self) -> None:
        """Run both loops until ``stop``, or until one of them cannot go on."""
        stations: list[Station] = [Splitter(), Loader(self._settings.rows)]
        failures: list[BaseException] = []

        def guarded(station: Station) -> None:
            try:
                self._loop(station)
            except BaseException as error:  # noqa: BLE001 (raised below)
                failures.append(error)
                self._stop.set()

        threads = [threading.Thread(target=guarded, args=(each,)) for each in stations]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._say("ended")
        self._client.close()
        if failures:
            raise failures[0]

    def _loop(self, station: Station) -> None:
        idle, heard_at = 0, time.monotonic()
        while not self._stop.is_set():
            try:
                answer = self._client.dequeue(
                    station.queue, self._settings.batch_size, self._settings.name
                )
                tasks = answer["tasks"]
                if tasks:
                    self._handle(station, tasks)
            except Unavailable:
                if time.monotonic() - heard_at > GIVE_UP_SECONDS:
                    raise
                self._stop.wait(_pause(0.5, idle))
                continue
            heard_at = time.monotonic()
            if tasks:
                idle = 0
            else:
                self._say("tally")
                self._stop.wait(_pause(answer["poll_after_seconds"], idle))
                idle += 1

    def _handle(self, station: Station, tasks: Sequence[Task]) -> None:
        reports, totals = station.work(tasks)
        self._freeze_if_told(station, tasks)
        results = self._client.report(station.queue, reports)
        totals["late_reports"] = sum(result["outcome"] != "OK" for result in results)
        with self._lock:
            self._totals += totals
        self._say("tally")

    def _freeze_if_told(self, station: Station, tasks: Sequence[Task]) -> None:
        """Stand still with the leases in hand, to be killed.

        Who writes rows takes the token, when they are written and nothing is reported: the worst
        moment there is. The other loop then freezes with its next batch.
        """
        token = self._settings.crash_token
        if token is not None and station.queue == ENTITIES_QUEUE:
            with contextlib.suppress(FileNotFoundError):
                token.unlink()
                self._frozen.set()
        if self._frozen.is_set():
            held = [task["id"] for task in tasks]
            self._say("holding", queue=station.queue, held=held)
            self._stop.wait()

    def _say(self, event: str, **more: object) -> None:
        with self._lock:
            line = {"event": event, **asdict(self._client.tally), **self._totals, **more}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def _pause(poll_after_seconds: float, idle: int) -> float:
    """Seconds an idle worker waits: doubling to five times what the service asks for, jittered."""
    times = min(1 << min(idle, 3), 5)
    return poll_after_seconds * times * random.uniform(0.8, 1.2)  # noqa: S311 (no secret)


def main() -> None:
    """Run one worker; the key comes from the environment, HEADRACE_KEY."""
    parser = argparse.ArgumentParser(prog="python -m examples.ngsi.worker", description=__doc__)
    parser.add_argument("--url", required=True, help="where the service is")
    parser.add_argument("--name", required=True, help="the worker's name, seen on its tasks")
    parser.add_argument("--rows", required=True, type=Path, help="the SQLite file to write to")
    parser.add_argument("--batch-size", type=int, default=25, help="tasks a call, 1-25")
    parser.add_argument("--crash-token", type=Path, help="freeze on finding this file")
    # Payloads may be nested as deep as the service reads them, and answers wrap them once more.
    sys.setrecursionlimit(5_000)
    worker = Worker(Settings(key=os.environ["HEADRACE_KEY"], **vars(parser.parse_args())))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.stop)
    worker.run()


if __name__ == "__main__":
    main()
