"""The demo's second part: the same queues, worked by two stations on Spark."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from examples.ngsi.accounting import retries
from examples.ngsi.display import Display
from examples.ngsi.posting import Posting
from examples.ngsi.running import Options, Stuck, service, tasks_of, watch
from examples.ngsi.series import series
from examples.ngsi.spark_accounting import compared, expected
from examples.ngsi.spark_process import Stations, Up
from examples.ngsi.spark_summary import OfType, SparkSummary
from headrace.domain.task import State
from headrace.wire.tasks import Task

SHARDS = 1
"""Of each queue: a core for each of two stations is what a small machine has."""

LEASE_SECONDS = 30
START_SECONDS = 120.0
"""How long Spark may take to start."""

LOOK_SECONDS = 0.1


def by_stations(options: Options, python: Path, folder: Path, console: Console) -> SparkSummary:
    """Send a series to a service started for it, and count what the stations made of it.

    Raises SparkLeftOut.
    """
    plan = series(options.notifications, datetime.now(UTC))
    sent = plan.sent
    with ExitStack() as stack:
        console.print("The same queues, now worked by two stations on Spark: starting it …")
        running, client = stack.enter_context(service(lease_seconds=LEASE_SECONDS, shards=SHARDS))
        fatal = sent[len(sent) // 2].correlator
        stations = Stations(python, running.dynamodb_url, folder, fatal)
        stack.enter_context(stations.ended_after())
        posting = Posting(running.url, running.admin_key, sent, at_half=lambda: None)
        stack.callback(posting.stop)
        posting.start()
        up = _started(stations)
        display = Display(console, len(sent))
        display.say(f"Spark {up.spark} on Java {up.java} is up after {up.seconds:.1f} s")
        seen = stations.killed

        def look() -> None:
            nonlocal seen
            _ = stations.up
            if stations.killed and not seen:
                seen = True
                display.say("a Spark worker killed with SIGKILL, its tasks leased and not settled")

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
