"""Who is open is known from the latest version, and nobody twice."""

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.spark.lake import standing
from headrace.spark.lake.schemas import CHANGES

BORN = datetime(2026, 11, 21)  # noqa: DTZ001 (as Spark takes instants in a session that is in UTC)


def changes(spark: SparkSession, *told: tuple[str, int, str | None, str | None]) -> DataFrame:
    """Return changes of these tasks: version, queue and state."""
    rows = spark.createDataFrame(
        list(told), "task_id string, version bigint, queue_to string, state_to string"
    )
    given = rows.withColumn("created_at", f.lit(BORN)).withColumn("due_to", f.lit(BORN))
    missing = [one for one in CHANGES.columns if one.name not in given.columns]
    return given.select("*", *(f.lit(None).cast(one.type).alias(one.name) for one in missing))


def test_the_latest_version_says_who_is_open(spark: SparkSession) -> None:
    before = standing.open_after(
        None,
        changes(
            spark,
            ("goes on", 1, "a", "ENQUEUED"),
            ("stays", 1, "a", "ENQUEUED"),
            ("ends", 1, "a", "ENQUEUED"),
            ("two stories", 1, "a", "ENQUEUED"),
            ("two stories", 1, "b", "ENQUEUED"),
        ),
    )
    after = standing.open_after(
        before,
        changes(
            spark,
            ("goes on", 3, "b", "ENQUEUED"),
            ("goes on", 2, "a", "INFLIGHT"),
            ("ends", 2, "a", "SUCCEEDED"),
            ("comes and is removed", 1, "a", "ENQUEUED"),
            ("comes and is removed", 2, None, None),
            ("comes", 1, "c", "INFLIGHT"),
        ),
    )

    found = {row["task_id"]: row for row in after.collect()}
    assert after.columns == [column.split()[0] for column in standing.OPEN.split(", ")]
    assert after.count() == len(found)
    latest = {name: (row["version"], row["queue"], row["state"]) for name, row in found.items()}
    assert latest.pop("two stories")[0] == 1
    assert latest == {
        "goes on": (3, "b", "ENQUEUED"),
        "stays": (1, "a", "ENQUEUED"),
        "comes": (1, "c", "INFLIGHT"),
    }
    assert found["stays"]["ready_at"] == BORN
    assert found["comes"]["ready_at"] is None
