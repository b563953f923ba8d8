"""How rollup and proof grow: with what is new, with what is old, and with queues.

    .venv-spark/bin/python -m benchmarks.spark.slopes 1 4 16

Each number is a size in millions of changes.  A day of so many is rolled up beside those of the
runs before, then proved by itself.  Then come a tenth of the last once more, beside all of these,
and that tenth again in 10,000 queues.  Seconds of CPU are those of all processes of this run, which
others on the machine do not spoil.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from benchmarks.spark.rollup import DAY, WARM_UP, change_log, cpu_seconds
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.proof import proof
from headrace.spark.lake.rollup import rollup
from headrace.spark.session import session

MANY = 10_000


def main() -> None:
    """Measure, and print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millions", type=float, nargs="+")
    given = parser.parse_args()
    folder = tempfile.mkdtemp()
    conf = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "4g"}
    spark = session("slopes", **{"spark.master": "local[2]"}, **conf)
    try:
        warm = LakeFrames(spark, f"{folder}/warm")
        change_log(warm, WARM_UP)
        rollup(warm, today=DAY + timedelta(days=1))
        lake, old = LakeFrames(spark, f"{folder}/lake"), 0
        sizes = [int(number * 1_000_000) for number in given.millions]
        tenth = sizes[-1] // 10
        runs = [*((size, 10) for size in sizes), (tenth, 10), (tenth, MANY)]
        for day, (size, queues) in enumerate(runs):
            change_log(lake, size, day=day, queues=queues)
            today = DAY + timedelta(days=day + 1)
            print(f"{size:>11,} new, {old:>11,} old, {queues:>6,} queues:", end="", flush=True)
            since = today - timedelta(days=1)
            _told("rollup", partial(rollup, lake, today=today))
            _told("proof", partial(proof, lake, since=since))
            print()
            old += size
    finally:
        spark.stop()
        shutil.rmtree(folder)


def _told(name: str, job: Callable[[], object]) -> None:
    begin, used = time.monotonic(), cpu_seconds()
    job()
    used = cpu_seconds() - used
    print(f"  {name} {time.monotonic() - begin:.1f} s, CPU {used:.1f} s;", end="", flush=True)


if __name__ == "__main__":
    main()
