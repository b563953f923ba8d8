"""The pure part: what a station makes of tasks whose payloads are rows, as frames.

A *reading* is one attribute of one entity at one time.  Rows that came later, twice or in another
order give the same readings: a reading belongs to the day on which it was observed, and of several
with one key the one received last counts.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY: Final = ("entity_type", "day", "service", "service_path", "entity_id", "attribute", "time")
"""No two readings have the same."""

COLUMNS: Final = """
    service string COMMENT 'the tenant: header fiware-service',
    service_path string COMMENT 'where in the tenant: header fiware-servicepath',
    entity_id string COMMENT 'the entity',
    attribute string COMMENT 'the attribute',
    time timestamp COMMENT 'when it was observed, UTC',
    type string COMMENT 'NGSI type of the value',
    number double COMMENT 'the value, if it is a number, in the unit',
    text string COMMENT 'the value as text; of a list or an object its JSON',
    unit string COMMENT 'unit code as it came, such as CEL',
    received_at timestamp COMMENT 'when the service took the notification, UTC',
    task_id string COMMENT 'the task that brought it',
    entity_type string COMMENT 'type of the entity; a folder',
    day date COMMENT 'UTC day of time; a folder'
"""
NAMES: Final = tuple(line.split()[0] for line in COLUMNS.strip().splitlines())

MOST_TYPE_BYTES: Final = 80
"""Of an entity's type: it is part of a folder's name, where a character may become three."""

_ROWS: Final = (
    "array<struct<entity_id string, entity_type string, time_index string, service string,"
    " service_path string,"
    " attributes map<string, struct<type string, unit string, value variant>>>>"
)
_NUMERIC: Final = "^(BIGINT|DECIMAL|DOUBLE)"


def checked(tasks: "DataFrame") -> "DataFrame":
    """Add to *tasks* their ``rows``, and as ``problem`` why they cannot be loaded, else null."""
    size = f.octet_length
    problems = (
        f.when(f.col("rows").isNull(), f.lit("payload must be a list of rows")),
        *(
            _first(_lacks(name), f"{name} must be given")
            for name in ("entity_id", "entity_type", "service", "service_path", "attributes")
        ),
        _first(
            lambda row: ~size(row["entity_type"]).between(1, MOST_TYPE_BYTES),
            f"entity_type must be 1 to {MOST_TYPE_BYTES} bytes",
        ),
        _first(
            lambda row: f.try_to_timestamp(row["time_index"]).isNull(),
            "time_index must be an instant, such as 2026-11-21T08:00:00Z",
        ),
    )
    rows = f.from_json("payload", _ROWS)
    return tasks.withColumn("rows", rows).withColumn("problem", f.coalesce(*problems))


def readings(seen: "DataFrame") -> "DataFrame":
    """Return the readings in the rows of *seen*, which was ``checked``; null values are none."""
    rows = seen.where("problem IS NULL").select(
        f.col("id").alias("task_id"),
        f.col("created_at").alias("received_at"),
        f.explode("rows").alias("row"),
    )
    values = rows.select("*", f.explode("row.attributes").alias("attribute", "reading"))
    text = f.col("reading.value").cast("string")
    numeric = f.schema_of_variant("reading.value").rlike(_NUMERIC)
    number = f.when(numeric, f.try_variant_get("reading.value", "$", "double"))
    return (
        values.select(
            "*",
            "row.*",
            f.to_timestamp("row.time_index").alias("time"),
            f.col("reading.type").alias("type"),
            f.col("reading.unit").alias("unit"),
            number.alias("number"),
            text.alias("text"),
        )
        .where("text IS NOT NULL")
        .withColumn("day", f.to_date("time"))
        .select(*NAMES)
    )


def once(frame: "DataFrame") -> "DataFrame":
    """Return each reading of *frame* once: of those with one key the one received last."""
    others = [name for name in NAMES if name not in KEY]
    last = f.max_by(f.struct(*others), f.struct("received_at", "task_id")).alias("last")
    return frame.groupBy(*KEY).agg(last).select(*KEY, "last.*").select(*NAMES)


def verdicts(seen: "DataFrame") -> "DataFrame":
    """The outcome of the tasks of *seen*, which was ``checked``: done, or dead and why."""
    action = f.when(f.col("problem").isNull(), "succeed").otherwise("fail")
    return seen.select("id", "lease", action.alias("action"), f.col("problem").alias("error"))


def _lacks(name: str) -> "Callable[[Column], Column]":
    return lambda row: row[name].isNull()


def _first(wrong: "Callable[[Column], Column]", field: str) -> "Column":
    """The *field* of the first row that is *wrong*, or null."""
    places = f.transform("rows", lambda row, place: f.when(wrong(row), place))
    first = f.try_element_at(f.filter(places, lambda place: place.isNotNull()), f.lit(1))
    return f.concat(f.lit("payload["), first.cast("string"), f.lit(f"].{field}"))
