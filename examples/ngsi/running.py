"""What both parts of the demo have in common: the service, what is watched, and how it may end."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.display import Display, Standing
from examples.ngsi.posting import Posting, PostingFailed
from headrace import Client, HeadraceError, RetryStrategy
from headrace.domain.task import State
from headrace.wire.tasks import Task
from infra.launch import Launched, launched

QUEUES = (NOTIFY_QUEUE, ENTITIES_QUEUE)
RETRY = RetryStrategy(max_retries=8, base_seconds=0.2, max_delay_seconds=2)
WATCH_SECONDS = 0.2
SHOWN = 20
"""Problems and unfinished tasks shown one by one; the rest are counted."""

MOST_NOTE = 2000
"""Characters of the service's last words that are shown when something fails."""


class Stuck(Exception):
    """Time is up and tasks are unfinished; the text says which."""


class WorkerFailed(Exception):
    """A worker ended although nobody asked it to; the text holds its last words."""


class StationsFailed(Exception):
    """The stations' process ended although nobody asked it to; the text holds its last words."""


FAILURES = (Stuck, WorkerFailed, PostingFailed, StationsFailed, HeadraceError)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for.

    ``spark`` is a Python that has PySpark, or None to leave that part out.  ``timeout`` is for how
    many seconds nothing may happen.
    """

    notifications: int
    json: bool
    keep: Path | None
    timeout: float
    spark: Path | None


@contextmanager
def service(*, lease_seconds: float, shards: int) -> Iterator[tuple[Launched, Client]]:
    """A service of its own with the two queues; its last words go with an error that matters."""
    name = "HEADRACE_DYNAMODB_URL"
    endpoint = {name: os.environ[name]} if name in os.environ else {}
    with (
        launched(environment=endpoint) as running,
        Client(running.url, running.admin_key, retries=2) as client,
    ):
        for queue in QUEUES:
            client.create_queue(
                queue,
                keepalive_timeout_in_seconds=lease_seconds,
                retry_strategy=RETRY,
                shards=shards,
            )
        try:
            yield running, client
        except FAILURES as error:
            error.add_note(running.errors()[-MOST_NOTE:])
            raise


def watch(
    client: Client,
    posting: Posting,
    display: Display,
    timeout: float,
    look: Callable[[], None],
) -> float:
    """Wait until all is sent and finished; return the seconds that took.

    *look* is called again and again, to see what else there is to see, and may raise.
    Raises Stuck when nothing has changed for *timeout* seconds.
    """
    started = time.monotonic()
    finished_at: float | None = None
    before: tuple[object, ...] = ()
    changed_at = 0.0
    while True:
        look()
        done = posting.done
        # In the order of travel: a task that moves on in between is counted twice, never missed.
        counts = {queue: client.count_tasks(queue).by_state for queue in QUEUES}
        seconds = time.monotonic() - started
        standing = Standing(posting.posted, counts, seconds)
        display.show(standing)
        if not done or standing.of(State.ENQUEUED, State.INFLIGHT):
            finished_at = None
        elif finished_at is None:
            # Looked at once more: the index the counts come from may be a moment behind.
            finished_at = seconds
        else:
            return finished_at
        now = (posting.posted, counts)
        if now != before:
            before, changed_at = now, seconds
        if seconds - changed_at > timeout:
            raise Stuck(_what_is_stuck(client, standing))
        time.sleep(WATCH_SECONDS)


def tasks_of(client: Client) -> Mapping[str, list[Task]]:
    """All tasks of each queue."""
    return {queue: list(client.list_tasks(queue, limit=250)) for queue in QUEUES}


def _what_is_stuck(client: Client, standing: Standing) -> str:
    lines = [f"Stuck, after {standing.seconds:.0f} s ({standing.posted} posted):"]
    for queue in QUEUES:
        for task in islice(client.list_tasks(queue, state="pending"), SHOWN):
            last = task.errors[-1].message if task.errors else "no error yet"
            lines.append(
                f"  {queue} {task.id} {task.status} attempts {task.attempts}"
                f" worker {task.worker} due {task.scheduled_at}: {last}"
            )
        counts = ", ".join(f"{n} {state}" for state, n in standing.counts[queue].items())
        lines.append(f"  {queue}: {counts}")
    return "\n".join(lines)
