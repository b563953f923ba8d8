"""`headrace key` and `headrace audit`: API keys, and the record of what people changed."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli import params
from headrace.cli.commands import (
    CliGroup,
    at_most_one,
    dry_run_option,
    limit_option,
    query_option,
    queue_names,
    split,
    yes_option,
)
from headrace.cli.output import Column, answer, document, done, facts, listing, span, table, when
from headrace.cli.params import INSTANT, TIME
from headrace.cli.session import CliSession
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
    help="What the key may do.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    required=True,
    metavar="PATTERN,…",
    help="Its queues; * stands for any text, and alone for every queue.",
)
@click.option("--expires-in", **TIME, help="Expires after this time: 30d.")
@click.option("--expires-at", **INSTANT, help="Expires at this instant.")
@click.pass_obj
def create(
    session: CliSession,
    name: str,
    role: str,
    queues: tuple[str, ...],
    expires_in: float | None,
    expires_at: datetime | None,
) -> None:
    """Create a key.

    Its secret is shown only now, alone on stdout; the service keeps a hash of it.
    """
    at_most_one({"--expires-in": expires_in, "--expires-at": expires_at})
    if expires_in is not None:
        expires_at = session.client.health().now + timedelta(seconds=expires_in)
    made = session.client.create_key(name, role, split(queues), expires_at=expires_at)
    until = f" until {when(made.expires_at)}" if made.expires_at else ""
    _show(session, made, f"Key {made.id} ({role}{until}) is created.")


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
    help="How long the old secret stays valid: 1h; default: it stops at once.",
)
@click.pass_obj
def rotate(session: CliSession, id: str, overlap: float) -> None:
    """Give a key a new secret.

    It is shown only now, alone on stdout.  At most two secrets of a key are valid at a time.
    """
    made = session.client.rotate_key(id, overlap_seconds=overlap)
    ends = f"is valid for {span(overlap)} more" if overlap else "stops working within seconds"
    _show(session, made, f"Key {made.id} is rotated; the old secret {ends}.")


def _show(session: CliSession, made: "NewKey", note: str) -> None:
    """Print a secret alone on stdout, and a *note* on stderr."""
    if session.json:
        document(made)
        return
    click.echo(made.secret)
    session.note(f"{note} The line above is its secret: store it now.")


@key_command.command("list", example="headrace key list --query role:admin")
@query_option("role:admin queue:mail")
@click.pass_obj
def list_(session: CliSession, query: str | None) -> None:
    """List the keys."""
    keys = list(session.client.list_keys(query=query))
    columns: dict[str, Column] = {
        "Key": "id",
        "Name": "name",
        "Role": "role",
        "Queues": "queues",
        "Begins": "prefix",
        "Created": "created_at",
        "Last used": "last_used_at",
        "Expires": lambda key: _end_of(key, session.now()),
    }
    answer(session, keys, lambda: table(columns, keys))


@key_command.command("show", example="headrace key show key_01")
@click.argument("id")
@click.pass_obj
def show(session: CliSession, id: str) -> None:
    """Show a key, its schedules, and its actions that have not ended.

    Revoked and expired keys are shown for 90 days.  Their schedules continue.
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
    """Return when *key* expires, or that it has expired."""
    if key.expires_at is None:
        return None
    return f"{when(key.expires_at)}{' (expired)' if key.expires_at <= now else ''}"


@key_command.command("revoke", example="headrace key revoke key_01 --yes")
@click.argument("id")
@dry_run_option("Only show it.")
@yes_option
@click.pass_obj
def revoke(session: CliSession, id: str, *, dry_run: bool, yes: bool) -> None:
    """Revoke a key: all its secrets stop working within seconds."""
    if dry_run:
        found = session.client.get_key(id)
        text = f"Key {id} ({found.name}, {found.role}) would be revoked."
        answer(session, found, lambda: click.echo(escape_unseen(text)))
        return
    session.ask(f"Key {id} will stop working.", yes=yes)
    session.client.delete_key(id)
    done(session, f"Key {id} is revoked.", {"key": id})


@click.group("audit", cls=CliGroup, example="headrace audit list --since -1d")
def audit_command() -> None:
    """Read what people changed."""


@audit_command.command(
    "list", example="headrace audit list --queue mail --action purge --since -7d"
)
@click.option(
    "--queue", metavar="QUEUE", shell_complete=queue_names, help="Only changes to this queue."
)
@click.option("--actor", metavar="NAME", help="Only changes by the key of this name or id.")
@click.option("--action", metavar="ACTION", help="Such as delete, restart, purge, pause.")
@click.option("--since", **INSTANT, help="Since this instant: -1d.")
@click.option("--until", **INSTANT, help="Until this instant.")
@query_option("action:purge nightly")
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
    columns: dict[str, Column] = {
        "At": "at",
        "By": "actor",
        "Action": "action",
        "Queue": "queue",
        "Tasks": lambda entry: entry.ids or entry.filter,
        "Changed": "changed",
    }
    listing(session, entries, columns, limit)
