"""Started by EMR Serverless: one station, with the packages of the environment.

spark-submit --py-files pipeline.zip station.py --station pipelines.air:cleaning --drain true
"""

import argparse
import os
from importlib import import_module
from typing import Final

VARIABLES: Final = {
    "tasks_table": "HEADRACE_TASKS_TABLE",
    "control_table": "HEADRACE_CONTROL_TABLE",
    "region": "AWS_DEFAULT_REGION",
}


def words() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="station.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--station", required=True, help="module:station")
    parser.add_argument("--drain", choices=["true", "false"], default="false")
    parser.add_argument("--until", help="end at this instant")
    for name, variable in VARIABLES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"else {variable}")
    return parser.parse_args()


def main() -> None:
    """Run the station; raise SystemExit only if it failed."""
    options = words()
    for name, variable in VARIABLES.items():
        if getattr(options, name):
            os.environ[variable] = getattr(options, name)
    arguments = [options.station, "--json", "--cloudwatch"]
    arguments += ["--drain"] if options.drain == "true" else []
    arguments += [f"--until={options.until}"] if options.until else []
    code = import_module("headrace.spark.stations.__main__").main(arguments)
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
