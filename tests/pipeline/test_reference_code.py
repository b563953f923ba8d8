"""The code in the reference of the formats runs as it stands."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.spark import register
from tests.documented_lines import FENCE, ROOT
from tests.pipeline.harness import PipelineHarness


@pytest.mark.slow
def test_the_code_of_the_formats_runs_as_it_stands(
    spark: SparkSession, harness: PipelineHarness, tmp_path: Path
) -> None:
    register(spark)
    for queue in ("air.raw", "air.clean", "mail"):
        harness.queue(queue)
    harness.fill("air.raw", 5)
    spark.range(3).withColumnRenamed("id", "letter_id").write.parquet(f"{tmp_path}/letters")
    where = harness.connection.options()
    tasks = spark.read.format("headrace").options(**where).option("queue", "air.raw").load()
    names = {"spark": spark, "f": f, "where": where, "tasks": tasks}

    for page in ("station-frames", "spark-headrace", "spark-enqueue", "spark-table"):
        text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
        (code,) = (block for language, block in FENCE.findall(text) if language == "python")
        code = code.replace('"letters"', f'"{tmp_path}/letters"')
        exec(code.replace(".format(", ".options(**where).format("), names)  # noqa: S102 (the page's)

    assert len(harness.tasks("air.clean")) == 5
    assert len(harness.tasks("mail")) == 3
