"""What a transform gives back: which columns it must have, and what its plan is made of."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.spark.sources.leasing import SCHEMA
from headrace.spark.sources.rows import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.station.jobs import Transform

_NESTED: Final = ("struct", "map", "array", "variant")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a transform does with rows, as its plan tells.

    ``regroups``: rows of several tasks come together (an aggregate, a join, a sort), so a part of
    the job that is run again must see the very same rows.  ``scatters``: the rows of one task may
    come to stand apart.
    """

    regroups: bool
    scatters: bool


def shape_of(spark: "SparkSession", transform: "Transform") -> Shape:
    """Return the shape of *transform*, tried on no rows.

    Raises InvalidRequest when what it gives back is no settling frame; what it raises itself comes
    out as it is.
    """
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), SCHEMA)
    made = settling(transform(nothing))
    plan = made._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 (no other way)
    exchanges = [
        line for line in plan.splitlines() if "Exchange" in line and "BroadcastEx" not in line
    ]
    regroups = any("REPARTITION" not in line for line in exchanges)
    return Shape(regroups, regroups or bool(exchanges) or "Union" in plan)


def settling(frame: "DataFrame") -> "DataFrame":
    """Return the columns of *frame* that settle tasks, in their types; a nested payload as JSON.

    Raises InvalidRequest naming a column that is missing or of no use.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 (needs PySpark)

    types = dict(frame.dtypes)
    wrong = [
        FieldError(name, "is missing: a transform keeps the columns id and lease")
        for name in ("id", "lease")
        if name not in types
    ]
    kept = []
    for name, wanted in COLUMNS.items():
        if name not in types:
            continue
        nested = types[name].startswith(_NESTED)
        if name == "payload" and nested:
            kept.append(f.to_json(name).alias(name))
        elif nested or (wanted == "string" and types[name] not in ("string", "void")):
            wrong.append(FieldError(name, f"must be a {wanted}, not {types[name]}"))
        else:
            kept.append(f.col(name).cast(wanted).alias(name))
    if wrong:
        told = "; ".join(f"column {one.field} {one.message}" for one in wrong)
        raise InvalidRequest(f"the transform: {told}", errors=wrong)
    return frame.select(*kept)
