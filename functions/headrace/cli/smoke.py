"""`headrace smoke`: a dozen calls that show whether a deployment works."""

import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

import click
import msgspec

from headrace.cli.commands import CliCommand
from headrace.cli.output import cell, document, grid, span, write
from headrace.cli.session import CliSession, Exit, Failed, exit_of
from headrace.client.address import HttpAddress
from headrace.client.calls import ApiCall
from headrace.client.client import Client
from headrace.client.sending import Report
from headrace.domain.errors import HeadraceError, NotFound
from headrace.domain.texts import amount, escape_unseen
from headrace.wire.tasks import LeasedTask

T = TypeVar("T")

_PAYLOAD: Final = {"text": 'Ñandú 水 🚰 "quoted"\t', "whole": 12345678901234567890, "price": 1.1}
_SECONDS: Final = 60.0
"""The most that the index and the recorder may be behind; both usually need under a second."""
_CLOCK_SKEW: Final = timedelta(seconds=60)
_ENDS: Final = (Exit.NOT_ALLOWED, Exit.UNAVAILABLE)
_STYLES: Final = {"ok": "green", "wrong": "red", "skipped": "yellow"}


CheckRow: TypeAlias = dict[str, Any]
"""The result of one check; ``code`` and ``request_id`` are those of an error answer."""


class WrongAnswer(Exception):
    """An answer differs from the contract."""


@dataclass(slots=True)
class Smoke:
    """One run: the client, the queue that it creates, and the task that it follows."""

    client: Client
    queue: str
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    has_queue: bool = False
    held: list[LeasedTask] = field(default_factory=list)

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return f"{self.queue}-task"

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """Return the result of *look*, called every second.  Raises WrongAnswer after a minute."""
        began = self.now()
        while (found := look()) is None:
            if self.now() - began > timedelta(seconds=_SECONDS):
                raise WrongAnswer(f"no {what} within {span(_SECONDS)}")
            self.sleep(1.0)
        return found

    # ---------------------------------------------------------------------------------- checks

    def service(self) -> str:
        """Ask for the service's health, and compare its clock with the one here."""
        health = self.client.health()
        skew = abs(health.now - self.now())
        if skew > _CLOCK_SKEW:
            raise WrongAnswer(f"its clock is {span(skew.total_seconds())} off from the one here")
        return f"{self.client.url}, version {health.version}"

    def key(self) -> str:
        """List keys, which only the key of an admin may do."""
        next(iter(self.client.list_keys()), None)
        return "an admin's"

    def create_queue(self) -> str:
        """Create the queue."""
        self.has_queue = True  # also if the answer is lost
        self.client.create_queue(self.queue, description="a smoke test; may be deleted")
        return self.queue

    def enqueue(self) -> str:
        """Enqueue a task."""
        made = self.client.enqueue(self.queue, _PAYLOAD, id=self.task_id, tags={"smoke": "yes"})
        return _expect(made.outcome, "CREATED")

    def show(self) -> str:
        """Show the task, with the payload as it was sent."""
        task = self.client.get_task(self.task_id)
        if task.payload != _PAYLOAD:
            raise WrongAnswer(f"the payload came back as {task.payload!r:.80}")
        return _expect(task.status, "READY")

    def list_tasks(self) -> str:
        """List tasks by tag, from the index."""

        def look() -> list[str] | None:
            tasks = self.client.list_tasks(self.queue, tags={"smoke": "yes"})
            return [task.id for task in tasks] or None

        _expect(self.until(look, "task in the list"), [self.task_id])
        return "1 task with its tag"

    def dequeue(self) -> str:
        """Lease the task."""

        def look() -> list[LeasedTask] | None:
            call = self.client.dequeue(self.queue, wait_seconds=2, worker="smoke")
            return call.tasks or None

        self.held = self.until(look, "task to lease")
        _expect([task.id for task in self.held], [self.task_id])
        return "1 task leased"

    def heartbeat(self) -> str:
        """Extend the lease."""
        [task] = self.held
        [beat] = self.client.report(self.queue, [Report.on(task, "INFLIGHT", progress=1)])
        return _expect(beat.outcome, "OK")

    def report(self) -> str:
        """Report success, with a result."""
        [task] = self.held
        [done] = self.client.report(self.queue, [Report.on(task, "SUCCEEDED", result={"rows": 12})])
        _expect(done.outcome, "OK")
        task_now = self.client.get_task(task.id)
        _expect(task_now.result, {"rows": 12})
        return _expect(task_now.status, "SUCCEEDED")

    def count(self) -> str:
        """Read the queue's counters, which the recorder keeps."""

        def look() -> str | None:
            counts = self.client.get_stats(self.queue).counts
            return "1 succeeded" if (counts.succeeded, counts.ready) == (1, 0) else None

        return self.until(look, "count of 1 succeeded task")

    def console(self) -> str:
        """Open the console's page for signing in."""
        if not isinstance(self.client.settings.address, HttpAddress):
            return "none: this service is opened by this process"
        page = self.client.send(ApiCall("GET", "/console/sign-in", lambda answer: answer.body))
        if b"<form" not in page:
            raise WrongAnswer("the page has no form to sign in")
        return "asks for a key"

    def delete_queue(self) -> str:
        """Delete the queue."""
        later = not self.client.delete_queue(self.queue)
        self.has_queue = False
        return "deleted in the background" if later else "deleted"


_CHECKS: Final = (
    ("service", Smoke.service),
    ("key", Smoke.key),
    ("queue: create", Smoke.create_queue),
    ("task: enqueue", Smoke.enqueue),
    ("task: show", Smoke.show),
    ("task: list", Smoke.list_tasks),
    ("task: dequeue", Smoke.dequeue),
    ("task: heartbeat", Smoke.heartbeat),
    ("task: report", Smoke.report),
    ("queue: counters", Smoke.count),
    ("console", Smoke.console),
    ("queue: delete", Smoke.delete_queue),
)
_VITAL: Final = ("service", "key")
"""If one of these fails, the command ends."""


@click.command("smoke", cls=CliCommand, example="headrace smoke\nheadrace smoke --json")
@click.pass_obj
def smoke_command(session: CliSession) -> Exit:
    """Follow one task through a deployment, and clean up.

    Takes an admin's key and a few seconds.  Everything that it creates is in a queue named smoke-…,
    which it deletes at the end, also after an error or Ctrl-C.
    Ends with 0 if everything works, 1 if something does not, 4 if the key is not an admin's, and 6
    if the service cannot be reached.
    """
    began = session.now()
    smoke = Smoke(session.client, f"smoke-{secrets.token_hex(4)}", session.now, session.sleep)
    left: list[dict[str, str]] = []
    rows: list[CheckRow] = []
    with _cleaning_up(smoke, left):
        rows += _checked(session, smoke)
    _show(session, smoke, rows, left, (session.now() - began).total_seconds())
    wrong = any(row["outcome"] != "ok" for row in rows)
    return Exit.FAILED if wrong or left else Exit.DONE


def _checked(session: CliSession, smoke: Smoke) -> Iterator[CheckRow]:
    """Yield the checks; after a wrong one the rest is skipped.

    Raises the error of a vital check, which ends the command.
    """
    failed = ""
    for title, check in _CHECKS:
        row: CheckRow = {"check": title, "outcome": "ok", "seen": "", "milliseconds": 0}
        row |= {"code": None, "request_id": None}
        if failed:
            yield row | {"outcome": "skipped", "seen": f"needs “{failed}”"}
            continue
        began = time.perf_counter()
        try:
            row["seen"] = check(smoke)
        except (HeadraceError, WrongAnswer, msgspec.DecodeError) as error:
            failed = title
            if title in _VITAL:
                if isinstance(error, HeadraceError) and exit_of(error) in _ENDS:
                    raise
                text = f"{session.address()}: {error}; {session.named_by()}"
                raise Failed(text) from error
            row |= {"outcome": "wrong", **_fault(error)}
        yield row | {"milliseconds": round((time.perf_counter() - began) * 1000)}


def _fault(error: Exception) -> CheckRow:
    if not isinstance(error, HeadraceError):
        return {"seen": str(error)}
    code, request = error.answered_code or error.code, error.request_id
    text = f"{code}: {error}" + (f" (request {request})" if request else "")
    return {"seen": text, "code": code, "request_id": request}


@contextmanager
def _cleaning_up(smoke: Smoke, left: list[dict[str, str]]) -> Iterator[None]:
    """Delete the queue at the end; if that fails, add it to *left*.

    SIGTERM is handled like Ctrl-C, so the queue is deleted then too.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        try:
            if smoke.has_queue:
                with suppress(NotFound):
                    smoke.client.delete_queue(smoke.queue)
        except HeadraceError:
            command = f"headrace queue delete {smoke.queue} --yes"
            left.append({"what": f"queue {smoke.queue}", "command": command})
            note = f"left behind: queue {smoke.queue}; remove it: {command}"
            click.echo(escape_unseen(note), err=True)
        finally:
            signal.signal(signal.SIGTERM, before)


def _show(
    session: CliSession,
    smoke: Smoke,
    rows: list[CheckRow],
    left: list[dict[str, str]],
    seconds: float,
) -> None:
    counts = Counter(dict.fromkeys(_STYLES, 0))
    counts.update(row["outcome"] for row in rows)
    if session.json:
        found = {"url": session.address(), "name": smoke.queue, "seconds": round(seconds, 1)}
        document({**found, "counts": counts, "checks": rows, "left_behind": left})
        return
    made = grid("Check", "Outcome", "Seen", "ms", right=("ms",))
    for row in rows:
        outcome = cell(row["outcome"], _STYLES[row["outcome"]])
        made.add_row(cell(row["check"]), outcome, cell(row["seen"]), cell(row["milliseconds"]))
    write(made)
    parts = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)
    session.note(f"{amount(len(rows), 'check')}: {parts}, in {span(seconds)}.")


def _expect(found: T, right: T) -> T:
    """Return *found*.  Raises WrongAnswer unless it equals *right*."""
    if found != right:
        raise WrongAnswer(f"{found!r:.80} instead of {right!r}")
    return found
