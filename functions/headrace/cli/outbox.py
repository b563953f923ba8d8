"""`headrace outbox`: tasks that wait in the user's own database, and the relay that enqueues them.

The classes that are named here are imported when they are needed: SQLAlchemy and Django are extras.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.cli import params
from headrace.cli.commands import SHOWN, CliGroup, limit_option, options, yes_option
from headrace.cli.output import answer, done, facts, line, many, rows, span, when
from headrace.cli.params import TIME
from headrace.cli.session import CliSession, Exit, Failed, need_packages

if TYPE_CHECKING:
    from headrace.client.app.app import App
    from headrace.client.client import Client
    from headrace.outbox.relay import OutboxTable
    from headrace.outbox.rows import OutboxRow

VARIABLE: Final = "HEADRACE_OUTBOX"
TABLE: Final = "headrace_outbox"  # as in outbox.rows, which loads more than --help needs

_outbox: Final = options(
    click.argument("database", required=False, metavar="[URL]"),
    click.option("--table", metavar="NAME", default=TABLE, help=f"{TABLE}."),
    click.option("--schema", metavar="NAME", help="Of the table, if not the default one."),
)
_ids: Final = click.option(
    "--id", "ids", multiple=True, metavar="ID", help="The row of this task; again for others."
)


@contextmanager
def opened(
    session: CliSession, database: str | None, table: str, schema: str | None
) -> "Iterator[OutboxTable]":
    """Open an outbox until the block ends.  Raises Failed where none is named."""
    database = database or session.env.get(VARIABLE)
    if not database:
        raise Failed(f"no outbox is named: give its database's URL, or set {VARIABLE}", Exit.USAGE)
    from headrace.outbox.opening import open_outbox, packages_of  # noqa: PLC0415 (not for --help)

    package, extra = packages_of(database)
    need_packages("an outbox there needs", [package], extra)
    found = open_outbox(database, name=table, schema=schema)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def relaying(
    session: CliSession, database: str | None, app: "App", client: "Client | None", *, burst: bool
) -> Iterator[None]:
    """Relay an outbox beside what is in the block, if one is named; with *burst*, empty it first.

    Its metrics are among those of the process, where there are any.
    """
    if database is None:
        yield
        return
    from headrace.outbox.relay import Relay  # noqa: PLC0415 (only with --outbox)

    named = None if database == "-" else database
    with opened(session, named, TABLE, None) as table:
        table.state()  # says now what is wrong with it
        relay = Relay(table, app, client=client)
        if burst:
            relay.drain()
        with relay, _counted(table):
            yield


@contextmanager
def _counted(table: "OutboxTable") -> Iterator[None]:
    """Add the outbox to the metrics of Prometheus, where that is installed."""
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
    """Relay tasks from your own database, and look after them.

    URL is as SQLAlchemy has them, postgresql://shop@db/shop, or django:shop.settings; without it,
    HEADRACE_OUTBOX.  Others can see a command line: give passwords as your driver takes them
    (PGPASSWORD), or the URL as HEADRACE_OUTBOX.
    """


@outbox_command.command("create", example="headrace outbox create postgresql://shop@db/shop")
@_outbox
@click.pass_obj
def create(session: CliSession, database: str | None, table: str, schema: str | None) -> None:
    """Create the table, unless it is there or your migrations do."""
    with opened(session, database, table, schema) as outbox:
        outbox.create()
        done(session, f"There is a table {table}.", {"table": table})


@outbox_command.command("relay", example="headrace outbox relay postgresql://shop@db/shop")
@_outbox
@click.option("--interval", type=params.seconds, default="1s", metavar="TIME", help="1s.")
@click.option("--burst", is_flag=True, help="End when nothing waits.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Of the log, on stderr: text.",
)
@click.pass_obj
def relay(
    session: CliSession,
    database: str | None,
    table: str,
    schema: str | None,
    *,
    interval: float,
    burst: bool,
    log_format: Any,
) -> Exit:
    """Enqueue what is committed, until Ctrl-C or SIGTERM.

    Several may run at once.  A worker does it too: `headrace work … --outbox URL`.  With --burst
    the exit code is 1 if a row was refused, or has to be tried again.
    """
    from headrace.client.worker import logs  # noqa: PLC0415 (for --help, not needed)
    from headrace.outbox.relay import UNDONE, Relay  # noqa: PLC0415 (likewise)

    logs.configure(log_format)
    with opened(session, database, table, schema) as outbox:
        outbox.state()  # says now what is wrong with it
        relay = Relay(outbox, session.client, interval=interval)
        if burst:
            outcomes = dict(relay.drain())
            answer(session, outcomes, lambda: facts(sorted(outcomes.items())))
            return Exit.FAILED if outcomes.keys() & UNDONE else Exit.DONE
        relay.run()
    return Exit.DONE


@outbox_command.command(
    "status", example="headrace outbox status postgresql://shop@db/shop --max-age 1m"
)
@_outbox
@click.option("--max-age", **TIME, help="Exit with 1 if a row waits longer, or one is refused.")
@click.pass_obj
def status(
    session: CliSession,
    database: str | None,
    table: str,
    schema: str | None,
    max_age: float | None,
) -> Exit:
    """Show how many rows wait, how long the oldest has, and how many were refused."""
    with opened(session, database, table, schema) as outbox:
        state = outbox.state()
    oldest = state.oldest_seconds(session.now())
    found = {
        "waiting": state.waiting,
        "refused": state.refused,
        "oldest_at": state.oldest_at,
        "oldest_seconds": round(oldest, 3),
    }
    answer(
        session,
        found,
        lambda: facts(
            [
                ("waiting", state.waiting),
                ("oldest", span(oldest) if state.oldest_at else None),
                ("refused", state.refused),
            ]
        ),
    )
    late = max_age is not None and (oldest > max_age or state.refused > 0)
    return Exit.FAILED if late else Exit.DONE


@outbox_command.command("list", example="headrace outbox list postgresql://shop@db/shop --refused")
@_outbox
@click.option("--refused", is_flag=True, help="Only those that were refused.")
@click.option("--payload", is_flag=True, help="With --json: the whole task, as it is enqueued.")
@limit_option
@click.pass_obj
def list_(
    session: CliSession,
    database: str | None,
    table: str,
    schema: str | None,
    *,
    refused: bool,
    payload: bool,
    limit: int | None,
) -> None:
    """List rows in their order, with what came of their last attempt."""
    with opened(session, database, table, schema) as outbox:
        found = outbox.rows(refused=refused, limit=limit or (None if session.json else SHOWN))
    if session.json:
        for row in found:
            line(_fields(row, payload=payload))
        return
    rows(
        ("Task", "Queue", "Written", "Attempts", "Refused", "Error"),
        (
            (
                row.task_id,
                row.queue,
                when(row.created_at),
                row.attempts,
                when(row.refused_at),
                row.error,
            )
            for row in found
        ),
        right=("Attempts",),
    )


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
@_outbox
@_ids
@click.option("--all", "everything", is_flag=True, help="All that were refused.")
@click.pass_obj
def retry(
    session: CliSession,
    database: str | None,
    table: str,
    schema: str | None,
    *,
    ids: tuple[str, ...],
    everything: bool,
) -> Exit:
    """Let rows that were refused wait for a relay again."""
    _one_of(ids, everything=everything)
    with opened(session, database, table, schema) as outbox:
        missing = _missing(outbox, ids)
        count = outbox.retry(None if everything else ids)
    done(session, f"{many(count, 'row')} waiting again.", {"retried": count})
    return _tell(session, missing)


@outbox_command.command(
    "delete", example="headrace outbox delete postgresql://shop@db/shop --id order-17"
)
@_outbox
@_ids
@click.option("--all", "everything", is_flag=True, help="All that were refused.")
@yes_option
@click.pass_obj
def delete(
    session: CliSession,
    database: str | None,
    table: str,
    schema: str | None,
    *,
    ids: tuple[str, ...],
    everything: bool,
    yes: bool,
) -> Exit:
    """Delete rows: their tasks will never be enqueued."""
    _one_of(ids, everything=everything)
    with opened(session, database, table, schema) as outbox:
        missing = _missing(outbox, ids)
        named = [row.task_id for row in outbox.rows(refused=True)] if everything else ids
        named = [one for one in named if one not in missing]
        text = "that were refused" if everything else "named"
        if named:
            session.ask(f"{many(len(named), 'row')} {text} will be gone.", yes=yes)
        count = outbox.delete(named)
    done(session, f"{many(count, 'row')} deleted.", {"deleted": count})
    return _tell(session, missing)


def _missing(outbox: "OutboxTable", ids: Sequence[str]) -> list[str]:
    """Return those of *ids* that no row has.  Raises Failed where that is all of them."""
    if not ids:
        return []
    known = {row.task_id for row in outbox.rows(ids=ids)}
    missing = [one for one in dict.fromkeys(ids) if one not in known]
    if not known:
        raise Failed(_none_of(missing), Exit.NOT_FOUND)
    return missing


def _tell(session: CliSession, missing: Sequence[str]) -> Exit:
    """Name what is missing, and return the exit code that says so."""
    if not missing:
        return Exit.DONE
    session.note(_none_of(missing))
    return Exit.FAILED


def _none_of(ids: Sequence[str]) -> str:
    return f"there is no row of {', '.join(ids)}"


def _one_of(ids: tuple[str, ...], *, everything: bool) -> None:
    if bool(ids) == everything:
        raise click.UsageError("give exactly one of --id and --all")
