"""The programs on Spark and their options.

`headrace lake` and `headrace station` pass their options to these programs; EMR Serverless starts
the programs directly.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import click

from headrace.cli import params
from headrace.cli.params import INSTANT


class SparkJob(NamedTuple):
    """One program on Spark."""

    name: str
    help: str
    example: str
    params: tuple[click.Parameter, ...] = ()
    one_of: tuple[str, ...] = ()  #: exactly one of these options is needed

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise UsageError unless exactly one of the options is given."""
        if self.one_of and sum(given[name] is not None for name in self.one_of) != 1:
            options = " and ".join(f"--{name}" for name in self.one_of)
            raise click.UsageError(f"give exactly one of {options}")

    def words(self, given: Mapping[str, Any]) -> list[str]:
        """Return *given* as a command line, with instants instead of times from now."""
        self.check(given)
        words: list[str] = []
        for param in self.params:
            value = given[str(param.name)]
            if isinstance(value, datetime | date):
                value = value.isoformat()
            if isinstance(param, click.Argument):
                words += value if isinstance(value, tuple) else [str(value)]
            elif isinstance(value, tuple):
                words.append(f"{param.opts[0]}={':'.join(map(str, value))}")
            elif value is True:
                words.append(param.opts[0])
            elif value not in (None, False):
                words.append(f"{param.opts[0]}={value}")
        return words


def parsed(command: click.Command, arguments: Sequence[str] | None) -> Any:
    """Parse *arguments*, or those of the process, by *command*; 2 if they are wrong."""
    try:
        return command.main(arguments, prog_name=command.name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code


OUTPUT: Final = (
    click.Option(["--json"], is_flag=True, help="Print the outcome as JSON."),
    click.Option(["--quiet"], is_flag=True, help="No progress line."),
)

LAKE: Final = click.Option(
    ["--lake"],
    metavar="PLACE",
    help="A folder or s3://bucket/prefix; else HEADRACE_LAKE, else that of the local service.",
)

LAKE_JOBS: Final = (
    SparkJob(
        "rollup",
        "Bring the tables up to date with the raw changes.\n\n"
        "Every day with new changes is written again, so the job can be repeated.",
        "headrace lake rollup --lake s3://history/headrace",
        (click.Option(["--all", "everything"], is_flag=True, help="Write every day again."),),
    ),
    SparkJob(
        "proof",
        "Check every task's history against the lifecycle.\n\n"
        "Ends with 1 if it finds violations, and prints their kinds, numbers and tasks.",
        "headrace lake proof --since -30d",
        (
            click.Option(
                ["--since"],
                type=params.day,
                metavar="DAY",
                help="The first day to check: 2026-11-01, -30d; else the last two.",
            ),
            click.Option(["--all", "everything"], is_flag=True, help="Check all days."),
            click.Option(["--live"], is_flag=True, help="Also look for lost tasks in the table."),
            click.Option(["--settle"], type=float, hidden=True, help="Seconds to keep looking."),
        ),
    ),
    SparkJob(
        "backfill",
        "Add to the lake what only an EXPORT of the table has.\n\n"
        "It adds nothing twice, so it can be repeated.",
        "headrace lake backfill s3://exports/AWSDynamoDB/01795219200000-a1b2c3d4",
        (
            click.Argument(["export"]),
            click.Option(
                ["--payloads"], metavar="PATTERNS", help="Queues whose payloads are kept."
            ),
        ),
    ),
    SparkJob(
        "replay",
        "Enqueue again what SQL over the lake selects.\n\n"
        "The same NAME enqueues nothing twice, so it can be repeated.",
        "headrace lake replay again-1 --queue work --dry-run --sql "
        "\"SELECT task_id, version, payload FROM changes WHERE move = 'enqueue'\"",
        (
            click.Argument(["name"]),
            click.Option(
                ["--sql"],
                metavar="SQL",
                help="A query that selects task_id and payload; optional: version, queue, at.",
            ),
            click.Option(["--file"], metavar="FILE", help="File with the SQL."),
            click.Option(["--queue"], metavar="QUEUE", help="Enqueue everything into this queue."),
            click.Option(
                ["--speed"],
                type=click.FloatRange(min=0, min_open=True),
                metavar="TIMES",
                help="Keep the intervals between tasks, this many times as fast.",
            ),
            click.Option(
                ["--start"],
                **INSTANT,
                help="When the first task is due: +5m; default: now.",
            ),
            click.Option(
                ["--dry-run"], is_flag=True, help="Print number and price; enqueue nothing."
            ),
        ),
        one_of=("sql", "file"),
    ),
)

STATION_START: Final = SparkJob(
    "start",
    "Start one or more stations, until Ctrl-C or SIGTERM.\n\n"
    "MODULE is imported with this folder on the path.  Several stations share one Spark; --drain "
    "ends when no task is due for any of them.  Stations use the tables directly: "
    "HEADRACE_DYNAMODB_URL and HEADRACE_TASKS_TABLE name them, else they are those of the service "
    "that `headrace run` started in this folder.  A station that is stopped finishes or releases "
    "its batch; a second Ctrl-C releases it at once.",
    "headrace station start pipelines.air:cleaning\n"
    "headrace station start pipelines.air:cleaning pipelines.air:loading --drain --json",
    (
        click.Argument(["station"], metavar="MODULE:STATION...", nargs=-1, required=True),
        click.Option(["--drain"], is_flag=True, help="Stop when no task is due."),
        click.Option(["--until"], **INSTANT, help="Stop at this instant: +1h."),
        click.Option(
            ["--prometheus"],
            type=params.listening,
            metavar="[HOST:]PORT",
            help="Serve metrics on this port, on this machine only unless HOST is given.",
        ),
        click.Option(
            ["--cloudwatch"],
            is_flag=True,
            help="Print the metrics of each batch to stdout as CloudWatch's log lines.",
        ),
    ),
)
