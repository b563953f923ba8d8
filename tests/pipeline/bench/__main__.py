"""Run the measurements that are named, or all, and print what they found.

``make bench-spark ARGS='rollup --changes 100000'``
"""

import argparse
import os
import tempfile

from headrace.spark.session import session
from tests.pipeline.bench import rollup

BENCHES = {"rollup": rollup.measured}
CONF = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "4g",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-spark ARGS=…", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], metavar="|".join(BENCHES))
    parser.add_argument("--changes", type=int, default=1_000_000, help="in the rollup's change log")
    asked = parser.parse_args()
    spark = session("headrace bench", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    load = os.getloadavg()[0]
    print(f"Spark {spark.version}, {CONF['spark.master']}, load {load:.1f} before the start")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        for name in asked.names or BENCHES:
            for line in BENCHES[name](spark, folder, asked.changes):
                print(f"{name}: {line}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
