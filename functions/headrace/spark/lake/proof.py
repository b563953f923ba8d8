"""The proof: every task's history, change by change, against the lifecycle table.

It uses only the changes.  Each finding names the task and its version.  In a history without
findings every move was legal, no version is missing, no task had two leases at a time, and no task
was forgotten.  With the table beside the changes it also finds lost tasks: they never ended, and
the table does not have them.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from headrace.domain.task import State
from headrace.domain.times import instant_of
from headrace.history.proof import (
    LATEST,
    REMEMBERED,
    REPORTS,
    Finding,
    ProofReport,
    conditions,
)
from headrace.spark.lake import snapshots
from headrace.spark.lake.frames import LakeFrames
from headrace.spark.lake.rollup import RollupState, rollup
from headrace.spark.lake.schemas import CHANGES
from headrace.spark.lake.tables import filled_in
from headrace.spark.sources import TABLE, register

EXAMPLES: Final = 20
REAPED_WITHIN: Final = "10 MINUTES"
"""A lapsed lease is reclaimed within a minute; ten are surely too late."""
SWEPT_WITHIN: Final = "3 HOURS"
"""What has expired is looked for in full once an hour."""

LOST: Final = "lost"
CLOCKS_APART: Final = timedelta(minutes=1)
"""By which the service's clock and that of the job may differ."""

_LIFE: Final = ("task_id", "created_at")


def proof(
    lake: LakeFrames,
    *,
    since: date | None = None,
    live: DataFrame | None = None,
    live_at: datetime | None = None,
    now: datetime | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ProofReport:
    """Prove the changes *since* a day, or all; write the report to ``reports/proof/`` of the lake.

    The tasks that were open when that day began are known from the rollup, so that their next
    change must follow from how they stood then, however long ago that was made.
    *now* is put on the report.
    *live* are the tasks that the table held at *live_at* (``task_id``, ``created_at``): with it
    lost tasks are found, that were never ended and yet are not there.  The changes must reach
    beyond that moment, or what ended shortly before it seems lost.
    """
    made: dict[str, Any] = {"made_at": now, "since": since, "live": live is not None}
    changes = lake.read(CHANGES, since)
    before = None
    if since is not None:
        before = snapshots.open_at(lake, RollupState.of(lake).snapshots, since)
    say("looking at " + (f"changes since {since}" if since else "all changes"))
    recorded = f.unix_micros("recorded_at")
    size = changes.agg(
        f.coalesce(f.min(f.when(~filled_in(), recorded)), f.min(recorded)).alias("first"),
        f.max(recorded).alias("last"),
        f.count(f.lit(1)).alias("changes"),
        f.approx_count_distinct(f.struct(*_LIFE)).alias("tasks"),
    ).first()
    if size is None or size["first"] is None:
        return _written(lake, ProofReport(None, None, 0, 0, **made))
    first, last = instant_of(size["first"]), instant_of(size["last"])
    say(f"replaying {size['changes']:,} changes")
    found = violations(
        changes, first=first, last=last, live=live, live_at=live_at, before=before
    ).cache()
    try:
        counts = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
        numbered = found.withColumn(
            "_n", f.row_number().over(Window.partitionBy("kind").orderBy("at", "task_id"))
        )
        some = numbered.where(f.col("_n") <= EXAMPLES).drop("_n").collect() if counts else []
    finally:
        found.unpersist()
    examples: dict[str, list[Finding]] = {}
    for row in some:
        kind, *columns = row
        values: list[Any] = ["" if column is None else column for column in columns]
        examples.setdefault(kind, []).append(Finding(*values))
    tasks = changes.select(*_LIFE).distinct().count()
    kinds = dict(sorted(counts.items()))
    report = ProofReport(first, last, tasks, size["changes"], kinds, examples, **made)
    return _written(lake, report)


def last_days(lake: LakeFrames) -> date | None:
    """Return the day from which a nightly proof looks: the one before the last that was recorded.

    None for a lake without changes.
    """
    last = max((file.day for file in lake.log.files(CHANGES)), default=None)
    return None if last is None else last - timedelta(days=1)


def live_tasks(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the lives of all tasks in the table; *options* are those of ``headrace.table``."""
    register(spark)
    reader = spark.read.format(TABLE).schema("id string, created_at timestamp")
    tasks = reader.options(**options, consistent="true").load()
    return tasks.select(f.col("id").alias("task_id"), "created_at")


def proof_with_table(
    lake: LakeFrames,
    options: Mapping[str, str],
    *,
    settle_seconds: float,
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
    since: date | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ProofReport:
    """Prove the changes *since* a day, and look for every task that they leave unended.

    The table is read first and the lake brought up after it, so that what ended in between is
    known.  Should a task still seem lost, what is under way to the lake gets *settle_seconds* to
    arrive, and it is looked at once more.
    """
    say("reading the table")
    at = now()
    live = live_tasks(lake.spark, options).cache()
    try:
        say(f"{live.count():,} tasks in the table")

        def looked() -> ProofReport:
            rollup(lake, today=now().date(), say=say)
            return proof(lake, since=since, live=live, live_at=at, now=now(), say=say)

        report = looked()
        if LOST in report.violations and settle_seconds > 0:
            say(f"{report.violations[LOST]:,} seem lost: looking again in {settle_seconds:g} s")
            sleep(settle_seconds)
            report = looked()
    finally:
        live.unpersist()
    return report


def violations(
    changes: DataFrame,
    *,
    first: datetime,
    last: datetime,
    live: DataFrame | None = None,
    live_at: datetime | None = None,
    before: DataFrame | None = None,
) -> DataFrame:
    """Violations in *changes*, recorded from *first* to *last*.

    *before* are the tasks that were open before the first of them.

    These have a time zone: without one, an hour that a clock shows twice would be ambiguous.
    There is one row for each finding: its kind, the task, its version, and the details.
    Changes filled in from an export are no violations.
    """
    in_order = Window.partitionBy(*_LIFE).orderBy("version", "recorded_at", "sequence")
    told = changes.withColumn("told", f.expr("true"))
    if before is not None:
        told = told.unionByName(before, allowMissingColumns=True)
    accused = f.col("told").isNotNull() & ~filled_in()
    chained = told.select(
        "*",
        *(f.lag(name).over(in_order).alias(f"before_{name}") for name in REMEMBERED),
        f.coalesce(f.lag(filled_in()).over(in_order), f.expr("false")).alias("before_filled"),
        f.lead("version").over(in_order).isNull().alias("latest"),
        (f.col("created_at") > f.lit(first + CLOCKS_APART)).alias("born_here"),
    )
    kinds = {name: check & accused for name, check in checks().items()}
    kinds["missing_version"] &= ~f.col("before_filled")
    kinds["overdue"] = _overdue(last)
    held = [f.when(f.coalesce(one, f.expr("false")), f.lit(kind)) for kind, one in kinds.items()]
    kind = f.explode(f.array_compact(f.array(*held)))
    found = _findings(chained, kind, f.coalesce("queue_to", "queue_from"), _seen())
    found = found.unionByName(_reused(changes))
    return found if live is None else found.unionByName(_lost(chained, live, live_at))


def checks() -> dict[str, Column]:
    """Return for each kind of violation when a change is one."""
    return {kind: f.expr(text) for kind, text in conditions(second="INTERVAL 1 SECOND").items()}


def _overdue(last: datetime) -> Column:
    """Find tasks that wait or are held though the service should have ended that by *last*."""
    until = f.lit(last)
    alone = (f.col("state_to") == str(State.INFLIGHT)) & f.col("lease_group").isNull()
    lapsed = alone & (f.col("lease_end_to") + f.expr(f"INTERVAL {REAPED_WITHIN}") < until)
    expired = (f.col("state_to") == str(State.ENQUEUED)) & (
        f.col("expires_at") + f.expr(f"INTERVAL {SWEPT_WITHIN}") < until
    )
    return f.col("latest") & (lapsed | expired)


def _reused(changes: DataFrame) -> DataFrame:
    """Find leases that were granted twice."""
    granted = changes.where("move = 'dequeue' AND lease_to IS NOT NULL").where(~filled_in())
    deliveries = f.count_distinct("task_id", "created_at", "version")
    twice = granted.groupBy("lease_to").agg(deliveries.alias("_n")).where("_n > 1").drop("_n")
    reused = granted.join(twice, "lease_to", "left_semi")
    lease = f.concat(f.lit("lease "), "lease_to")
    return _findings(reused, f.lit("reused_lease"), f.col("queue_to"), lease)


def _lost(chained: DataFrame, live: DataFrame, live_at: datetime | None) -> DataFrame:
    """Find tasks that were never ended and that the table did not hold."""
    unended = chained.where("latest AND state_to IN ('ENQUEUED', 'INFLIGHT')").where(~filled_in())
    if live_at is not None:  # what came since cannot have been there
        unended = unended.where(f.col("created_at") < f.lit(live_at - CLOCKS_APART))
    missing = unended.join(live.select(*_LIFE), list(_LIFE), "left_anti")
    detail = f.lit("not in the table, and never ended")
    return _findings(missing, f.lit(LOST), f.col("queue_to"), detail)


def _findings(changes: DataFrame, kind: Column, queue: Column, detail: Column) -> DataFrame:
    """Give each of *changes* as a finding."""
    named = (queue.alias("queue"), "move", "at", detail.alias("detail"))
    return changes.select(kind.alias("kind"), *_LIFE, "version", *named)


def _seen() -> Column:
    def side(which: str) -> Column:
        where = f.concat_ws("/", f"queue_{which}", f"state_{which}")
        return f.when(where == "", "nowhere").otherwise(where)

    before = f.concat_ws("/", "before_queue_to", "before_state_to", "before_version")
    words = (f.lit("from"), side("from"), f.lit("to"), side("to"), f.lit("after"), before)
    return f.concat_ws(" ", *words)


def _written(lake: LakeFrames, report: ProofReport) -> ProofReport:
    text = report.text().encode()
    when = report.made_at or report.last
    if when is not None:
        name = f"{when.astimezone(UTC):%Y-%m-%dT%H-%M-%S}"
        lake.files.put(f"{REPORTS}/{name}.json", text)
    lake.files.put(LATEST, text)
    return report
