"""`headrace worker`: who is alive, and asking them to stop."""

from datetime import datetime

import click

from headrace.cli.advice import SILENT_SECONDS
from headrace.cli.commands import CliGroup
from headrace.cli.output import answer, document, rows, span, when
from headrace.cli.session import CliSession
from headrace.client.models import WorkerSeen


@click.group("worker", cls=CliGroup, example="headrace worker list")
def worker_command() -> None:
    """See who works, and quiet or stop a worker."""


@worker_command.command("list", example="headrace worker list --json")
@click.pass_obj
def list_(session: CliSession) -> None:
    """List the workers that gave a sign of life in the last five minutes.

    Signs come every 30 seconds: one that has given none for 75 is marked as silent.
    """
    workers = list(session.client.list_workers())
    now = session.client.health().now
    answer(
        session,
        workers,
        lambda: rows(
            ("Worker", "Queues", "Running", "Concurrency", "Version", "Since", "Seen", "Asked to"),
            (
                (
                    one.name,
                    one.queues,
                    len(one.running or ()),
                    one.concurrency,
                    one.version,
                    one.started_at,
                    _seen(one, now),
                    one.command,
                )
                for one in workers
            ),
            right=("Running", "Concurrency"),
        ),
    )


def _seen(one: WorkerSeen, now: datetime) -> str:
    """Say when *one* was heard of; by the service's clock, for ours may be off."""
    silent = (now - one.seen_at).total_seconds()
    return f"silent for {span(silent)}" if silent > SILENT_SECONDS else when(one.seen_at)


@worker_command.command("quiet", example="headrace worker quiet web-1:4711")
@click.argument("name")
@click.pass_obj
def quiet(session: CliSession, name: str) -> None:
    """Ask a worker to take no more tasks; it hears that at its next sign of life."""
    session.client.quiet_worker(name)
    _command(session, name, "quiet", "take no more tasks")


@worker_command.command("stop", example="headrace worker stop web-1:4711")
@click.argument("name")
@click.pass_obj
def stop(session: CliSession, name: str) -> None:
    """Ask a worker to finish what it has, and to end."""
    session.client.stop_worker(name)
    _command(session, name, "stop", "finish and end")


def _command(session: CliSession, name: str, command: str, text: str) -> None:
    session.note(f"Worker {name} is asked to {text}.")
    if session.json:
        document({"worker": name, "command": command})
