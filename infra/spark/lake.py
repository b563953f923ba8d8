"""Started by EMR Serverless and Glue: one job of the lake, from what is in headrace.zip alone.

spark-submit --py-files headrace.zip lake.py --job rollup --lake s3://bucket
"""

import argparse
import shlex
import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path


def words() -> argparse.Namespace:
    """Return the options; Glue adds words of its own, which say nothing to us."""
    parser = argparse.ArgumentParser(prog="lake.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--job", required=True, help="rollup, proof, compact or backfill")
    parser.add_argument("--lake", required=True, help="s3://bucket/prefix, or a folder")
    parser.add_argument("--words", default="", help="of the job: --words=--since=-30d")
    options, _ = parser.parse_known_args()
    return options


def unzipped() -> Path | None:
    """Put the folder with what our zip file holds first on the path; None without such a file.

    Spark puts the zip file itself on the path, where botocore cannot read the files beside its
    modules.
    """
    for entry in sys.path:
        if entry.endswith(".zip") and zipfile.is_zipfile(entry):
            with zipfile.ZipFile(entry) as archive:
                if any(name.startswith("botocore/") for name in archive.namelist()):
                    folder = tempfile.mkdtemp(prefix="headrace-")
                    archive.extractall(folder)
                    sys.path.insert(0, folder)
                    return Path(folder)
    return None


def main() -> None:
    """Run the job; raise SystemExit only if it failed, which is how Glue tells."""
    options = words()
    unzipped()
    jobs = import_module("headrace.spark.lake.__main__")  # only now can all of it be imported
    code = jobs.main(["--lake", options.lake, "--json", options.job, *shlex.split(options.words)])
    if code:
        raise SystemExit(code)


if __name__ == "__main__":
    main()
