"""What runs on Spark, and its options.

Those of `headrace lake` and `headrace station` are those of the programs that they start, which
EMR Serverless and Glue start as they are.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import click

from headrace.cli import params
from headrace.cli.params import INSTANT


class SparkJob(NamedTuple):
    """One program on Spark, as it is asked for."""

    name: str
    help: str
    example: str
    params: tuple[click.Parameter, ...] = ()
    one_of: tuple[str, ...] = ()  #: exactly one of these options is needed

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse what does not go together."""
        if self.one_of and sum(given[name] is not None for name in self.one_of) != 1:
            options = " and ".join(f"--{name}" for name in self.one_of)
            raise click.UsageError(f"give exactly one of {options}")

    def words(self, given: Mapping[str, Any]) -> list[str]:
        """What was *given*, as a command line again, with instants instead of times from now."""
        self.check(given)
        words: list[str] = []
        for param in self.params:
            value = given[str(param.name)]
            if isinstance(value, datetime | date):
                value = value.isoformat()
            if isinstance(param, click.Argument):
                words += value if isinstance(value, tuple) else [str(value)]
            elif value is True:
                words.append(param.opts[0])
            elif value not in (None, False):
                words.append(f"{param.opts[0]}={value}")
        return words


def parsed(command: click.Command, arguments: Sequence[str] | None) -> Any:
    """What *command* makes of *arguments*, else of the process's; 2 where they make no sense."""
    try:
        return command.main(arguments, prog_name=command.name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code


OUTPUT: Final = (
    click.Option(["--json"], is_flag=True, help="Tell the outcome as JSON."),
    click.Option(["--quiet"], is_flag=True, help="No progress."),
)

LAKE: Final = click.Option(
    ["--lake"],
    metavar="PLACE",
    help="A folder, or s3://bucket/prefix; else HEADRACE_LAKE, else the local service's.",
)

LAKE_JOBS: Final = (
    SparkJob(
        "rollup",
        "Bring the tables up to the raw changes.\n\n"
        "It makes every day that has new changes again, so it may be repeated at will.",
        "headrace lake rollup --lake s3://history/headrace",
        (click.Option(["--all", "everything"], is_flag=True, help="Make every day again."),),
    ),
    SparkJob(
        "proof",
        "Prove every task's history against the lifecycle.\n\n"
        "Ends with 1 if something is found: the kinds, how often, and with which tasks.",
        "headrace lake proof --since -30d",
        (
            click.Option(
                ["--since"],
                type=params.day,
                metavar="DAY",
                help="The first day to look at: 2026-11-01, -30d; else the last two.",
            ),
            click.Option(["--all", "everything"], is_flag=True, help="Look at all days."),
            click.Option(["--live"], is_flag=True, help="Look for lost tasks in the table too."),
            click.Option(["--settle"], type=float, hidden=True, help="Seconds to look again."),
        ),
    ),
    SparkJob(
        "backfill",
        "Learn from an EXPORT of the table what the lake missed.\n\n"
        "It tells nothing twice, however often it runs.",
        "headrace lake backfill s3://exports/AWSDynamoDB/01795219200000-a1b2c3d4",
        (
            click.Argument(["export"]),
            click.Option(
                ["--payloads"], metavar="PATTERNS", help="Queues whose payloads are kept too."
            ),
        ),
    ),
    SparkJob(
        "replay",
        "Enqueue again what SQL over the lake selects.\n\n"
        "The same NAME adds nothing twice, however often it runs.",
        "headrace lake replay again-1 --queue work --dry-run --sql "
        "\"SELECT task_id, version, payload FROM changes WHERE move = 'enqueue'\"",
        (
            click.Argument(["name"]),
            click.Option(
                ["--sql"], metavar="SQL", help="Selects task_id, payload; version, queue, at."
            ),
            click.Option(["--file"], metavar="FILE", help="Has the SQL."),
            click.Option(
                ["--queue"], metavar="QUEUE", help="Where everything goes, whatever is selected."
            ),
            click.Option(
                ["--speed"],
                type=click.FloatRange(min=0, min_open=True),
                metavar="TIMES",
                help="Keep the times between tasks, so many times as fast.",
            ),
            click.Option(
                ["--start"],
                **INSTANT,
                help="When the first is due, such as +5m; now unless given.",
            ),
            click.Option(["--dry-run"], is_flag=True, help="Count and price, enqueue nothing."),
        ),
        one_of=("sql", "file"),
    ),
)

STATION_START: Final = SparkJob(
    "start",
    "Run a station, or several, until Ctrl-C or SIGTERM.\n\n"
    "MODULE:STATION is as pipelines.air:cleaning, with this folder on the path.  Several share one "
    "Spark, and a drain ends when nothing is due for any of them.  It works on the "
    "tables themselves: HEADRACE_DYNAMODB_URL and HEADRACE_TASKS_TABLE name them, or they are "
    "those of the service that `headrace run` has started in this folder.  Told to stop, it "
    "finishes its batch or gives it back; a second Ctrl-C gives it back at once.",
    "headrace station start pipelines.air:cleaning\n"
    "headrace station start pipelines.air:cleaning pipelines.air:loading --drain --json",
    (
        click.Argument(["station"], metavar="MODULE:STATION...", nargs=-1, required=True),
        click.Option(["--drain"], is_flag=True, help="End when nothing is due."),
        click.Option(["--until"], **INSTANT, help="End then; such as +1h."),
    ),
)
