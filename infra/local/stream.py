"""The engine's stream, seen from inside its database: the one module that opens that file.

dynoxide (1.2.1) gives every write of a table the highest sequence number of the table's stream
plus one, and looks for it without an index, so each write is slower than the one before; and it
never trims the stream. Here it gets the index, and what is older than an hour is deleted.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from infra.local.errors import EngineFailed

# Readers of the stream are never further behind than this.
KEPT_SECONDS: Final = 3600
_STEP_RECORDS: Final = 500
# Between two steps the engine gets its turn to write.
_PAUSE_SECONDS: Final = 0.02
_BUSY_SECONDS: Final = 5.0
_INDEX: Final = """
    CREATE INDEX IF NOT EXISTS headrace_stream_sequence
    ON _stream_records (table_name, CAST(sequence_number AS INTEGER))
"""
_TABLES: Final = "SELECT table_name FROM _tables"
_NEWEST: Final = """
    SELECT MAX(CAST(sequence_number AS INTEGER)) FROM _stream_records WHERE table_name = :table
"""
# The oldest records of a table by its index, and of those the ones past their time: a step costs
# the same whether or not there is anything to delete.
_TRIM: Final = """
    DELETE FROM _stream_records WHERE id IN (
        SELECT id FROM (
            SELECT id, created_at FROM _stream_records
            WHERE table_name = :table AND CAST(sequence_number AS INTEGER) < :newest
            ORDER BY CAST(sequence_number AS INTEGER) LIMIT :step
        ) WHERE created_at < :before
    )
"""


def add_index(database: Path) -> None:
    """Give the stream of a running engine its index; does nothing when it is there.

    Raises:
        EngineFailed: this engine keeps its stream in another way than the version pinned in
            package.json.

    """
    with _opened(database) as connection:
        connection.execute(_INDEX)


def trim(
    database: Path,
    *,
    now: float | None = None,
    kept_seconds: int = KEPT_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Delete the records older than `kept_seconds` at `now` (epoch seconds); return how many.

    The newest record of every table stays, because the engine counts the next number from it.
    It goes in small steps, and no further once `stopping` says so.

    Raises:
        EngineFailed: as in `add_index`.

    """
    before = (time.time() if now is None else now) - kept_seconds
    deleted = 0
    with _opened(database) as connection:
        for (table,) in connection.execute(_TABLES).fetchall():
            (newest,) = connection.execute(_NEWEST, {"table": table}).fetchone()
            values = {"table": table, "newest": newest, "before": before, "step": _STEP_RECORDS}
            while not stopping() and (count := connection.execute(_TRIM, values).rowcount) > 0:
                deleted += count
                time.sleep(_PAUSE_SECONDS)
    return deleted


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    """Open the file beside the engine; every statement is a transaction of its own."""
    if not database.is_file():
        # sqlite3 would make an empty one.
        raise EngineFailed(f"The engine's database is not at {database}.")
    connection = sqlite3.connect(database, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        yield connection
    except sqlite3.Error as error:
        raise EngineFailed(
            f"The engine's stream is not as dynoxide 1.2.1 keeps it ({error}):"
            " run `npm ci` to get the version that package.json names."
        ) from error
    finally:
        connection.close()
