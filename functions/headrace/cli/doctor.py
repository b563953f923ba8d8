"""`headrace doctor`: is the service there, does the key fit, and what in the queues will hurt."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import click

from headrace import __version__
from headrace.cli.advice import (
    Advice,
    queue_advice,
    skew_advice,
    version_advice,
    well,
)
from headrace.cli.commands import CliCommand, queue_names
from headrace.cli.exits import Exit, exit_of
from headrace.cli.output import cell, document, grid, write
from headrace.cli.session import CliSession
from headrace.client.client import Client
from headrace.client.models import WorkerSeen
from headrace.domain.errors import Forbidden, HeadraceError, NotFound, Unauthenticated

_MARKS: Final = {"ok": ("ok", "green"), "advice": ("!", "yellow"), "failed": ("x", "red")}
_ROLE: Final = re.compile(r"an? (\w+) key may not")


@click.command("doctor", cls=CliCommand, example="headrace doctor\nheadrace doctor mail --json")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=queue_names)
@click.pass_obj
def doctor_command(session: CliSession, queues: tuple[str, ...]) -> Exit:
    """Check key, clock, service and queues, with advice.

    Ends with 0 when all is well, 1 when there is advice, 3 when a QUEUE is missing, 4 when the key
    is refused, and 6 when the service cannot be reached.
    """
    session.retries = 0
    findings: list[Advice] = []
    code = Exit.DONE
    try:
        for finding in _checks(session.client, queues, session.now):
            findings.append(finding)  # noqa: PERF402 (what was found before an error stays)
    except Unauthenticated as error:
        findings.append(
            Advice("key", error.detail, "set HEADRACE_KEY to a key of this service", "failed")
        )
        code = Exit.NOT_ALLOWED
    except HeadraceError as error:
        code = exit_of(error)
        advice = f"is it running? {session.named_by()}" if code is Exit.UNAVAILABLE else "-"
        findings.append(Advice("service", session.explain(error), advice, "failed"))
    levels = {one.level for one in findings}
    if code is Exit.DONE and levels != {"ok"}:
        code = Exit.NOT_FOUND if "failed" in levels else Exit.FAILED
    _show_outcome(session, findings)
    return code


def _checks(
    client: Client, queues: tuple[str, ...], now: Callable[[], datetime]
) -> Iterator[Advice]:
    before = now()
    health = client.health()
    took = now() - before
    url = getattr(client, "url", "the service")
    yield well("service", f"{url} answers in {took.total_seconds() * 1000:.0f} ms")
    yield skew_advice(before + took / 2, health.now)
    yield version_advice(__version__, health.version)
    yield well("key", f"is known: {_role(client)}")
    workers = _workers(client)
    names = queues or tuple(queue.name for queue in client.list_queues())
    if not names:
        yield well("queues", "none that this key may see: `headrace queue create NAME`")
    for name in names:
        try:
            yield from queue_advice(client.get_queue(name), workers, health.now)
        except NotFound as error:
            make = f"`headrace queue create {name}`"
            yield Advice(f"queue {name}", error.detail, make, "failed")


def _role(client: Client) -> str:
    """Return the key's role: only an admin may list keys, and a refusal names the role."""
    try:
        next(client.list_keys(), None)
    except Forbidden as error:
        found = _ROLE.search(error.detail)
        return found[1] if found else "no admin"
    return "admin"


def _workers(client: Client) -> list[WorkerSeen] | None:
    try:
        return list(client.list_workers())
    except Forbidden:
        return None


def _show_outcome(session: CliSession, findings: list[Advice]) -> None:
    if session.json:
        document(findings)
        return
    made = grid("", "What", "Seen", "Advice")
    for one in findings:
        mark, style = _MARKS[one.level]
        made.add_row(cell(mark, style), cell(one.subject), cell(one.seen), cell(one.advice or "-"))
    write(made)
