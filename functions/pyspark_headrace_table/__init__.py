"""Where Spark finds the format ``headrace.table`` by itself: by this module's name.

What raises here would keep Spark from the formats of other packages too.
"""

from contextlib import suppress

with suppress(ImportError):
    from headrace.spark.sources.table import TableSource as DefaultSource

__all__ = ["DefaultSource"]
