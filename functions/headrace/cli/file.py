"""Commands for a service that is a file: `headrace timers` and `headrace backup`."""

import threading
from pathlib import Path

import click

from headrace.cli.commands import CliCommand
from headrace.cli.output import done
from headrace.cli.session import CliSession, Exit, Failed
from headrace.client.address import FileAddress
from headrace.client.embedding import FileCare, care_of, timers_of
from headrace.client.threads import signals_to

_LOOKS_EVERY_SECONDS = 0.5


def file_of(session: CliSession, command: str) -> FileAddress:
    """Return the file that is the service.  Raises Failed for one that is none."""
    address = session.client.settings.address
    if not isinstance(address, FileAddress):
        raise Failed(
            f"`headrace {command}` is for a service that is a file, as"
            f" HEADRACE_URL=file:headrace.db: {session.address()} is none",
            Exit.USAGE,
        )
    return address


@click.command("timers", cls=CliCommand, example="HEADRACE_URL=file:headrace.db headrace timers")
@click.pass_obj
def timers_command(session: CliSession) -> None:
    """Run the timers of a service that is a file.

    Schedules, lapsed leases and history, until Ctrl-C or SIGTERM.  A worker and `headrace run` do
    the same; this is for a file that is used without them.  Of all that run, one at a time does
    the work.
    """
    address = file_of(session, "timers")
    stop = threading.Event()
    with timers_of(address), signals_to(stop.set):
        session.note(f"Running the timers of {address.path}; Ctrl-C stops them.")
        # Another thread may get the signal, and only the main one can run what it is for.
        while not stop.wait(_LOOKS_EVERY_SECONDS):
            pass


@click.command("backup", cls=CliCommand, example="headrace backup tasks-2026-11-22.db")
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def backup_command(session: CliSession, target: Path) -> None:
    """Copy a service that is a file, while it is used.

    FILE is a service like any other: HEADRACE_URL=file:FILE.  One that exists is refused with exit
    code 5.
    """
    care: FileCare = care_of(file_of(session, "backup"))
    care.backup(str(target))
    size = target.stat().st_size
    done(session, f"{target}: {size:,} bytes", {"file": str(target), "bytes": size})
