"""`python -m infra.spark`: build what Spark runs in AWS, and put it where the stack looks for it.

    make package-spark
    make package-spark ARGS='--lake s3://bucket'

The address of the lake is the stack's output LakeAddress.  Exit status: 0 done, 1 it failed.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from headrace.domain.errors import HeadraceError
from headrace.store.lake import lake_at
from infra.local.engine import PROJECT_ROOT
from infra.spark.package import PROCESSORS, build

TARGET: Final = PROJECT_ROOT / "build" / "spark"
CODE: Final = "code"
"""Where in the lake template.yaml looks for it."""


def main() -> int:
    """Build, and put; return the exit status."""
    parser = argparse.ArgumentParser(prog="make package-spark ARGS=…", description=__doc__)
    parser.add_argument("--lake", help="put it there, under code/; such as s3://bucket")
    parser.add_argument("--processor", choices=[*PROCESSORS], default="arm64", help="of EMR")
    parser.add_argument("--target", type=Path, default=TARGET, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        files = build(options.target, processor=options.processor)
        for file in files:
            print(f"{file.stat().st_size / 1e6:8.1f} MB  {file.relative_to(PROJECT_ROOT)}")
        if options.lake:
            lake = lake_at(options.lake)
            for file in files:
                lake.put(f"{CODE}/{file.name}", file.read_bytes())
            print(f"All of it is at {options.lake.rstrip('/')}/{CODE}/ now.")
    except subprocess.CalledProcessError:
        print("error: pip could not fetch what infra/spark/requirements.txt names", file=sys.stderr)
        return 1
    except (HeadraceError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
