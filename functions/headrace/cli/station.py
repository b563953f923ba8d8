"""`headrace station`: workers on Spark that move tasks from one queue to the next.

A station runs in a process of its own, so that this command needs neither PySpark nor Java to
explain itself; what it tells comes back as lines of JSON and is shown here.
"""

import importlib.util
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import click
from rich.status import Status

from headrace.cli import params
from headrace.cli.commands import CliGroup
from headrace.cli.output import clean, console, facts
from headrace.cli.session import CliSession, Failed

RUNNER: Final = "headrace.spark.stations"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "botocore", "cronsim")
OUTCOMES: Final = (
    "moved",
    "succeeded",
    "spawned",
    "retried",
    "dropped",
    "dead",
    "released",
    "lost",
)


@click.group("station", cls=CliGroup, example="headrace station run pipelines.air:cleaning --drain")
def station_command() -> None:
    """Run stations of a pipeline on Spark."""


@station_command.command(
    "run",
    example="headrace station run pipelines.air:cleaning\n"
    "headrace station run pipelines.air:cleaning --drain --json",
)
@click.argument("station", metavar="MODULE:STATION")
@click.option("--drain", is_flag=True, help="End when nothing is due.")
@click.option("--until", type=params.instant, metavar="INSTANT", help="End then; such as +1h.")
@click.pass_obj
def run(session: CliSession, /, station: str, *, drain: bool, until: datetime | None) -> int:
    """Run a station, until Ctrl-C or SIGTERM.

    MODULE:STATION is as pipelines.air:cleaning, with this folder on the path.  It works on the
    tables themselves: HEADRACE_DYNAMODB_URL and HEADRACE_TASKS_TABLE name them, or they are those
    of the service that `headrace run` has started in this folder.  Told to stop, it finishes its
    batch or gives it back; a second Ctrl-C gives it back at once.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failed(
            f"stations need Python packages that are not here ({', '.join(missing)}): "
            "pip install 'headrace[spark]'"
        )
    words = [station, "--json"]
    words += ["--drain"] * drain + ([f"--until={until.isoformat()}"] if until else [])
    command = [sys.executable, "-P", "-m", RUNNER, *words]
    if not (session.json or sys.stderr.isatty()):  # a terminal has a line that moves
        session.note("starting Spark")
    with subprocess.Popen(  # noqa: S603 (our own module)
        command, env=dict(session.env), stdout=subprocess.PIPE, text=True
    ) as child:
        # A terminal's Ctrl-C reaches the station too, which knows better what to do.
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
            signal.SIGTERM: signal.signal(
                signal.SIGTERM, lambda number, _frame: child.send_signal(number)
            ),
        }
        try:
            show(session, child.stdout or ())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return child.wait()


def show(session: CliSession, lines: Iterable[str]) -> None:
    """Pass the lines on as they are for programs, or show people how it goes, and the end."""
    totals: Counter[str] = Counter()
    with _status(session) as status:
        for line in lines:
            if session.json:
                click.echo(line, nl=False)
                continue
            figures = json.loads(line)
            if "ended" in figures:
                status.stop()
                facts((name.replace("_", " "), value) for name, value in figures.items())
                continue
            totals.update({name: figures.get(name, 0) for name in OUTCOMES})
            text = _line(figures)
            if sys.stderr.isatty():
                status.update(f"{text}; so far {_counts(totals)}")
            else:
                session.note(text)
            for outcome, reasons in figures.get("reasons", {}).items():
                session.note(f"  {outcome}: {clean(reasons[0])}")


def _status(session: CliSession) -> Status:
    """Return a line on stderr that is kept up to date; nothing of it is seen elsewhere."""
    out = console(sys.stderr)
    out.quiet = session.quiet or session.json or not sys.stderr.isatty()
    return Status("starting Spark", console=out)


def _line(figures: Mapping[str, Any]) -> str:
    rate = f"{figures['seconds']:.1f} s ({figures['tasks_per_second']:,.0f} tasks/s)"
    return f"batch {figures['batch']}: {_counts(figures)} in {rate}"


def _counts(figures: Mapping[str, Any]) -> str:
    counts = [f"{figures[name]:,} {name}" for name in OUTCOMES if figures.get(name)]
    return ", ".join(counts) or "nothing"
