"""`headrace lake` and `headrace station`: programs on Spark, each in its own process.

The command therefore shows its help without PySpark and Java.  A job of the lake prints its own
result; a station prints its progress as lines of JSON, which are shown here.
"""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
from rich.status import Status

from headrace.cli.commands import CliCommand, CliGroup
from headrace.cli.jobs import LAKE, LAKE_JOBS, STATION_START, SparkJob
from headrace.cli.output import console, facts
from headrace.cli.session import CliSession, need_packages
from headrace.domain.texts import escape_unseen

LAKE_MODULE: Final = "headrace.spark.lake"
STATION_MODULE: Final = "headrace.spark.stations"
_LAKE_NEEDS: Final = ("pyspark", "pyarrow", "pandas")
_STATION_NEEDS: Final = (*_LAKE_NEEDS, "botocore", "cronsim")
OUTCOMES: Final = (
    "moved",
    "succeeded",
    "spawned",
    "retried",
    "dropped",
    "dead",
    "released",
    "cancelled",
    "lost",
)


@click.group("lake", cls=CliGroup, example="headrace lake rollup\nheadrace lake proof")
def lake_command() -> None:
    """Keep, check and replay the history of all tasks."""


@click.group(
    "station", cls=CliGroup, example="headrace station start pipelines.air:cleaning --drain"
)
def station_command() -> None:
    """Start stations of a pipeline on Spark."""


def run(session: CliSession, lake: str | None, words: Sequence[str]) -> int:
    """Run a job of the lake and return its exit code.  Raises Failed."""
    need_packages("the lake's jobs need", _LAKE_NEEDS, "'headrace[spark]'")
    options = [f"--lake={lake}"] if lake else []
    options += ["--json"] * session.json + ["--quiet"] * session.quiet
    url = session.address()
    env = {**session.env, **({"HEADRACE_URL": url} if url else {})}
    command = [sys.executable, "-P", "-m", LAKE_MODULE, *options, *words]
    return subprocess.run(command, env=env, check=False).returncode  # noqa: S603 (our own module)


def run_station(session: CliSession, words: Sequence[str]) -> int:
    """Run stations, show their progress, and return the exit code."""
    need_packages("stations need", _STATION_NEEDS, "'headrace[spark]'")
    command = [sys.executable, "-P", "-m", STATION_MODULE, *words, "--json"]
    if not (session.json or sys.stderr.isatty()):  # a terminal shows a status line
        session.note("starting Spark")
    with subprocess.Popen(  # noqa: S603 (our own module)
        command, env=dict(session.env), stdout=subprocess.PIPE, text=True
    ) as child:
        # Ctrl-C of a terminal reaches the station too, which finishes its batch.
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
    """Print the lines unchanged with --json, else show the progress and the result."""
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
                session.note(f"  {outcome}: {escape_unseen(reasons[0])}")


def _status(session: CliSession) -> Status:
    """Return a status line on stderr; it is hidden unless that is a terminal."""
    out = console(sys.stderr)
    out.quiet = session.quiet or session.json or not sys.stderr.isatty()
    return Status("starting Spark", console=out)


def _line(figures: Mapping[str, Any]) -> str:
    rate = f"{figures['seconds']:.1f} s ({figures['tasks_per_second']:,.0f} tasks/s)"
    return f"batch {figures['batch']}: {_counts(figures)} in {rate}"


def _counts(figures: Mapping[str, Any]) -> str:
    counts = [f"{figures[name]:,} {name}" for name in OUTCOMES if figures.get(name)]
    return ", ".join(counts) or "nothing"


def _command(
    job: SparkJob, run: Callable[[CliSession, dict[str, Any]], int], *more: click.Parameter
) -> CliCommand:
    """Return the command for *job*, with *more* options besides the job's."""
    arguments = [one for one in job.params if isinstance(one, click.Argument)]
    options = [one for one in job.params if isinstance(one, click.Option)]
    return CliCommand(
        job.name,
        params=[*arguments, *more, *options],
        help=job.help,
        example=job.example,
        callback=lambda **given: run(click.get_current_context().obj, given),
    )


def _run_lake(job: SparkJob, session: CliSession, given: dict[str, Any]) -> int:
    return run(session, given.pop("lake"), [job.name, *job.words(given)])


for _job in LAKE_JOBS:
    lake_command.add_command(_command(_job, partial(_run_lake, _job), LAKE))
station_command.add_command(
    _command(STATION_START, lambda session, given: run_station(session, STATION_START.words(given)))
)
