"""`headrace smoke`: does a deployment do what it should, every call of it, once."""

import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from headrace.cli.checks import acting, beside, counted, operators, pages, service, tasks, waiting
from headrace.cli.checks.run import Check, CheckOutcome, CheckRow, Smoke, must, rows
from headrace.cli.checks.wire import Wire, Wrong
from headrace.cli.commands import CliCommand
from headrace.cli.output import cell, document, grid, many, progress, span, write
from headrace.cli.session import CliSession, Exit, Failed, exit_of
from headrace.domain.errors import HeadraceError
from headrace.domain.escaping import escape_unseen

_ENDS: Final = (Exit.NOT_ALLOWED, Exit.UNAVAILABLE)
_STYLES: Final = {"ok": "green", "wrong": "red", "left out": "yellow"}

FIRST: Final = (
    Check("service", service.reachable),
    Check("key", service.admin),
)
"""Without these there is nothing to check."""

OTHERS: Final = (
    Check("queue: create", operators.create_queue, vital=True),
    Check("schedule: put", waiting.put_schedule),
    Check("lease: left to lapse", waiting.let_lapse),
    Check("key: make", operators.create_key),
    Check("key: list", operators.list_keys),
    Check("key: where it may not", operators.forbidden),
    Check("key: rotate", operators.rotate_key),
    Check("document: OpenAPI", service.openapi),
    Check("document: page", service.docs),
    Check("queue: name taken", operators.name_taken),
    Check("queue: show", operators.show_queue),
    Check("queue: list", operators.list_queues),
    Check("queue: replace", operators.replace_queue),
    Check("queue: old version", operators.outdated_queue),
    Check("queue: index anew", operators.reindex_queue),
    Check("queue: pause", operators.pause_queue),
    Check("queue: signing secret", operators.signing_secret),
    Check("queue: resume", operators.resume_queue),
    Check("task: enqueue", tasks.enqueue),
    Check("task: same ids again", tasks.again),
    Check("task: dedupe key", tasks.duplicate),
    Check("task: show", tasks.show),
    Check("task: explain", tasks.explain),
    Check("task: list", tasks.listed),
    Check("task: count", tasks.count),
    Check("task: dequeue", tasks.dequeue),
    Check("task: heartbeat", tasks.heartbeat),
    Check("task: report", tasks.report),
    Check("task: reports again", tasks.reported_again),
    Check("task: outcomes", tasks.outcomes),
    Check("tasks: restart", tasks.restart),
    Check("tasks: cancel", tasks.cancel),
    Check("lease: open", operators.open_lease),
    Check("lease: extend", operators.extend_lease),
    Check("lease: close", operators.close_lease),
    Check("tasks: run", tasks.run),
    Check("tasks: move", tasks.move),
    Check("answer of 1 MB", tasks.large),
    Check("task: upload", tasks.upload),
    Check("tasks: delete", tasks.delete_many),
    Check("task: delete", tasks.delete),
    Check("batch: make", counted.create),
    Check("batch: show", counted.show),
    Check("batch: close", counted.close),
    Check("batch: cancel", counted.cancel),
    Check("batch: recount", counted.recount),
    Check("action: begin", acting.begin),
    Check("action: pause, resume, cancel", acting.turn),
    Check("action: show and list", acting.show),
    Check("schedule: show", waiting.get_schedule),
    Check("schedule: run", waiting.run_schedule),
    Check("worker: sign of life", operators.put_worker),
    Check("worker: list", operators.list_workers),
    Check("worker: quiet", operators.quiet_worker),
    Check("worker: stop", operators.stop_worker),
    Check("audit", operators.audit),
    Check("refusal: no key", service.no_key),
    Check("refusal: no such path", service.no_path),
    Check("refusal: no such queue", service.no_queue),
    Check("refusal: bad field", service.bad_field),
    Check("refusal: too large", service.too_large),
    Check("NGSI: notify", beside.notify),
    Check("NGSI: list", beside.list_notified),
    Check("NGSI: summary", beside.summarize_notified),
    Check("NGSI: count", beside.count_notified),
    Check("NGSI: delete", beside.delete_notified),
    Check("console: page", beside.console_page),
    Check("console: sign in", beside.sign_in),
    Check("console: every page", pages.open_all),
    Check("console: sign out", beside.sign_out),
    Check("batch: delete", counted.delete),
    Check("key: revoke", operators.revoke_key),
    Check("stream: metrics", waiting.metrics),
    Check("stream: stats", waiting.stats),
    Check("queue: recount", waiting.recount),
    Check("key: refused once revoked", operators.revoked),
    Check("lease: taken back", waiting.reclaimed),
    Check("schedule: tick", waiting.ticked),
    Check("schedule: delete", waiting.delete_schedule),
    Check("queue: purge", operators.purge_queue),
    Check("queue: delete", operators.delete_queue),
    Check("headers of all answers", service.headers),
    Check("operations of the API", service.covered),
)
"""All others, in the order in which they are made.

Each leaves the next what it needs.  What comes about by itself is set going first and looked for
last; then all is deleted.
"""


@click.command("smoke", cls=CliCommand, example="headrace smoke\nheadrace smoke --json")
@click.option(
    "--ngsi",
    is_flag=True,
    help="Check the adapters for NGSI even where the queue ngsi.notify is in use.",
)
@click.pass_obj
def smoke_command(session: CliSession, *, ngsi: bool) -> Exit:
    """Call everything a deployment has, once, and clean up.

    It takes the key of an admin, and about a minute: what runs once a minute is waited for.  All
    that it makes has a name of its own, smoke-…, and is removed in the end, whatever happens.
    Ends with 0 when all is as it should be, 1 when something is not, 4 when the key is refused or
    no admin's, and 6 when the service cannot be reached.
    """
    began = session.now()
    name = f"smoke-{secrets.token_hex(4)}"
    with Wire(session.client.settings, transport=session.transport) as wire:
        smoke = Smoke(wire, name, session.now, session.sleep, ngsi=ngsi)
        rows: list[CheckRow] = []
        with _cleaning_up(smoke):
            rows += _checked(session, smoke)
        took = (session.now() - began).total_seconds()
        _show(session, smoke, rows, took)
        wrong = any(row.outcome is CheckOutcome.WRONG for row in rows)
        return Exit.FAILED if wrong or smoke.made.things else Exit.DONE


def _checked(session: CliSession, smoke: Smoke) -> Iterator[CheckRow]:
    """Make all checks.  Raises what ends the command, if the first ones cannot be made."""
    try:
        yield from (must(smoke, check) for check in FIRST)
    except (HeadraceError, Wrong) as error:
        if isinstance(error, HeadraceError) and exit_of(error) in _ENDS:
            raise
        raise Failed(f"{smoke.wire.settings.url}: {error}; {session.named_by()}") from None
    with progress(session) as bar:
        shown = bar.add_task("Checks", total=len(OTHERS))
        for row in rows(smoke, OTHERS):
            bar.advance(shown)
            yield row


@contextmanager
def _cleaning_up(smoke: Smoke) -> Iterator[None]:
    """Remove in the end what was made, and say what could not be removed.

    A request to end (SIGTERM) is taken as Ctrl-C is, so that it comes to this too.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        try:
            smoke.made.remove()
        finally:
            signal.signal(signal.SIGTERM, before)
            for thing in smoke.made.things:
                note = f"left behind: {thing.text}; remove it: {thing.command}"
                click.echo(escape_unseen(note), err=True)


def _show(session: CliSession, smoke: Smoke, rows: Sequence[CheckRow], took: float) -> None:
    counts = {outcome: sum(row.outcome is outcome for row in rows) for outcome in CheckOutcome}
    if session.json:
        document(
            {
                "url": smoke.wire.settings.url,
                "name": smoke.name,
                "seconds": round(took, 1),
                "counts": counts,
                "checks": rows,
                "left_behind": [
                    {"what": thing.text, "command": thing.command} for thing in smoke.made.things
                ],
            }
        )
        return
    made = grid("Check", "Outcome", "Seen", "ms", right=("ms",))
    for row in sorted(rows, key=lambda row: row.outcome is not CheckOutcome.WRONG):
        outcome = cell(row.outcome.value, _STYLES[row.outcome])
        made.add_row(cell(row.check), outcome, cell(_seen(row)), cell(row.milliseconds))
    write(made)
    parts = ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)
    cost = smoke.wire.consumed
    session.note(
        f"{many(len(rows), 'check')}: {parts}. {many(cost.calls, 'call')} in {span(took)}, "
        f"for {cost.write_units:,.0f} write units and {cost.read_units:,.0f} read units."
    )


def _seen(row: CheckRow) -> str:
    """The text for a row; of a wrong one, after the request whose answer it was."""
    if row.method is None:
        return row.seen
    answer = " ".join(str(part) for part in (row.status or "no answer", row.code) if part)
    request = f", request {row.request_id}" if row.request_id else ""
    return f"{row.method} {row.path}: {answer}{request}: {row.seen}"
