"""The conditions of the proof as Spark reads them."""

from pyspark.sql import Column
from pyspark.sql import functions as f

from headrace.history.proof import conditions


def checks() -> dict[str, Column]:
    """Return for each kind of violation when a change is one."""
    return {kind: f.expr(text) for kind, text in conditions(second="INTERVAL 1 SECOND").items()}
