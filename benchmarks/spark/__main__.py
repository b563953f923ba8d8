"""Run the measurements that are named, or all; print what they found, and judge the bars.

``make bench-spark ARGS='rollup --changes 100000'``.  Exit status: 0 measured (with --strict: and
every bar kept), 1 a bar was missed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from benchmarks.results import Bar, bars_table, finite
from benchmarks.spark import enqueue, read, replay, rollup, station
from benchmarks.spark.figures import Figure, figures_table
from headrace.spark.session import session

BENCHES = {
    "read": (read.measured, "rows"),
    "station": (station.measured, "tasks"),
    "enqueue": (enqueue.measured, "tasks"),
    "replay": (replay.measured, "tasks"),
    "rollup": (rollup.measured, "changes"),
}
CONF = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "4g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.python.daemon.module": "headrace.spark.stations.daemon",
}
_WIDTH = 100


def main() -> int:
    """Measure; return the exit status."""
    options = _parser().parse_args()
    spark = session("headrace bench", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    load = os.getloadavg()[0]
    print(f"Spark {spark.version}, {CONF['spark.master']}, load {load:.1f} before the start")
    report: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "spark": spark.version,
        "pyarrow": pa.__version__,
        "processors": os.cpu_count(),
        "load": load,
    }
    figures: list[Figure] = []
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        for name in options.names or BENCHES:
            measured, size = BENCHES[name]
            begin = time.monotonic()
            for line in measured(spark, folder, getattr(options, size)):
                if isinstance(line, Bar):
                    bars.append(line)
                    continue
                if isinstance(line, Figure):
                    figures.append(line)
                print(
                    f"{name}: {line if isinstance(line, str) else line.line()}",
                    flush=True,
                )
            print(f"{name}: {time.monotonic() - begin:.0f} s in all", flush=True)
    spark.stop()
    console = Console(width=_WIDTH)
    console.print(figures_table(figures), bars_table(bars))
    report |= {"figures": [asdict(one) for one in figures], "bars": [bar.as_json() for bar in bars]}
    if options.json:
        options.json.write_text(json.dumps(finite(report), indent=2) + "\n", encoding="utf-8")
        print(f"Written to {options.json}.")
    return 1 if options.strict and not all(bar.passed for bar in bars) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench-spark ARGS=…", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], metavar="|".join(BENCHES))
    parser.add_argument("--rows", type=int, default=400_000, help="to read")
    parser.add_argument("--changes", type=int, default=1_000_000, help="in the rollup's change log")
    parser.add_argument("--tasks", type=int, default=10_000, help="to enqueue, replay and move")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures for programs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
