"""Telling a stream's own process that Spark has committed a batch, without waiting for the next.

Spark tells a source of a commit only by planning the next batch, which with a long trigger may be
hours later; all that time what the query has dropped would be held, and with ``on_commit`` nothing
settled.  Who listens to queries hears of it at once, but in the driver's process, where no stream
is.  So the listener leaves a mark in a folder of this machine, and the stream's process looks for
it.  Without the one or the other the next batch, or the next start, does it.
"""

import json
import os
import tempfile
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY: Final = 0.5  # seconds
_PRIVATE: Final = 0o700
_OLD: Final = 86_400.0  # seconds
_LISTENING: Final = "_headrace_listens"


def marks() -> Path:
    """Make the folder of marks, which no other user may read; return it."""
    folder = Path(tempfile.gettempdir(), f"headrace-streams-{os.getuid()}")
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        message = f"{folder} belongs to somebody else"
        raise PermissionError(message)
    return folder


def mark(group_id: str) -> None:
    """Note that the batch of a group is committed; a mark says nothing of the group's name."""
    _place(group_id).touch()


def marked(group_id: str) -> bool:
    """Whether the batch of a group is marked."""
    with suppress(OSError):
        return _place(group_id).exists()
    return False


def unmark(group_id: str) -> None:
    """Forget it."""
    with suppress(OSError):
        _place(group_id).unlink(missing_ok=True)


def tidy() -> None:
    """Remove old marks: the batches after them have ended theirs."""
    with suppress(OSError):
        for place in marks().iterdir():
            with suppress(OSError):
                if time.time() - place.stat().st_mtime > _OLD:
                    place.unlink()


def group_of_offset(text: str | None) -> str | None:
    """Return the group of an offset of ours; None for one of another source."""
    try:
        offset: Any = json.loads(text or "")
    except ValueError:
        return None
    known = isinstance(offset, dict) and {"epoch", "group", "shards", "rows"} <= offset.keys()
    return str(offset["group"]) if known else None


def listen(spark: "SparkSession") -> None:
    """Mark what the queries of *spark* commit; once for a session, however often it is called.

    Where Spark takes no listener there are no marks, and the next batch does it.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 (only in a driver)
    from pyspark.sql.streaming.listener import (  # noqa: PLC0415 (only in a driver)
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Commits(StreamingQueryListener):
        """Hears of every batch that a query has committed."""

        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's)
            """Do nothing."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's)
            """Mark the batch that is over."""
            for source in event.progress.sources:
                group_id = group_of_offset(source.endOffset)
                if group_id is not None:
                    with suppress(OSError):
                        mark(group_id)

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's)
            """Do nothing."""

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's)
            """Do nothing."""

    if not getattr(spark, _LISTENING, False):
        with suppress(PySparkException):
            spark.streams.addListener(Commits())
        setattr(spark, _LISTENING, True)


def _place(group_id: str) -> Path:
    return marks() / blake2b(group_id.encode(), digest_size=16).hexdigest()
