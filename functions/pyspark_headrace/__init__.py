"""Where Spark finds the format ``headrace`` by itself: by this module's name.

What raises here would keep Spark from the formats of other packages too.
"""

from contextlib import suppress

with suppress(ImportError):
    from headrace.spark.sources.queue import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
