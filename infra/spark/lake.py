"""Started by EMR Serverless and Glue: one job of the lake, from what is in headrace.zip alone.

spark-submit --py-files headrace.zip lake.py --job rollup --lake s3://bucket
"""

import argparse
import shlex


def words() -> argparse.Namespace:
    """Return the options; Glue adds words of its own, which say nothing to us."""
    parser = argparse.ArgumentParser(prog="lake.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--job", required=True, help="rollup, proof, compact or backfill")
    parser.add_argument("--lake", required=True, help="s3://bucket/prefix, or a folder")
    parser.add_argument("--words", default="", help="of the job: --words=--since=-30d")
    options, _ = parser.parse_known_args()
    return options


def main() -> None:
    """Run the job; raise SystemExit only if it failed, which is how Glue tells."""
    from headrace.spark.archive import unzipped  # noqa: PLC0415 (only now is it known to be asked)

    options = words()
    unzipped()
    from headrace.spark.lake.__main__ import main as run  # noqa: PLC0415 (now it can be imported)

    code = run(["--lake", options.lake, "--json", options.job, *shlex.split(options.words)])
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
