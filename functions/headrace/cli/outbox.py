"""`headrace outbox`: tasks in the user's own database, and the relay that enqueues them.

SQLAlchemy and Django are extras, so the classes that need them are imported when they are used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import SHOWN, CliGroup, exactly_one, limit_option, options, yes_option
from headrace.cli.output import Column, answer, done, facts, line, span, table
from headrace.cli.params import TIME
from headrace.cli.session import CliSession, Exit, Failed, need_packages
from headrace.domain.texts import amount

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client
    from headrace.outbox.table import OutboxRow, OutboxTable

VARIABLE: Final = "HEADRACE_OUTBOX"
TABLE: Final = "headrace_outbox"  # as in outbox.rows, which loads more than --help needs

_where: Final = options(
    click.argument("database", required=False, metavar="[URL]"),
    click.option("--table", metavar="NAME", default=TABLE, help=f"Name of the table: {TABLE}."),
    click.option("--schema", metavar="NAME", help="Schema of the table, if not the default one."),
)
_which: Final = options(
    click.option("--id", "ids", multiple=True, metavar="ID", help="Row of this task; repeatable."),
    click.option("--all", "everything", is_flag=True, help="All refused rows."),
)


_COLUMNS: Final[dict[str, Column]] = {
    "Task": "task_id",
    "Queue": "queue",
    "Written": "created_at",
    "Attempts": "attempts",
    "Refused": "refused_at",
    "Error": "error",
}


@contextmanager
def opened(
    session: CliSession, database: str | None, table: str, schema: str | None
) -> "Iterator[OutboxTable]":
    """Open an outbox until the block ends.  Raises Failed if no database is named."""
    database = database or session.env.get(VARIABLE)
    if not database:
        raise Failed(f"no outbox is named: give its database's URL, or set {VARIABLE}", Exit.USAGE)
    from headrace.outbox.table import open_outbox, packages_of  # noqa: PLC0415 (not for --help)

    package, extra = packages_of(database)
    need_packages("an outbox there needs", [package], extra)
    found = open_outbox(database, name=table, schema=schema)
    try:
        yield found
    finally:
        found.close()


def _with_outbox(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name an outbox, and pass the open outbox to *function*."""

    @_where
    @click.pass_obj
    @wraps(function)
    def command(
        session: CliSession,
        /,
        database: str | None,
        table: str,
        schema: str | None,
        **given: Any,
    ) -> Any:
        with opened(session, database, table, schema) as outbox:
            return function(session, outbox, **given)

    return command


@contextmanager
def relaying(
    session: CliSession, database: str | None, app: "App", client: "Client | None", *, burst: bool
) -> Iterator[None]:
    """Relay an outbox during the block, if one is named; with *burst*, empty it first.

    Its metrics are added to those of the process, if Prometheus is installed.
    """
    if database is None:
        yield
        return
    from headrace.outbox.relay import Relay  # noqa: PLC0415 (only with --outbox)

    named = None if database == "-" else database
    with opened(session, named, TABLE, None) as table:
        table.state()  # raises now if the table cannot be used
        relay = Relay(table, app, client=client)
        if burst:
            relay.drain()
        with relay, _counted(table):
            yield


@contextmanager
def _counted(table: "OutboxTable") -> Iterator[None]:
    """Add the outbox to the metrics of Prometheus, if it is installed."""
    try:
        from prometheus_client import REGISTRY  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        yield
        return
    from headrace.outbox.metrics import OutboxMetrics  # noqa: PLC0415 (needs the extra)

    metrics = OutboxMetrics(table)
    REGISTRY.register(metrics)
    try:
        yield
    finally:
        REGISTRY.unregister(metrics)


@click.group("outbox", cls=CliGroup, example="headrace outbox status postgresql://shop@db/shop")
def outbox_command() -> None:
    """Relay tasks from your own database, and inspect them.

    URL is an URL of SQLAlchemy, postgresql://shop@db/shop, or django:shop.settings; else
    HEADRACE_OUTBOX.  Others on the machine can read a command line: give passwords as your driver
    takes them (PGPASSWORD), or put the URL into HEADRACE_OUTBOX.
    """


@outbox_command.command("create", example="headrace outbox create postgresql://shop@db/shop")
@_where
@click.pass_obj
def create(session: CliSession, database: str | None, table: str, schema: str | None) -> None:
    """Create the table, unless it exists."""
    with opened(session, database, table, schema) as outbox:
        outbox.create()
        done(session, f"There is a table {table}.", {"table": table})


@outbox_command.command("relay", example="headrace outbox relay postgresql://shop@db/shop")
@click.option(
    "--interval", type=params.seconds, default="1s", metavar="TIME", help="Between polls: 1s."
)
@click.option("--burst", is_flag=True, help="Stop when no row waits.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", help="On stderr: text."
)
@_with_outbox
def relay(
    session: CliSession, outbox: "OutboxTable", *, interval: float, burst: bool, log_format: Any
) -> Exit:
    """Enqueue committed tasks, until Ctrl-C or SIGTERM.

    Several relays may run at the same time.  A worker can relay too: `headrace work … --outbox
    URL`.  With --burst the exit code is 1 if a row was refused or has to be tried again.
    """
    from headrace.client.worker import logs  # noqa: PLC0415 (for --help, not needed)
    from headrace.outbox.relay import UNDONE, Relay  # noqa: PLC0415 (for --help, not needed)

    logs.configure(log_format)
    outbox.state()  # raises now if the table cannot be used
    relay = Relay(outbox, session.client, interval=interval)
    if not burst:
        relay.run()
        return Exit.DONE
    outcomes = dict(relay.drain())
    answer(session, outcomes, lambda: facts(sorted(outcomes.items())))
    return Exit.FAILED if outcomes.keys() & UNDONE else Exit.DONE


@outbox_command.command(
    "status", example="headrace outbox status postgresql://shop@db/shop --max-age 1m"
)
@click.option("--max-age", **TIME, help="Exit with 1 if a row waits longer, or one is refused.")
@_with_outbox
def status(session: CliSession, outbox: "OutboxTable", *, max_age: float | None) -> Exit:
    """Show how many rows wait, since when, and how many were refused."""
    state = outbox.state()
    oldest = state.oldest_seconds(session.now())
    found = {
        "waiting": state.waiting,
        "refused": state.refused,
        "oldest_at": state.oldest_at,
        "oldest_seconds": round(oldest, 3),
    }
    shown = [("waiting", state.waiting), ("oldest", span(oldest) if state.oldest_at else None)]
    answer(session, found, lambda: facts([*shown, ("refused", state.refused)]))
    late = max_age is not None and (oldest > max_age or state.refused > 0)
    return Exit.FAILED if late else Exit.DONE


@outbox_command.command("list", example="headrace outbox list postgresql://shop@db/shop --refused")
@click.option("--refused", is_flag=True, help="Only refused rows.")
@click.option("--payload", is_flag=True, help="With --json: the whole task as it is enqueued.")
@limit_option
@_with_outbox
def list_(
    session: CliSession, outbox: "OutboxTable", *, refused: bool, payload: bool, limit: int | None
) -> None:
    """List rows in their order, with the error of their last attempt."""
    found = outbox.rows(refused=refused, limit=limit or (None if session.json else SHOWN))
    if session.json:
        for row in found:
            line(_fields(row, payload=payload))
    else:
        table(_COLUMNS, found)


def _fields(row: "OutboxRow", *, payload: bool) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 (for --help, not needed)

    fields: dict[str, Any] = {
        "id": row.task_id,
        "queue": row.queue,
        "created_at": row.created_at,
        "attempts": row.attempts,
        "error": row.error,
        "refused_at": row.refused_at,
    }
    if payload:
        fields["task"] = msgspec.Raw(row.entry.encode())
    return fields


@outbox_command.command("retry", example="headrace outbox retry postgresql://shop@db/shop --all")
@_which
@_with_outbox
def retry(
    session: CliSession, outbox: "OutboxTable", *, ids: tuple[str, ...], everything: bool
) -> Exit:
    """Let refused rows wait for a relay again."""
    exactly_one({"--id": ids, "--all": everything})
    known = _known(session, outbox, ids)
    count = outbox.retry(None if everything else known)
    done(session, f"{amount(count, 'row')} waiting again.", {"retried": count})
    return Exit.FAILED if len(known) < len(set(ids)) else Exit.DONE


@outbox_command.command(
    "delete", example="headrace outbox delete postgresql://shop@db/shop --id order-17"
)
@_which
@yes_option
@_with_outbox
def delete(
    session: CliSession, outbox: "OutboxTable", *, ids: tuple[str, ...], everything: bool, yes: bool
) -> Exit:
    """Delete rows: their tasks will never be enqueued."""
    exactly_one({"--id": ids, "--all": everything})
    known = _known(session, outbox, ids)
    named = [row.task_id for row in outbox.rows(refused=True)] if everything else known
    if named:
        session.ask(f"{amount(len(named), 'row')} will be deleted.", yes=yes)
    count = outbox.delete(named)
    done(session, f"{amount(count, 'row')} deleted.", {"deleted": count})
    return Exit.FAILED if len(known) < len(set(ids)) else Exit.DONE


def _known(session: CliSession, outbox: "OutboxTable", ids: Sequence[str]) -> list[str]:
    """Return the *ids* that have a row, and name the others.  Raises Failed if none has."""
    known = [row.task_id for row in outbox.rows(ids=ids)] if ids else []
    missing = [one for one in dict.fromkeys(ids) if one not in known]
    if missing:
        text = f"there is no row of {', '.join(missing)}"
        if not known:
            raise Failed(text, Exit.NOT_FOUND)
        session.note(text)
    return known
