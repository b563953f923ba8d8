"""`headrace lake`: the history of all tasks, kept by jobs on Spark.

The jobs run in a process of their own, so that this command needs neither PySpark nor Java to
explain itself.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

import click

from headrace.cli import params
from headrace.cli.commands import CliGroup
from headrace.cli.session import CliSession, Failed

JOBS: Final = "headrace.spark.lake"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas")


@click.group("lake", cls=CliGroup, example="headrace lake rollup\nheadrace lake proof")
def lake_command() -> None:
    """Keep, prove and replay the history of all tasks."""


_lake_option = click.option(
    "--lake",
    metavar="PLACE",
    help="A folder, or s3://bucket/prefix; else HEADRACE_LAKE, else the local service's.",
)


@lake_command.command("rollup", example="headrace lake rollup --lake s3://history/headrace")
@_lake_option
@click.option("--all", "everything", is_flag=True, help="Make every day anew.")
@click.pass_obj
def rollup(session: CliSession, lake: str | None, *, everything: bool) -> int:
    """Bring the tables up to the raw changes.

    Every day that has something new is made anew, so it may be repeated at will.
    """
    return run(session, lake, ["rollup", *(["--all"] if everything else [])])


@lake_command.command("compact", example="headrace lake compact")
@_lake_option
@click.pass_obj
def compact(session: CliSession, lake: str | None) -> int:
    """Put the small files of each day together."""
    return run(session, lake, ["compact"])


@lake_command.command("proof", example="headrace lake proof --since -30d")
@_lake_option
@click.option(
    "--since",
    type=params.day,
    metavar="DAY",
    help="The first day to look at: 2026-11-01, -30d; all unless given.",
)
@click.option("--live", is_flag=True, help="Look for lost tasks in the table too.")
@click.pass_obj
def proof(session: CliSession, lake: str | None, since: date | None, *, live: bool) -> int:
    """Prove every task's history against the lifecycle.

    Ends with 1 if something is found: the kinds, how often, and with which tasks.
    """
    words = ["--since", str(since)] if since else []
    return run(session, lake, ["proof", *words, *(["--live"] if live else [])])


@lake_command.command(
    "backfill", example="headrace lake backfill s3://exports/AWSDynamoDB/01795219200000-a1b2c3d4"
)
@click.argument("export")
@_lake_option
@click.option("--payloads", metavar="PATTERNS", help="Queues whose payloads are kept too.")
@click.pass_obj
def backfill(session: CliSession, export: str, lake: str | None, payloads: str | None) -> int:
    """Learn from an EXPORT of the table what the lake missed.

    It tells nothing twice, however often it runs.
    """
    words = [f"--payloads={payloads}"] if payloads else []
    return run(session, lake, ["backfill", export, *words])


@lake_command.command(
    "replay",
    example="headrace lake replay again-1 --queue work --dry-run --sql "
    "\"SELECT task_id, version, payload FROM changes WHERE move = 'enqueue'\"",
)
@click.argument("name")
@_lake_option
@click.option("--sql", metavar="SQL", help="Selects task_id, payload; version, queue, at.")
@click.option("--file", metavar="FILE", help="Has the SQL.")
@click.option("--queue", metavar="QUEUE", help="Where everything goes, whatever is selected.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TIMES",
    help="Keep the times between tasks, so many times as fast.",
)
@click.option(
    "--start",
    type=params.instant,
    metavar="INSTANT",
    help="When the first is due, such as +5m; now unless given.",
)
@click.option("--dry-run", is_flag=True, help="Count and price, enqueue nothing.")
@click.pass_obj
def replay(
    session: CliSession, /, name: str, lake: str | None, **how: str | float | datetime | bool | None
) -> int:
    """Enqueue again what SQL over the lake selects.

    The same NAME adds nothing twice, however often it runs.
    """
    if (how["sql"] is None) == (how["file"] is None):
        message = "give exactly one of --sql and --file"
        raise click.UsageError(message)
    words = [name]
    for option, value in how.items():
        flag = f"--{option.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words.append(f"{flag}={value.isoformat() if isinstance(value, datetime) else value}")
    return run(session, lake, ["replay", *words])


def run(session: CliSession, lake: str | None, words: Sequence[str]) -> int:
    """Run a job of the lake with its arguments; return its exit code.  Raises Failed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failed(
            f"the lake's jobs need Python packages that are not here ({', '.join(missing)}): "
            "pip install 'headrace[spark]'"
        )
    options = [f"--lake={lake}"] if lake else []
    options += ["--json"] * session.json + ["--quiet"] * session.quiet
    service = {
        "HEADRACE_URL": session.address(),
        "HEADRACE_KEY": session.secret if words[0] == "replay" else None,
    }
    env = {**session.env, **{name: value for name, value in service.items() if value}}
    command = [sys.executable, "-P", "-m", JOBS, *options, *words]
    return subprocess.run(command, env=env, check=False).returncode  # noqa: S603 (our own module)
