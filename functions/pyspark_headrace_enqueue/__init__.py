"""Where Spark finds the format ``headrace.enqueue`` by itself: by this module's name.

What raises here would keep Spark from the formats of other packages too.
"""

from contextlib import suppress

with suppress(ImportError):
    from headrace.spark.sources.enqueue import EnqueueSource as DefaultSource

__all__ = ["DefaultSource"]
