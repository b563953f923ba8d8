"""Both stations in one process, as the demo runs them: with trouble, and telling how it goes.

Standard output carries lines of JSON: that Spark is up, or what it lacks; each batch; and when
standard input has ended, what is in the table.  The readings themselves go to a file.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headrace.spark.session import JavaMissing, SparkMissing, session

MISSING: Final = 3
"""Exit status where there is no Spark, or no Java for it."""

CONF: Final = {
    "spark.master": "local[2,4]",  # a part whose process dies is run again, as on a cluster
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # for a short run
    "spark.python.daemon.module": "examples.ngsi.spark.daemon",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stations until standard input ends."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", type=Path, help="takes the table and readings.jsonl")
    words.add_argument("--fatal", default="", help="correlator that kills whoever has it")
    options = words.parse_args(arguments)
    started = time.monotonic()
    try:
        spark = session("headrace demo", **CONF)
    except (SparkMissing, JavaMissing) as error:
        _print_facts(missing=str(error))
        return MISSING
    virtual_machine: Any = spark.sparkContext._jvm  # noqa: SLF001 (no other way)
    java = virtual_machine.System.getProperty("java.version")
    _print_facts(spark=spark.version, java=java, seconds=round(time.monotonic() - started, 3))
    from examples.ngsi.spark.play import play  # noqa: PLC0415 (only now is PySpark known to be there)

    try:
        return 0 if play(spark, options.folder, options.fatal, _print_facts) else 1
    finally:
        spark.stop()


def _print_facts(**facts: Any) -> None:  # noqa: ANN401 (whatever JSON takes)
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
