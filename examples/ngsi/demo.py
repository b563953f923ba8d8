"""Real sensor notifications on their way through two durable queues, on a service of its own.

Notifications arrive over HTTP, four workers split them into rows and load the rows into SQLite;
one task in ten fails once on purpose, some notifications cannot be read, and midway one worker is
killed with leases in its hands. Then two stations on Spark do the same and load Parquet, from
notifications some of which come late or twice. In the end every one must be accounted for.

Exit status: 0 all is well, 1 something is unaccounted for, unfinished or failed, 130 Ctrl-C.
"""

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from examples.ngsi.running import FAILURES, SHOWN, Options
from examples.ngsi.spark_part import USUAL, SparkLeftOut, by_stations
from examples.ngsi.summary import SparkSummary, Summary
from examples.ngsi.workers_part import ROWS_NAME, by_workers
from headrace.local import LocalServiceError

MOST = 1_000_000
"""Notifications of one run."""


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m examples.ngsi.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--notifications", type=int, default=1400, metavar="N", help="how many to send (1400)"
    )
    parser.add_argument("--json", action="store_true", help="the numbers as JSON, for a program")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep rows and logs in DIR")
    parser.add_argument(
        "--timeout",
        type=float,
        default=50.0,
        metavar="SECONDS",
        help="give up when nothing happens for (50)",
    )
    parser.add_argument(
        "--spark",
        type=_python,
        default=str(USUAL),
        metavar="PYTHON",
        help="a Python with PySpark (.venv-spark/bin/python), or no: leave that part out",
    )
    options = Options(**vars(parser.parse_args()))
    if not 1 <= options.notifications <= MOST:
        parser.error(f"--notifications takes 1 to {MOST:,}")
    if options.keep and (options.keep / ROWS_NAME).exists():
        parser.error(f"{options.keep} holds the rows of an earlier run already")
    return options


def _python(text: str) -> Path | None:
    return None if text == "no" else Path(text)


def _both(options: Options, console: Console) -> tuple[Summary, SparkSummary | str]:
    """Run both parts; in place of the second one why it was left out."""
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        summary = by_workers(options, folder, console)
        if not options.json:
            console.print(summary.table())
        try:
            return summary, _spark(options, folder, console)
        except SparkLeftOut as reason:
            console.print(f"Without the part on Spark: {reason}", highlight=False, soft_wrap=True)
            return summary, str(reason)


def _spark(options: Options, folder: Path, console: Console) -> SparkSummary:
    if options.spark is None:
        raise SparkLeftOut("it was left out as asked")
    if "HEADRACE_DYNAMODB_URL" in os.environ:
        raise SparkLeftOut("it needs empty tables, and HEADRACE_DYNAMODB_URL names yours")
    summary = by_stations(options, options.spark, folder, console)
    if not options.json:
        console.print(summary.table())
    return summary


def main() -> int:
    """Run the demo as the command line asks, and say how it went."""
    options = _options()
    console = Console(stderr=options.json)
    try:
        summary, spark = _both(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted; the service and its data are gone.")
        return 130
    except (*FAILURES, LocalServiceError) as error:
        for text in (str(error), *getattr(error, "__notes__", ())):
            console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    if options.json:
        on_spark = {"left_out": spark} if isinstance(spark, str) else spark.as_json()
        print(json.dumps({**summary.as_json(), "spark": on_spark}, indent=2))
    problems = [*summary.problems, *(() if isinstance(spark, str) else spark.problems)]
    for problem in problems[:SHOWN]:
        console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    if problems:
        console.print(f"{len(problems)} problems", style="bold red")
        return 1
    console.print("Every notification is accounted for.", style="green")
    return 0


if __name__ == "__main__":
    sys.exit(main())
