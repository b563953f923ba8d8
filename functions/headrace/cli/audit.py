"""`headrace audit`: what was changed by hand."""

from datetime import datetime
from itertools import islice
from typing import Final

import click

from headrace.cli import params
from headrace.cli.commands import CliGroup, queue_names
from headrace.cli.output import line, rows
from headrace.cli.session import CliSession

SHOWN: Final = 50
"""Entries in a table, unless --limit says otherwise."""


@click.group("audit", cls=CliGroup, example="headrace audit list --since -1d")
def audit_command() -> None:
    """Read what was changed by hand."""


@audit_command.command(
    "list", example="headrace audit list --queue mail --action purge --since -7d"
)
@click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Of this queue.")
@click.option("--actor", metavar="NAME", help="By the key of this name, or id.")
@click.option("--action", metavar="ACTION", help="Such as delete, restart, purge, pause.")
@click.option("--since", type=params.instant, metavar="INSTANT", help="Not before: -1d.")
@click.option("--until", type=params.instant, metavar="INSTANT", help="Not after.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"No more than that; else {SHOWN} in a table, and all of them with --json.",
)
@click.pass_obj
def list_(
    session: CliSession,
    queue: str | None,
    actor: str | None,
    action: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
) -> None:
    """List what people and keys have changed by hand, the latest first; kept for 90 days."""
    entries = session.client.list_audit(
        queue=queue, actor=actor, action=action, from_=since, to=until
    )
    if session.json:
        for entry in islice(entries, limit):
            line(entry)
        return
    most = limit or SHOWN
    rows(
        ("At", "Who", "What", "Queue", "Which", "Changed"),
        (
            (
                entry.at,
                entry.actor,
                entry.action,
                entry.queue,
                entry.ids or entry.filter,
                entry.changed,
            )
            for entry in islice(entries, most)
        ),
        right=("Changed",),
    )
    if next(entries, None) is not None:
        session.note(f"There are more: --limit shows more than {most}, --json all.")
