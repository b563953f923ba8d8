"""The transform of a station: the columns it must return, and whether it divides tasks."""

import re
from collections.abc import Callable, Sequence
from traceback import extract_tb
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.domain.errors import FieldError, HeadraceError, InvalidRequest
from headrace.spark.sources.leasing import SCHEMA
from headrace.spark.sources.options import refused
from headrace.spark.sources.rows import COLUMNS, QUEUE_COLUMN, column_names

Transform = Callable[[DataFrame], DataFrame]

_NESTED: Final = ("struct", "map", "array", "variant")


def may_divide_tasks(spark: SparkSession, transform: Transform, *, several: bool = False) -> bool:
    """Whether *transform* may put the rows of one task into different partitions.

    It is tried on no rows, of *several* queues or of one; a shuffle, a union or a second look at
    its tasks in its plan may do so.
    Raises InvalidRequest when what it returns is no settling frame, or with what it raises and
    where; what Spark raises comes out as it is.
    """
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), SCHEMA)
    made = settling_frame(_tried(transform, nothing), several=several)
    plan = made._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 (no other way)
    lines = plan.splitlines()
    shuffles = any("Exchange" in line and "BroadcastEx" not in line for line in lines)
    looks = sum(_is_given(line) for line in lines)
    return shuffles or looks > 1 or "Union" in plan or _is_broadcast(lines)


def _tried(transform: Transform, nothing: DataFrame) -> DataFrame:
    try:
        made: object = transform(nothing)
    except (PySparkException, HeadraceError):
        raise
    except Exception as error:
        message = f"the transform: {type(error).__name__}: {error}{_place(error)}"
        raise InvalidRequest(message) from error
    if not isinstance(made, DataFrame):
        message = f"the transform: must return a DataFrame, not {kind_of(made)}"
        raise InvalidRequest(message)
    return made


def kind_of(value: object) -> str:
    """The type of *value* with its module: there is more than one DataFrame."""
    kind = type(value)
    own = kind.__module__ == "builtins"
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


def _place(error: Exception) -> str:
    """The line of the transform's own module that *error* came from."""
    frames = extract_tb(error.__traceback__)[1:]  # the first one is ours
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _is_given(line: str) -> bool:
    """Whether this node of a plan reads what the transform is given."""
    columns = re.findall(r"(\w+)#", line.partition("ExistingRDD[")[2])
    return columns == [part.split()[0] for part in SCHEMA.split(", ")]


def _is_broadcast(lines: Sequence[str]) -> bool:
    """Whether a join broadcasts the tasks that the transform is given."""
    above: int | None = None  # the depth of the broadcast whose branch this is
    for line in lines:
        depth = len(line) - len(line.lstrip(" :+-"))
        if above is None or depth <= above:
            above = depth if "BroadcastExchange" in line else None
        elif _is_given(line):
            return True
    return False


def settling_frame(frame: DataFrame, *, several: bool = False) -> DataFrame:
    """Return the columns of *frame* that settle tasks, in their types; a nested payload as JSON.

    Of *several* queues each row names the queue of its task.  Raises InvalidRequest naming a column
    that is missing or has a wrong type.
    """
    by_name = dict(frame.dtypes)
    names, wrong = column_names(frame.columns)
    needed, columns = ["id", "lease"], dict(COLUMNS)
    if several:
        needed.append(QUEUE_COLUMN)
        columns[QUEUE_COLUMN] = "string"
        names |= {name.lower(): name for name in by_name if name.lower() == QUEUE_COLUMN}
    types = {column: by_name[name] for column, name in names.items()}
    wrong += [
        FieldError(name, f"is missing: a transform keeps the columns {', '.join(needed)}")
        for name in needed
        if name not in types
    ]
    kept = []
    for name, wanted in columns.items():
        if name not in types:
            continue
        nested, column = types[name].startswith(_NESTED), f.col(f"`{names[name]}`")
        if name == "payload" and nested:
            kept.append(f.to_json(column).alias(name))
        elif nested or (wanted == "string" and types[name] not in ("string", "void")):
            wrong.append(FieldError(name, f"must be a {wanted}, not {types[name]}"))
        else:
            kept.append(column.cast(wanted).alias(name))
    if wrong:
        raise refused([], of="the transform", columns=wrong)
    return frame.select(*kept)
