"""The demo's first part: four workers of the SDK, one of which is killed midway."""

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console

from examples.ngsi.accounting import Crash, Outcome, audit, rows_by_task, states
from examples.ngsi.crew import Crew
from examples.ngsi.display import Display
from examples.ngsi.posting import Posting
from examples.ngsi.rows_file import RowsFile
from examples.ngsi.running import QUEUES, Options, service, tasks_of, watch
from examples.ngsi.summary import Summary
from examples.ngsi.traffic import Notification, notifications
from headrace import Client
from headrace.client.calls import Consumed
from headrace.domain.task import State
from headrace.wire.tasks import Task

WORKERS = 4
LEASE_SECONDS = 3
ROWS_NAME = "rows.sqlite"
UNDER_WAY_SECONDS = 0.3
"""After this, the last calls of a killed worker are through."""


def by_workers(options: Options, folder: Path, console: Console) -> Summary:
    """Send the notifications to a service started for it, and count what the workers made of it."""
    sent = notifications(options.notifications)
    with ExitStack() as stack:
        console.print("Starting a service of its own, with temporary data …")
        running, client = stack.enter_context(service(lease_seconds=LEASE_SECONDS, shards=1))
        file = stack.enter_context(closing(RowsFile(folder / ROWS_NAME)))
        crew = Crew(running.url, running.admin_key, folder, folder / ROWS_NAME)
        stack.enter_context(crew.ended_after())
        posting = Posting(running.url, running.admin_key, sent, at_half=crew.offer_crash)
        stack.callback(posting.stop)
        display = Display(console, len(sent))
        display.say(f"Service at {running.url}: {len(sent):,} notifications, {WORKERS} workers")
        crash = Crash("", frozenset())

        def look() -> None:
            nonlocal crash
            if crew.check():
                crash = Crash(crew.killed, _held(client, crew.killed))
                held = f"{len(crash.held)} leases in its hands"
                display.say(f"{crash.worker} killed with SIGKILL, {held}")

        crew.start(WORKERS)
        posting.start()
        with display:
            seconds = watch(client, posting, display, options.timeout, look)
        crew.end()
        tasks = tasks_of(client)
        everything = [task for of_queue in tasks.values() for task in of_queue]
        outcome = audit(sent, everything, rows_by_task(file.read()), crash)
        return _summary(sent, tasks, outcome, crash, posting.consumed + crew.consumed, seconds)


def _held(client: Client, worker: str) -> frozenset[str]:
    """Ids of the tasks whose leases a dead worker has taken with it."""
    time.sleep(UNDER_WAY_SECONDS)
    return frozenset(
        task.id
        for queue in QUEUES
        for task in client.list_tasks(queue, state=State.INFLIGHT, worker=worker)
    )


def _summary(
    sent: list[Notification],
    tasks: Mapping[str, list[Task]],
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
