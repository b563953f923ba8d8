"""`headrace run`: start a service on this machine.  `headrace timers` and `backup`: for a file."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from headrace.cli.commands import CliCommand
from headrace.cli.output import done
from headrace.cli.session import CliSession, Exit, Failed, need_packages
from headrace.client.address import FileAddress
from headrace.client.embedding import FileCare, care_of, timers_of
from headrace.client.threads import signals_to

IN_MEMORY: Final = ":memory:"
DEFAULT_DATA_DIR: Final = ".headrace"
SAY_OPTIONS: Final = "--say-options"
"""Tells the service that its errors should name options of this command, not variables."""

_NEEDED: Final = (
    *("anyio", "aws_lambda_powertools", "chalice", "cronsim", "filelock", "itsdangerous", "jinja2"),
    *("prometheus_client", "uvicorn"),
)
_SIGNAL_CHECK_SECONDS: Final = 0.5


@click.command("run", cls=CliCommand, example="headrace run --port 8080 --data-dir :memory:")
@click.option(
    "--host",
    metavar="HOST",
    help="Listen on this address; else HEADRACE_HOST, else 127.0.0.1 (this machine only).",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Listen on this port; 0 is any free one; else HEADRACE_PORT, else 8080.",
)
@click.option(
    "--data-dir",
    "--data",
    "data_dir",
    metavar="FOLDER",
    help=f"Keep tasks in this folder; {IN_MEMORY} keeps nothing; else HEADRACE_DATA_DIR, "
    f"else {DEFAULT_DATA_DIR}.",
)
@click.option(
    "--admin-key",
    metavar="KEY",
    help="HEADRACE_ADMIN_KEY is safer; default: a generated key that is kept with the data.",
)
@click.option(
    "--root-path",
    metavar="PATH",
    help="The path in front of every URL behind a proxy, for example /tools/queue; else "
    "HEADRACE_ROOT_PATH, else none.",
)
@click.option(
    "--trusted-proxies",
    metavar="ADDRESSES",
    help="Addresses or networks of proxies whose X-Forwarded-Proto, -Host, -Prefix and -For are "
    "used, separated by commas; else HEADRACE_TRUSTED_PROXIES, else none.",
)
@click.option(
    "--insecure-cookies",
    is_flag=True,
    default=None,
    help="Allow sign-in to the console over plain http from other machines, for a network that you "
    "trust; else HEADRACE_INSECURE_COOKIES=1.",
)
@click.pass_obj
def run_command(session: CliSession, /, data_dir: str | None, **given: Any) -> None:
    """Start a service on this machine.

    It prints its address and key as two lines to paste into another terminal.  Ctrl-C stops it;
    the tasks stay in the data folder.
    """
    root = _checkout()
    extra = "headrace[server]" if root is None else f"{root}[server]"
    need_packages("the service needs", _NEEDED, f"{'-e ' if root else ''}'{extra}'")
    env = dict(session.env)
    kept = data_dir or env.get("HEADRACE_DATA_DIR") or DEFAULT_DATA_DIR
    env["HEADRACE_DATA_DIR"] = kept if kept == IN_MEMORY else str(Path(kept).absolute())
    # As variables, so that a list of processes does not show the key.
    for name, value in given.items():
        if value is not None:
            env[f"HEADRACE_{name.upper()}"] = "1" if value is True else str(value)
    # -P: this folder may have a module named console.
    _become([sys.executable, "-P", "-m", "headrace.local", SAY_OPTIONS], env)


def _become(command: list[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by *command*, which then gets its signals and sets its exit code."""
    if sys.platform == "win32":
        # Windows would start another process and return to the terminal.  Ctrl-C reaches both.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(subprocess.run(command, env=env, check=False).returncode)  # noqa: S603 (our own)
    else:
        # Ctrl-C would print a traceback while the service imports its modules.  The mask survives
        # execve; the service removes it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.execve(command[0], command, env)  # noqa: S606 (our own)


def _checkout() -> Path | None:
    """Return the root of the checkout with this module; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "template.yaml").is_file() else None


def _file_of(session: CliSession, command: str) -> FileAddress:
    """Return the address of a file.  Raises Failed for another kind of service."""
    address = session.client.settings.address
    if not isinstance(address, FileAddress):
        raise Failed(
            f"`headrace {command}` needs a file, for example HEADRACE_URL=file:headrace.db, "
            f"not {session.address()}",
            Exit.USAGE,
        )
    return address


@click.command("timers", cls=CliCommand, example="HEADRACE_URL=file:headrace.db headrace timers")
@click.pass_obj
def timers_command(session: CliSession) -> None:
    """Run the timers of a file, until Ctrl-C or SIGTERM.

    They enqueue the ticks of schedules, reclaim lapsed leases and keep the history.  A worker and
    `headrace run` do the same; use this for a file without them.  If several processes run timers,
    one at a time does the work.
    """
    address = _file_of(session, "timers")
    stop = threading.Event()
    with timers_of(address), signals_to(stop.set):
        session.note(f"Running the timers of {address.path}; Ctrl-C stops them.")
        # If another thread receives the signal, its handler runs only when this one wakes.
        while not stop.wait(_SIGNAL_CHECK_SECONDS):
            pass


@click.command("backup", cls=CliCommand, example="headrace backup tasks-2026-11-22.db")
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def backup_command(session: CliSession, target: Path) -> None:
    """Copy a file while it is used.

    FILE is a service of its own: HEADRACE_URL=file:FILE.  If it exists, the exit code is 5.
    """
    care: FileCare = care_of(_file_of(session, "backup"))
    care.backup(str(target))
    size = target.stat().st_size
    done(session, f"{target}: {size:,} bytes", {"file": str(target), "bytes": size})
