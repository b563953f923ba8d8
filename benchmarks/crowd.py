"""`python -m benchmarks.crowd`: the console's pages with a million tasks over a hundred queues.

Twenty of the queues have 200,000 dead tasks of 40 kinds, and a thousand workers are heard of.  The
tasks are put into a folder, which takes half an hour on two slow cores; a second run over the same
folder only asks for the pages.  Beside the time of each answer stands the processor's, which says
the same on a machine with other work.  At the end a dry run counts one kind of error again.

Exit status: 0 every page within the bar, 1 one was not.
"""

import argparse
import html
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rich.console import Console as Terminal

from benchmarks.console import MEDIAN_MS, Visitor
from benchmarks.results import median, table
from headrace.client.client import Client
from headrace.client.sending import Failure, NewTask, Report
from infra.launch import Launched, launched

_QUEUES: Final = 100
_DYING: Final = 20  # queues with dead tasks
_WORKERS: Final = 1_000
_KINDS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"
BATCH: Final = 100
_AT_ONCE: Final = 25
_KEY: Final = "a-key-for-the-crowd-alone"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_QUEUE: Final = "/console/queues/queue-000"
_PAGES: Final = (
    "/console",
    "/console?sort=-ready",
    _QUEUE,
    f"{_QUEUE}?state=DEAD",
    f"{_QUEUE}?compare=hour",
    f"{_QUEUE}?span=week&compare=week",
    f"{_QUEUE}/settings",
    "/console/errors",
    f"{_QUEUE}?state=DEAD&error=nothing-has-this",
    f"{_QUEUE}?q=state:dead+error:kindc",
    "/console/errors?q=error:kindc",
    "/console/workers",
    "/console/search?q=tsk_01",
    "/console/search?q=tag:tenant%3Dacme",
    "/console/schedules",
    "/console/batches",
    "/console/pipelines",
    "/console/proof",
    "/console/keys",
    "/console/activity",
    "/console/activity",
)


@dataclass(frozen=True, slots=True)
class _Size:
    tasks: int
    dead: int


def main() -> int:
    """Fill the folder if it is new, and ask for each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the tasks are, or are put")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--dead", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    new = not given.folder.exists()
    with launched(data_dir=given.folder, admin_key=_KEY) as service:
        with Client(service.file_url, _KEY) as client:
            if new:
                _fill(client, _Size(given.tasks, given.dead))
            _listen(client)
        return 0 if _ask(service, given.rounds) else 1


def _fill(client: Client, size: _Size) -> None:
    for number in range(_QUEUES):
        queue = f"queue-{number:03}"
        client.create_queue(queue, retry_strategy={"max_retries": 0, "kind": "fixed"})
        dead = size.dead // _DYING if number < _DYING else 0
        for batch in range(0, dead, BATCH):
            put(client, queue)
            let_die(client, queue, _KINDS[batch // BATCH % len(_KINDS)])
        for _ in range(0, size.tasks // _QUEUES - dead, BATCH):
            put(client, queue)


def _listen(client: Client) -> None:
    """Let workers be heard of, each of a few queues."""
    for number in range(_WORKERS):
        client.put_worker(
            f"host-{number // 8:03}:{number}",
            queues=[f"queue-{(number * 7 + more) % _QUEUES:03}" for more in range(5)],
            concurrency=8,
            running=[],
            started_at=datetime.now(UTC) - timedelta(hours=1),
            version=f"2026.11.{number % 4}",
        )


def put(client: Client, queue: str) -> None:
    """Put a hundred tasks into *queue*."""
    client.enqueue_many(queue, [NewTask(payload={"task": "crowd.one", "args": {}})] * BATCH)


def let_die(client: Client, queue: str, kind: str) -> None:
    """Let a hundred tasks of *queue* die of an error of this *kind*."""
    error = Failure(f"Error{kind}", f"cannot do what is of kind{kind}")
    for _ in range(0, BATCH, _AT_ONCE):
        taken = client.dequeue(queue, batch_size=_AT_ONCE, worker="crowd:1").tasks
        client.report(queue, [
            Report(task_id=task.id, lease_id=task.lease.id, status="FAILED", error=error)
            for task in taken
        ])  # fmt: skip


def _ask(service: Launched, rounds: int) -> bool:
    shown = table("The console in a crowd", "Page", "median ms", "processor ms", "KiB")
    kept = True
    with Visitor(service.url, _KEY) as visitor:
        for page in (*_PAGES, *_tasks(visitor)):
            visitor.get(page)
            before = _processor_ms(service.pid)
            timed = [visitor.timed(page) for _ in range(rounds)]
            busy = (_processor_ms(service.pid) - before) / rounds
            middle = 1000 * median([seconds for seconds, _ in timed])
            kept = kept and middle <= MEDIAN_MS
            shown.add_row(page, f"{middle:.0f}", f"{busy:.0f}", f"{timed[-1][1] / 1024:.0f}")
        counted, found = _counted_twice(visitor)
        said = re.search(r"[\d\s]+kinds of error: [^<.]+", visitor.get("/console/errors").decode())
    Terminal().print(shown)
    sys.stdout.write(f"Errors says:{said[0] if said else ' nothing'}\n")
    sys.stdout.write(f"Of its first kind it says {counted}, the dry run finds {found}\n")
    return kept and counted == found


def _counted_twice(visitor: Visitor) -> tuple[int, int]:
    """Return how many dead the page of errors says of its first kind, and the dry run finds."""
    page = visitor.get("/console/errors").decode()
    [group] = re.findall(r'<li class="group">.*?</form>', page, re.DOTALL)[:1]
    fields = re.findall(r'name="(token|fingerprint|queue)" value="([^"]+)"', group)
    place = visitor.post("/console/errors", [*fields, ("action", "restart")])
    while True:
        seen = visitor.get(place).decode()
        if (on := re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', seen)) is None:
            break
        place = html.unescape(on[1])
    return _number(group, r'class="num[^"]*">([^<]+)<'), _number(seen, r"<h1>Restart ([^a-z]+)task")


def _number(text: str, pattern: str) -> int:
    return int("".join(filter(str.isdigit, re.findall(pattern, text)[0])))


def _tasks(visitor: Visitor) -> Iterator[str]:
    yield from re.findall(r"/console/tasks/tsk_\w+", visitor.get(f"{_QUEUE}?state=DEAD").decode())[
        :1
    ]


def _processor_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
