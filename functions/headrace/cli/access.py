"""Who may do what, and who has done what: `headrace key` and `headrace audit`.

A restored table knows its keys as they were then.  What has become of them since is in the audit
of the service that it was restored from, as long as that answers, and nowhere else.
"""

from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import click

from headrace.cli import params
from headrace.cli.commands import (
    SHOWN,
    CliGroup,
    dry_run_option,
    limit_option,
    queue_names,
    split,
    yes_option,
)
from headrace.cli.output import answer, document, done, facts, line, rows, span, when
from headrace.cli.params import INSTANT, TIME
from headrace.cli.session import CliSession, Exit, Failed
from headrace.domain.access import Role
from headrace.domain.texts import escape_unseen
from headrace.wire.service import Key

if TYPE_CHECKING:
    from headrace.wire.service import NewKey


@click.group("key", cls=CliGroup, example="headrace key create ci --role producer --queue 'mail*'")
def key_command() -> None:
    """Create, list, rotate and revoke keys."""


@key_command.command(
    "create",
    example="headrace key create ci --role producer --queue 'mail*' > ci.key\n"
    "headrace key create ops --role operator --queue '*' --json\n"
    "headrace key create contractor --role viewer --queue 'mail*' --expires-in 30d",
)
@click.argument("name")
@click.option(
    "--role",
    required=True,
    type=click.Choice([str(role) for role in Role]),
    help="What it may do, from looking at tasks to everything.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    required=True,
    metavar="PATTERN,…",
    help="The queues it is for; * is any text, and alone every queue.",
)
@click.option("--expires-in", **TIME, help="It stops working after so long: 30d.")
@click.option("--expires-at", **INSTANT, help="It stops working then.")
@click.pass_obj
def create(
    session: CliSession,
    name: str,
    role: str,
    queues: tuple[str, ...],
    expires_in: float | None,
    expires_at: datetime | None,
) -> None:
    """Create a key, for good or for a time.

    Its secret is shown this once, alone on stdout; the service keeps only a hash of it.
    """
    if expires_in is not None:
        if expires_at is not None:
            raise click.UsageError("give one of --expires-in and --expires-at")
        expires_at = session.client.health().now + timedelta(seconds=expires_in)
    made = session.client.create_key(name, role, split(queues), expires_at=expires_at)
    until = f" until {when(made.expires_at)}" if made.expires_at else ""
    _show(session, made, f"Key {made.id} ({role}{until}) is made.")


@key_command.command(
    "rotate",
    example="headrace key rotate key_01 --overlap 1h > ci.key\nheadrace key rotate key_01 --json",
)
@click.argument("id")
@click.option(
    "--overlap",
    type=params.seconds,
    default="0",
    metavar="TIME",
    help="How long the secret before works beside the new one: 1h; else it stops at once.",
)
@click.pass_obj
def rotate(session: CliSession, id: str, overlap: float) -> None:
    """Give a key another secret.

    It is shown this once, alone on stdout.  At most two secrets of a key work at a time.
    """
    made = session.client.rotate_key(id, overlap_seconds=overlap)
    ends = f"works for {span(overlap)} more" if overlap else "stops working within seconds"
    _show(session, made, f"Key {made.id} is rotated; the secret before {ends}.")


def _show(session: CliSession, made: "NewKey", note: str) -> None:
    """Show a secret: alone on stdout, with a *note* beside it."""
    if session.json:
        document(made)
        return
    click.echo(made.secret)
    session.note(f"{note} The line above is its secret: keep it now.")


@key_command.command("list", example="headrace key list --query role:admin")
@click.option("--query", metavar="TEXT", help="As in the console: 'role:admin queue:mail'.")
@click.pass_obj
def list_(session: CliSession, query: str | None) -> None:
    """List the keys."""
    keys = list(session.client.list_keys(query=query))
    answer(
        session,
        keys,
        lambda: rows(
            ("Key", "Name", "Role", "Queues", "Begins", "Created", "Last used", "Expires"),
            (
                (
                    *(k.id, k.name, k.role, k.queues, k.prefix, k.created_at, k.last_used_at),
                    _end_of(k, session.now()),
                )
                for k in keys
            ),
        ),
    )


@key_command.command("show", example="headrace key show key_01")
@click.argument("id")
@click.pass_obj
def show(session: CliSession, id: str) -> None:
    """Show a key, with the schedules that it put and its actions that have not ended.

    Revoked and expired keys are shown for 90 days.  Their schedules go on.
    """
    key = session.client.get_key(id)
    answer(
        session,
        key,
        lambda: facts(
            [
                ("key", key.id),
                ("name", key.name),
                ("role", key.role),
                ("queues", key.queues),
                ("created", key.created_at),
                ("last used", key.last_used_at),
                ("expires", _end_of(key, session.now())),
                ("revoked", key.revoked_at),
                ("schedules", [f"{one.queue}/{one.name}" for one in key.schedules]),
                ("actions", key.actions),
            ]
        ),
    )


def _end_of(key: Key, now: datetime) -> str | None:
    """Return when *key* stops working, or that it has."""
    if key.expires_at is None:
        return None
    return f"{when(key.expires_at)}{' (expired)' if key.expires_at <= now else ''}"


@key_command.command("revoke", example="headrace key revoke key_01 --yes")
@click.argument("id")
@dry_run_option("Only show it.")
@yes_option
@click.pass_obj
def revoke(session: CliSession, id: str, *, dry_run: bool, yes: bool) -> None:
    """Revoke a key: whatever secret of it is presented, it stops working within seconds."""
    if dry_run:
        found = next((key for key in session.client.list_keys() if key.id == id), None)
        if found is None:
            raise Failed(f"there is no key {id}", Exit.NOT_FOUND)
        text = f"Key {id} ({found.name}, {found.role}) would be revoked."
        answer(session, found, lambda: click.echo(escape_unseen(text)))
        return
    session.ask(f"Key {id} will not work any more.", yes=yes)
    session.client.delete_key(id)
    done(session, f"Key {id} is revoked.", {"key": id})


@click.group("audit", cls=CliGroup, example="headrace audit list --since -1d")
def audit_command() -> None:
    """Read what was changed by hand."""


@audit_command.command(
    "list", example="headrace audit list --queue mail --action purge --since -7d"
)
@click.option("--queue", metavar="QUEUE", shell_complete=queue_names, help="Of this queue.")
@click.option("--actor", metavar="NAME", help="By the key of this name, or id.")
@click.option("--action", metavar="ACTION", help="Such as delete, restart, purge, pause.")
@click.option("--since", **INSTANT, help="Not before: -1d.")
@click.option("--until", **INSTANT, help="Not after.")
@click.option("--query", metavar="TEXT", help="As in the console: 'action:purge nightly'.")
@limit_option
@click.pass_obj
def list_audit(
    session: CliSession,
    queue: str | None,
    actor: str | None,
    action: str | None,
    since: datetime | None,
    until: datetime | None,
    query: str | None,
    limit: int | None,
) -> None:
    """List what people and keys have changed by hand, the latest first; kept for 90 days."""
    entries = session.client.list_audit(
        queue=queue, actor=actor, action=action, from_=since, to=until, query=query
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
