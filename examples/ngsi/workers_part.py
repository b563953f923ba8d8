"""The demo's first part: four worker processes of the SDK, one of which is killed midway.

What they log is kept in a file for each, to be shown when one fails.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from examples.ngsi.accounting import Crash, Outcome, audit, rows_by_task, states
from examples.ngsi.display import Display
from examples.ngsi.posting import Posting
from examples.ngsi.rows_file import RowsFile
from examples.ngsi.running import QUEUES, Options, WorkerFailed, service, tasks_of, watch
from examples.ngsi.summary import Summary
from examples.ngsi.traffic import Notification, notifications
from headrace import Client
from headrace.client.calls import Consumed
from headrace.domain.task import State
from headrace.wire.tasks import Task

END_SECONDS = 20.0
"""How long a worker may take to end, its own shutdown timeout included."""

_WORK = (
    *(sys.executable, "-m", "headrace.cli.main", "work", "examples.ngsi.rehearsal:app"),
    "--shutdown-timeout=5s",
)
WORKERS = 4
LEASE_SECONDS = 3
ROWS_NAME = "rows.sqlite"
UNDER_WAY_SECONDS = 0.3
"""After this, the last calls of a killed worker are through."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One worker process, what it logs and what it says in the end."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    costs: Path


class Crew:
    """The workers of one demo."""

    def __init__(self, url: str, key: str, folder: Path, rows: Path) -> None:
        """Nothing runs yet. ``folder`` takes the crash token and the logs."""
        self._folder = folder
        self._token = folder / "crash-token"
        self._environment = {
            **os.environ,
            "HEADRACE_URL": url,
            "HEADRACE_KEY": key,
            "NGSI_ROWS": str(rows),
            "NGSI_CRASH_TOKEN": str(self._token),
        }
        self._members: list[_Member] = []
        self._crash_offered = False
        self.killed = ""

    def start(self, number: int) -> None:
        """Start that many workers."""
        for place in range(1, number + 1):
            name = f"worker-{place}"
            log, costs = self._folder / f"{name}.log", self._folder / f"{name}.json"
            with log.open("wb") as errors, costs.open("wb") as output:
                process = subprocess.Popen(  # noqa: S603 (our own program and arguments)
                    [*_WORK, f"--name={name}"],
                    stdout=output,
                    stderr=errors,
                    env=self._environment,
                    # Ctrl-C reaches the demo only, which then ends its workers in good order.
                    start_new_session=True,
                )
            self._members.append(_Member(name, process, log, costs))

    def offer_crash(self) -> None:
        """Lay out the token: the next worker with rows written and not yet reported dies."""
        self._crash_offered = True
        self._token.touch()

    def check(self) -> bool:
        """Return whether the worker has died that was to, for the first time.

        Raises WorkerFailed when another has ended.
        """
        news = False
        for member in self._members:
            status = member.process.poll()
            if status is None or member.name == self.killed:
                continue
            dies = self._crash_offered and not self.killed and not self._token.exists()
            if not (dies and status == -signal.SIGKILL):
                words = _last_words(member.log)
                raise WorkerFailed(f"{member.name} ended by itself, status {status}\n{words}")
            self.killed, news = member.name, True
        return news

    @property
    def consumed(self) -> Consumed:
        """What the calls of all workers have cost; known when they have ended."""
        total = Consumed()
        for member in self._members:
            if text := member.costs.read_text():
                total += Consumed(**json.loads(text))
        return total

    @contextlib.contextmanager
    def ended_after(self) -> Iterator[None]:
        """End every worker after the block, however that ends."""
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Ask every worker to end and wait for it; kill those that do not."""
        for member in self._members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGTERM)
        for member in self._members:
            try:
                member.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def by_workers(options: Options, folder: Path, console: Console) -> Summary:
    """Send the notifications to a service started for it, and count what the workers made of it."""
    sent = notifications(options.notifications)
    with ExitStack() as stack:
        running, client = stack.enter_context(service(lease_seconds=LEASE_SECONDS, shards=1))
        file = stack.enter_context(closing(RowsFile(folder / ROWS_NAME)))
        crew = Crew(running.url, running.admin_key, folder, folder / ROWS_NAME)
        stack.enter_context(crew.ended_after())
        posting = Posting(running.url, running.admin_key, sent, at_half=crew.offer_crash)
        stack.callback(posting.stop)
        display = Display(console, len(sent))
        display.say(
            f"A service with temporary data: {len(sent):,} notifications, {WORKERS} workers"
        )
        crash = Crash("", frozenset())

        def look() -> None:
            nonlocal crash
            if crew.check():
                crash = Crash(crew.killed, _held(client, crew.killed))
                display.say(f"{crash.worker} was killed while it held {len(crash.held)} tasks")

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
