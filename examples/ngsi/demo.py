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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from examples.ngsi.accounting import Crash, Outcome, Task, all_tasks, audit, rows_by_task, states
from examples.ngsi.crew import ROWS_NAME, Crew, WorkerFailed
from examples.ngsi.display import Display, Standing
from examples.ngsi.http_client import QueueClient, Refused, Unavailable
from examples.ngsi.posting import Posting, PostingFailed
from examples.ngsi.rows_file import RowsFile
from examples.ngsi.stations import ENTITIES_QUEUE, NOTIFY_QUEUE
from examples.ngsi.summary import Summary
from examples.ngsi.traffic import Notification, notifications
from infra.local.errors import LocalServiceError
from infra.local.launch import launched

QUEUES = (NOTIFY_QUEUE, ENTITIES_QUEUE)
WORKERS = 4
BATCH_SIZE = 25
KEEPALIVE_SECONDS = 2
RETRY = {"kind": "exponential", "max_retries": 8, "base_seconds": 0.2, "max_delay_seconds": 2}
WATCH_SECONDS = 0.2
SHOWN = 20
"""Problems printed one by one; the rest are counted."""


class Stuck(Exception):
    """Time is up and tasks are unfinished; the text says which."""


FAILURES = (Stuck, WorkerFailed, PostingFailed, Refused, Unavailable)
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
        watcher = QueueClient(service.url, service.admin_key)
        stack.callback(watcher.close)
        for queue in QUEUES:
            watcher.create_queue(
                {
                    "name": queue,
                    "keepalive_timeout_in_seconds": KEEPALIVE_SECONDS,
                    "retry_strategy": RETRY,
                }
            )
        crew = Crew(service.url, service.admin_key, folder, BATCH_SIZE)
        stack.enter_context(crew.ended_after())
        posting = Posting(service.url, service.admin_key, sent, at_half=crew.offer_crash)
        stack.callback(posting.stop)
        display = Display(console, len(sent))
        display.say(f"Service at {service.url}: {len(sent):,} notifications, {WORKERS} workers")
        crew.start(WORKERS)
        posting.start()
        try:
            with display:
                seconds = _watch(watcher, crew, posting, display, options.timeout)
            crew.end()
            tasks = {queue: all_tasks(watcher, queue) for queue in QUEUES}
        except FAILURES as error:
            error.add_note(service.errors()[-MOST_NOTE:])
            raise
        outcome = _audit(sent, tasks, crew)
        return _summary(sent, tasks, outcome, crew, posting, seconds)


def _endpoint() -> dict[str, str]:
    """The one setting that the demo's service takes from this process: where its tables are."""
    name = "HEADRACE_DYNAMODB_URL"
    return {name: os.environ[name]} if name in os.environ else {}


def _watch(
    watcher: QueueClient, crew: Crew, posting: Posting, display: Display, timeout: float
) -> float:
    """Wait until everything is finished, and return how many seconds it took."""
    started = time.monotonic()
    finished_at: float | None = None
    while True:
        done = posting.done
        # In the order of travel: a task that moves on in between is counted twice, never missed.
        counts = {queue: watcher.count(queue) for queue in QUEUES}
        seconds = time.monotonic() - started
        standing = Standing(posting.posted, counts, seconds)
        display.show(standing)
        if killed := crew.kill_frozen():
            display.say(f"{killed} killed with SIGKILL, {len(crew.held)} leases in its hands")
        crew.check()
        if not done or standing.of("ENQUEUED", "INFLIGHT"):
            finished_at = None
        elif finished_at is None:
            # Looked at once more: the index the counts come from may be a moment behind.
            finished_at = seconds
        else:
            return finished_at
        if seconds > timeout:
            raise Stuck(_what_is_stuck(watcher, standing))
        time.sleep(WATCH_SECONDS)


def _what_is_stuck(watcher: QueueClient, standing: Standing) -> str:
    lines = [f"Not finished after {standing.seconds:.0f} s ({standing.posted} posted):"]
    for queue in QUEUES:
        page = watcher.list_page(queue, None, state="pending", payload="false")
        for task in page["tasks"][:SHOWN]:
            last = (task["errors"] or [{"message": "no error yet"}])[-1]["message"]
            lines.append(
                f"  {queue} {task['id']} {task['status']} attempts {task['attempts']}"
                f" worker {task['worker']} due {task['scheduled_at']}: {last}"
            )
        lines.append(f"  {queue}: {standing.counts[queue]}")
    return "\n".join(lines)


def _audit(sent: list[Notification], tasks: dict[str, list[Task]], crew: Crew) -> Outcome:
    file = RowsFile(crew.rows_path)
    try:
        rows = rows_by_task(file.read())
    finally:
        file.close()
    everything = [task for of_queue in tasks.values() for task in of_queue]
    return audit(sent, everything, rows, Crash(crew.killed, crew.held))


def _summary(
    sent: list[Notification],
    tasks: dict[str, list[Task]],
    outcome: Outcome,
    crew: Crew,
    posting: Posting,
    seconds: float,
) -> Summary:
    cost = posting.tally + crew.tally
    return Summary(
        notifications=len(sent),
        malformed=sum(each.error is not None for each in sent),
        tasks={queue: states(of_queue) for queue, of_queue in tasks.items()},
        retries=outcome.retries,
        reclaimed=outcome.reclaimed,
        killed_worker=crew.killed,
        held_when_killed=len(crew.held),
        rows_expected=outcome.rows_expected,
        rows_out=outcome.rows_out,
        rows_written_again=crew.totals["rows_known"],
        seconds=round(seconds, 3),
        tasks_per_second=round(len(sent) / seconds, 1),
        calls_per_task=round(cost.calls / len(sent), 3),
        write_units_per_task=round(cost.write_units / len(sent), 3),
        read_units_per_task=round(cost.read_units / len(sent), 3),
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
