"""`headrace run`: the whole service on this machine, which this command becomes; and its file.

`headrace timers` and `headrace backup` are for a service that is a file.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

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
"""Tells the service to name this command's options, not variables, in what it refuses."""

_NEEDED: Final = (
    *("anyio", "aws_lambda_powertools", "chalice", "cronsim", "filelock", "itsdangerous", "jinja2"),
    *("prometheus_client", "uvicorn"),
)


@click.command("run", cls=CliCommand, example="headrace run --port 8080 --data-dir :memory:")
@click.option(
    "--host",
    metavar="HOST",
    help="To listen on; else HEADRACE_HOST, else 127.0.0.1: this machine alone.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="To listen on; 0 is any free one; else HEADRACE_PORT, else 8080.",
)
@click.option(
    "--data-dir",
    "--data",
    "data_dir",
    metavar="FOLDER",
    help=f"Where tasks are kept; {IN_MEMORY} keeps nothing; else HEADRACE_DATA_DIR, "
    f"else {DEFAULT_DATA_DIR} in this folder.",
)
@click.option(
    "--admin-key",
    metavar="KEY",
    help="Better HEADRACE_ADMIN_KEY; without either, one is made and kept with the data.",
)
@click.option(
    "--trusted-proxies",
    metavar="ADDRESSES",
    help="Proxies whose X-Forwarded-Proto, -Host, -Prefix and -For are honoured: addresses or "
    "networks, separated by commas; else HEADRACE_TRUSTED_PROXIES, else none.",
)
@click.option(
    "--insecure-cookies",
    is_flag=True,
    help="Let people sign in to the console over plain http from other machines: only on a network "
    "that you trust; else HEADRACE_INSECURE_COOKIES=1.",
)
@click.pass_obj
def run_command(
    session: CliSession,
    /,
    host: str | None,
    port: int | None,
    data_dir: str | None,
    admin_key: str | None,
    trusted_proxies: str | None,
    *,
    insecure_cookies: bool,
) -> None:
    """Start a service on this machine.

    It prints its address and key, as two lines to paste into another terminal.  Ctrl-C stops it,
    and the tasks stay in the data folder.
    """
    root = checkout()
    need_packages(
        "the service needs",
        _NEEDED,
        "'headrace[server]'" if root is None else f"-e '{root}[server]'",
    )
    env = environment(
        session.env,
        host=host,
        port=port,
        data_dir=data_dir,
        admin_key=admin_key,
        trusted_proxies=trusted_proxies,
        insecure_cookies=insecure_cookies,
    )
    # -P: a `console` of one's own in this folder is another one.
    become([sys.executable, "-P", "-m", "headrace.local", SAY_OPTIONS], env)


def become(command: list[str], env: Mapping[str, str]) -> NoReturn:
    """Run *command* in place of this process, so that signals and exit code are its own."""
    if sys.platform == "win32":
        # There a new process would be started and the terminal given back.  Ctrl-C reaches both.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(subprocess.run(command, env=env, check=False).returncode)  # noqa: S603 (our own)
    else:
        # Until it has imported what it needs, and can say so, Ctrl-C would be a traceback.  This
        # outlives the change of program; the service ends it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.execve(command[0], command, env)  # noqa: S606 (our own)


def checkout(package: Path = Path(__file__).parents[1]) -> Path | None:
    """Return the root of the checkout that *package* stands in; None: it is an installed copy."""
    root = package.resolve().parents[1]
    return root if (root / "template.yaml").is_file() else None


def environment(
    env: Mapping[str, str],
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    admin_key: str | None = None,
    trusted_proxies: str | None = None,
    insecure_cookies: bool = False,
) -> dict[str, str]:
    """The environment of the service; the key goes this way, so that no list of processes has it.

    A folder is named by its whole path, as seen from here.
    """
    given = dict(env)
    kept = data_dir or env.get("HEADRACE_DATA_DIR") or DEFAULT_DATA_DIR
    given["HEADRACE_DATA_DIR"] = kept if kept == IN_MEMORY else str(Path(kept).absolute())
    if host is not None:
        given["HEADRACE_HOST"] = host
    if port is not None:
        given["HEADRACE_PORT"] = str(port)
    if admin_key is not None:
        given["HEADRACE_ADMIN_KEY"] = admin_key
    if trusted_proxies is not None:
        given["HEADRACE_TRUSTED_PROXIES"] = trusted_proxies
    if insecure_cookies:
        given["HEADRACE_INSECURE_COOKIES"] = "1"
    return given


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
