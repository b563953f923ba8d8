"""`headrace key`: who may do what."""

import click

from headrace.cli.commands import Group, dry_run_option, split, yes_option
from headrace.cli.exits import Exit
from headrace.cli.output import answer, document, rows
from headrace.cli.session import Failed, Session
from headrace.domain.access import Role


@click.group("key", cls=Group, example="headrace key create ci --role producer --queue 'mail*'")
def key_command() -> None:
    """Create, list and revoke keys."""


@key_command.command(
    "create",
    example="headrace key create ci --role producer --queue 'mail*' > ci.key\n"
    "headrace key create ops --role operator --queue '*' --json",
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
@click.pass_obj
def create(session: Session, name: str, role: str, queues: tuple[str, ...]) -> None:
    """Create a key.

    Its secret is shown this once, alone on stdout; the service keeps only a hash of it.
    """
    made = session.client.create_key(name, role, split(queues))
    if session.json:
        document(made)
        return
    click.echo(made.secret)
    session.note(f"Key {made.id} ({role}) is made. The line above is its secret: keep it now.")


@key_command.command("list", example="headrace key list")
@click.pass_obj
def list_(session: Session) -> None:
    """List the keys."""
    keys = list(session.client.list_keys())
    answer(
        session,
        keys,
        lambda: rows(
            ("Key", "Name", "Role", "Queues", "Begins", "Created", "Last used"),
            (
                (k.id, k.name, k.role, k.queues, k.prefix, k.created_at, k.last_used_at)
                for k in keys
            ),
        ),
    )


@key_command.command("revoke", example="headrace key revoke key_01 --yes")
@click.argument("id")
@dry_run_option("Only show it.")
@yes_option
@click.pass_obj
def revoke(session: Session, id: str, *, dry_run: bool, yes: bool) -> None:
    """Revoke a key: it stops working within seconds."""
    if dry_run:
        found = next((key for key in session.client.list_keys() if key.id == id), None)
        if found is None:
            raise Failed(f"there is no key {id}", Exit.NOT_FOUND)
        text = f"Key {id} ({found.name}, {found.role}) would be revoked."
        answer(session, found, lambda: click.echo(text))
        return
    session.ask(f"Key {id} will not work any more.", yes=yes)
    session.client.delete_key(id)
    session.note(f"Key {id} is revoked.")
    if session.json:
        document({"key": id})
