"""Started by EMR Serverless: one job of the lake, with the packages of the environment.

spark-submit lake.py --job rollup --lake s3://bucket
"""

import argparse
import shlex
from importlib import import_module


def words() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="lake.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--job", required=True, help="rollup, proof or backfill")
    parser.add_argument("--lake", required=True, help="s3://bucket/prefix, or a folder")
    parser.add_argument("--words", default="", help="of the job: --words=--since=-30d")
    return parser.parse_args()


def main() -> None:
    """Run the job; raise SystemExit only if it failed."""
    options = words()
    jobs = import_module("headrace.spark.lake.__main__")
    code = jobs.main(["--lake", options.lake, "--json", options.job, *shlex.split(options.words)])
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
