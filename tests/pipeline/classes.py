"""Keep the classes that Spark loads as Java has them in memory, for each Java that tests start.

``python -m tests.pipeline.classes FILE`` makes an archive of class data (AppCDS): a third of a
short run's CPU goes into loading and linking its classes anew.  Java itself tells whether an
archive is of its own version and of the same jars, and does without one that is not.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.spark.session import session
from tests.pipeline.conftest import QUICK, SHORT_RUN

_SECONDS = 600


def main(file: Path) -> None:
    """Run queries such as the tests have; *file* is empty where Java keeps nothing."""
    new = file.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f'{SHORT_RUN} "-XX:ArchiveClassesAtExit={new}" -Xlog:disable'
    spark = session("classes", **QUICK)
    with tempfile.TemporaryDirectory() as folder:
        _queries(spark, folder)
    spark.stop()
    gateway = SparkContext._gateway  # noqa: SLF001 (it writes the file when it ends)
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_SECONDS)
    new.touch()
    new.replace(file)


def _queries(spark: SparkSession, folder: str) -> None:
    made = spark.range(100).selectExpr("id", "id % 3 AS day", "CAST(id AS string) AS text")
    made.write.partitionBy("day").parquet(f"{folder}/rows")
    made.write.json(f"{folder}/lines")
    rows = spark.read.parquet(f"{folder}/rows")
    counted = rows.groupBy("day").agg(f.count("*").alias("n"), f.max_by("text", "id").alias("last"))
    rows.join(counted, "day", "left").dropDuplicates(["id"]).orderBy("id").collect()
    rows.createOrReplaceTempView("rows")
    spark.sql(
        "SELECT sum(id) OVER (PARTITION BY day ORDER BY id), from_json(text, 'a int') FROM rows"
    ).collect()
    spark.read.schema("id bigint, text string").json(f"{folder}/lines").cache().count()
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
