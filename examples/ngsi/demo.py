"""Real sensor notifications on their way through two durable queues, on a service of its own.

Notifications arrive over HTTP, four workers split them into rows and load the rows into SQLite;
one task in ten fails once on purpose, some notifications cannot be read, and midway one worker is
killed with leases in its hands. In the end every notification must be accounted for.

Exit status: 0 all is well, 1 something is unaccounted for, unfinished or failed, 130 Ctrl-C.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console

from examples.ngsi.accounting import Crash, Outcome, audit, rows_by_task, states
from examples.ngsi.app import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.crew import Crew, WorkerFailed
from examples.ngsi.display import Display, Standing
from examples.ngsi.posting import Posting, PostingFailed
from examples.ngsi.rows_file import RowsFile
from examples.ngsi.summary import Summary
from examples.ngsi.traffic import Notification, notifications
from headrace import Client, RetryStrategy
from headrace.client.consumed import Consumed
from headrace.client.models import Task
from headrace.domain.errors import HeadraceError
from headrace.domain.task import State
from infra.local.errors import LocalServiceError
from infra.local.launch import launched

QUEUES = (NOTIFY_QUEUE, ENTITIES_QUEUE)
WORKERS = 4
LEASE_SECONDS = 3
RETRY = RetryStrategy(max_retries=8, base_seconds=0.2, max_delay_seconds=2)
ROWS_NAME = "rows.sqlite"
UNDER_WAY_SECONDS = 0.3
"""After this, the last calls of a killed worker are through."""

WATCH_SECONDS = 0.2
SHOWN = 20
"""Problems printed one by one; the rest are counted."""


class Stuck(Exception):
    """Time is up and tasks are unfinished; the text says which."""


FAILURES = (Stuck, WorkerFailed, PostingFailed, HeadraceError)
MOST_NOTE = 2000
"""Characters of the service's last words that are shown when something fails."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for. ``timeout`` is in seconds, from the first notification."""

    notifications: int
    json: bool
    keep: Path | None
    timeout: float


def run(options: Options, console: Console) -> Summary:
    """Run the demo on a service started for it, and count what came out."""
    sent = notifications(options.notifications)
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        console.print("Starting a service of its own, with temporary data …")
        service = stack.enter_context(launched(environment=_endpoint()))
        watcher = stack.enter_context(Client(service.url, service.admin_key, retries=2))
        for queue in QUEUES:
            watcher.create_queue(
                queue, keepalive_timeout_in_seconds=LEASE_SECONDS, retry_strategy=RETRY
            )
        file = stack.enter_context(closing(RowsFile(folder / ROWS_NAME)))
        crew = Crew(service.url, service.admin_key, folder, folder / ROWS_NAME)
        stack.enter_context(crew.ended_after())
        posting = Posting(service.url, service.admin_key, sent, at_half=crew.offer_crash)
        stack.callback(posting.stop)
        display = Display(console, len(sent))
        display.say(f"Service at {service.url}: {len(sent):,} notifications, {WORKERS} workers")
        crew.start(WORKERS)
        posting.start()
        try:
            with display:
                seconds, crash = _watch(watcher, crew, posting, display, options.timeout)
            crew.end()
            tasks = {queue: list(watcher.list_tasks(queue, limit=250)) for queue in QUEUES}
        except FAILURES as error:
            error.add_note(service.errors()[-MOST_NOTE:])
            raise
        everything = [task for of_queue in tasks.values() for task in of_queue]
        outcome = audit(sent, everything, rows_by_task(file.read()), crash)
        consumed = posting.consumed + crew.consumed
        return _summary(sent, tasks, outcome, crash, consumed, seconds)


def _endpoint() -> dict[str, str]:
    """The one setting that the demo's service takes from this process: where its tables are."""
    name = "HEADRACE_DYNAMODB_URL"
    return {name: os.environ[name]} if name in os.environ else {}


def _watch(
    watcher: Client, crew: Crew, posting: Posting, display: Display, timeout: float
) -> tuple[float, Crash]:
    """Wait until all is finished; return the seconds that took, and who was killed meanwhile."""
    started = time.monotonic()
    finished_at: float | None = None
    crash = Crash("", frozenset())
    while True:
        if crew.check():
            crash = Crash(crew.killed, _held(watcher, crew.killed))
            display.say(
                f"{crash.worker} killed with SIGKILL, {len(crash.held)} leases in its hands"
            )
        done = posting.done
        # In the order of travel: a task that moves on in between is counted twice, never missed.
        counts = {queue: watcher.count_tasks(queue).by_state for queue in QUEUES}
        seconds = time.monotonic() - started
        standing = Standing(posting.posted, counts, seconds)
        display.show(standing)
        if not done or standing.of(State.ENQUEUED, State.INFLIGHT):
            finished_at = None
        elif finished_at is None:
            # Looked at once more: the index the counts come from may be a moment behind.
            finished_at = seconds
        else:
            return finished_at, crash
        if seconds > timeout:
            raise Stuck(_what_is_stuck(watcher, standing))
        time.sleep(WATCH_SECONDS)


def _held(watcher: Client, worker: str) -> frozenset[str]:
    """Ids of the tasks whose leases a dead worker has taken with it."""
    time.sleep(UNDER_WAY_SECONDS)
    return frozenset(
        task.id
        for queue in QUEUES
        for task in watcher.list_tasks(queue, state=State.INFLIGHT, worker=worker)
    )


def _what_is_stuck(watcher: Client, standing: Standing) -> str:
    lines = [f"Not finished after {standing.seconds:.0f} s ({standing.posted} posted):"]
    for queue in QUEUES:
        for task in islice(watcher.list_tasks(queue, state="pending"), SHOWN):
            last = task.errors[-1].message if task.errors else "no error yet"
            lines.append(
                f"  {queue} {task.id} {task.status} attempts {task.attempts}"
                f" worker {task.worker} due {task.scheduled_at}: {last}"
            )
        counts = ", ".join(f"{n} {state}" for state, n in standing.counts[queue].items())
        lines.append(f"  {queue}: {counts}")
    return "\n".join(lines)


def _summary(
    sent: list[Notification],
    tasks: dict[str, list[Task]],
    outcome: Outcome,
    crash: Crash,
    consumed: Consumed,
    seconds: float,
) -> Summary:
    return Summary(
        notifications=len(sent),
        malformed=sum(each.error is not None for each in sent),
        tasks={queue: states(of_queue) for queue, of_queue in tasks.items()},
        retries=outcome.retries,
        reclaimed=outcome.reclaimed,
        killed_worker=crash.worker,
        held_when_killed=len(crash.held),
        rows_expected=outcome.rows_expected,
        rows_out=outcome.rows_out,
        rows_written_again=outcome.rows_known,
        seconds=round(seconds, 3),
        tasks_per_second=round(len(sent) / seconds, 1),
        calls_per_task=round(consumed.calls / len(sent), 3),
        write_units_per_task=round(consumed.write_units / len(sent), 3),
        read_units_per_task=round(consumed.read_units / len(sent), 3),
        problems=outcome.problems,
    )


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m examples.ngsi.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--notifications", type=int, default=1400, metavar="N", help="how many to send (1400)"
    )
    parser.add_argument("--json", action="store_true", help="the numbers as JSON, for a program")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep rows and logs in DIR")
    parser.add_argument(
        "--timeout", type=float, default=50.0, metavar="SECONDS", help="give up after (50)"
    )
    options = Options(**vars(parser.parse_args()))
    if not 1 <= options.notifications <= 1_000_000:  # noqa: PLR2004 (as the message says)
        parser.error("--notifications takes 1 to 1,000,000")
    if options.keep and (options.keep / ROWS_NAME).exists():
        parser.error(f"{options.keep} holds the rows of an earlier run already")
    return options


def main() -> int:
    """Run the demo as the command line asks, and say how it went."""
    options = _options()
    console = Console(stderr=options.json)
    try:
        summary = run(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted; the service and its data are gone.")
        return 130
    except (*FAILURES, LocalServiceError) as error:
        for text in (str(error), *getattr(error, "__notes__", ())):
            console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    if options.json:
        print(json.dumps(summary.as_json(), indent=2))
    else:
        console.print(summary.table())
    for problem in summary.problems[:SHOWN]:
        console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    if summary.problems:
        console.print(f"{len(summary.problems)} problems", style="bold red")
        return 1
    console.print("Every notification is accounted for.", style="green")
    return 0


if __name__ == "__main__":
    sys.exit(main())
