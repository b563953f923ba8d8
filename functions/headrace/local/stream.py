"""The engine's stream, seen from inside its database: the one module that opens that file.

dynoxide (1.2.1) gives every write of a table the highest sequence number of the table's stream
plus one, and looks for it without an index, so each write is slower than the one before; and it
never trims the stream. Here it gets the index, and what is older than an hour is deleted once the
pump has consumed it. It is read here too: through GetRecords a thousand records cost boto3 170 ms
and the engine 50, from the file they cost 20.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from headrace.local import EngineFailed

StreamRecord: TypeAlias = dict[str, Any]

# People may look at the stream for so long; the pump's part is kept until it was consumed.
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
# What nobody counts may be large, and is left out of large images before Python sees them; the
# lake is told its size (headrace.store.stream.SIZES).
_SMALL_IMAGE: Final = 8192
_LEFT_OUT: Final = "'$.payload', '$.result', '$.progress'"
_SIZES: Final = ", ".join(
    f"'{name}', length(CAST(json_extract({{0}}, '$.{name}.S') AS BLOB))"
    for name in ("payload", "result")
)
_IMAGE: Final = (
    f"CASE WHEN length({{0}}) > {_SMALL_IMAGE}"
    f" THEN json_set(json_remove({{0}}, {_LEFT_OUT}), '$._sizes', json_object({_SIZES}))"
    " ELSE {0} END"
)
# One row of JSON for the whole batch: with a row for each record this thread would ask for the
# interpreter's lock a thousand times, and wait each time while the service is busy.
_READ: Final = """
    WITH taken AS (
        SELECT CAST(sequence_number AS INTEGER) AS sequence, event_name, keys_json,
            {new} AS new, {old} AS old,
            created_at, user_identity
        FROM _stream_records
        WHERE table_name = :table AND CAST(sequence_number AS INTEGER) > :position
        ORDER BY CAST(sequence_number AS INTEGER) LIMIT :limit
    ), sized AS (
        SELECT *, SUM(COALESCE(length(new), 0) + COALESCE(length(old), 0))
            OVER (ORDER BY sequence ROWS UNBOUNDED PRECEDING) AS size,
            ROW_NUMBER() OVER (ORDER BY sequence) AS number
        FROM taken
    )
    SELECT (SELECT COUNT(*) FROM taken), group_concat(
        '[' || sequence || ',"' || event_name || '",' || keys_json || ','
        || COALESCE(new, 'null') || ',' || COALESCE(old, 'null') || ',' || created_at || ','
        || COALESCE(user_identity, 'null') || ']'
    )
    FROM sized WHERE size <= :bytes OR number = 1
"""
_READ_LEAN: Final = _READ.format(new=_IMAGE.format("new_image"), old=_IMAGE.format("old_image"))
_READ_WHOLE: Final = _READ.format(new="new_image", old="old_image")
_SHARD: Final = "SELECT shard_id FROM _stream_records WHERE table_name = :table LIMIT 1"
_BATCH_BYTES: Final = 4 * 1024 * 1024  # of images; Lambda's own limit is 6 MB
_NO_READER: Final[Mapping[str, int]] = MappingProxyType({})


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
    consumed: Mapping[str, int] = _NO_READER,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Delete the records older than `kept_seconds` at `now` (epoch seconds); return how many.

    The newest record of every table stays, because the engine counts the next number from it.
    So does what comes behind the sequence number that `consumed` has for a table.
    It goes in small steps, and no further once `stopping` says so.

    Raises:
        EngineFailed: as in `add_index`.

    """
    before = (time.time() if now is None else now) - kept_seconds
    deleted = 0
    with _opened(database) as connection:
        for (table,) in connection.execute(_TABLES).fetchall():
            (newest,) = connection.execute(_NEWEST, {"table": table}).fetchone()
            if newest is not None and table in consumed:
                newest = min(newest, consumed[table] + 1)
            values = {"table": table, "newest": newest, "before": before, "step": _STEP_RECORDS}
            while not stopping() and (count := connection.execute(_TRIM, values).rowcount) > 0:
                deleted += count
                time.sleep(_PAUSE_SECONDS)
    return deleted


class Reader:
    """Reads the stream of one table, in the form in which Lambda hands it on.

    It keeps the file open, and belongs to the thread that made it. May be used as a context
    manager, which closes it.

    Raises:
        EngineFailed: as in `add_index`, from every method.

    """

    def __init__(self, database: Path, table: str, *, whole: bool = False) -> None:
        """Open the file; *whole* reads images with what nobody counts."""
        self._table = table
        self._read = _READ_WHOLE if whole else _READ_LEAN
        self._running = contextlib.ExitStack()
        self._connection = self._running.enter_context(_opened(database, mode="ro"))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._running.close()

    def shard(self) -> str | None:
        """Tell the stream's one shard; None while nothing was written to the table."""
        with _translated():
            row = self._connection.execute(_SHARD, {"table": self._table}).fetchone()
        return None if row is None else row[0]

    def after(
        self, position: int, limit: int, *, most_bytes: int = _BATCH_BYTES
    ) -> tuple[list[StreamRecord], bool]:
        """Read the records behind the sequence number `position`, in order.

        They are up to `limit`, and of the images up to `most_bytes`, but at least one. Also tells
        whether there may be more behind them.
        """
        values = {
            "table": self._table,
            "position": position,
            "limit": limit,
            "bytes": most_bytes,
        }
        with _translated():
            taken, text = self._connection.execute(self._read, values).fetchone()
        rows = sorted(json.loads(f"[{text or ''}]"), key=itemgetter(0))
        records = [_lambda_record(*row) for row in rows]
        return records, taken == limit or taken > len(records)


def _lambda_record(
    sequence: int,
    event: str,
    keys: StreamRecord,
    new: StreamRecord | None,
    old: StreamRecord | None,
    created_at: int,
    identity: StreamRecord | None,
) -> StreamRecord:
    change: dict[str, Any] = {
        "ApproximateCreationDateTime": created_at,
        "Keys": keys,
        "SequenceNumber": str(sequence),
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    if new is not None:
        change["NewImage"] = new
    if old is not None:
        change["OldImage"] = old
    record = {
        "eventID": str(sequence),
        "eventName": event,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "dynamodb": change,
    }
    if identity is not None:
        record["userIdentity"] = identity
    return record


@contextlib.contextmanager
def _opened(database: Path, *, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """Open the file beside the engine; every statement is a transaction of its own."""
    if not database.is_file():
        raise EngineFailed(f"The engine's database is not at {database}.")
    with _translated():
        connection = sqlite3.connect(
            f"{database.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
        )
    try:
        with _translated():
            yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise EngineFailed(
            f"The engine's stream is not as dynoxide 1.2.1 keeps it ({error}):"
            " run `npm ci` to get the version that package.json names."
        ) from error
