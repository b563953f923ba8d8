"""The end of the line: rows in an SQLite file that several processes write to.

A row's key is the task that brought it and its number in there. A task that comes again, because
a worker died between writing and reporting, therefore writes nothing twice.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from examples.ngsi.ngsi import Row

WAIT_SECONDS = 20.0
"""How long a writer waits for the others before it gives up."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entity_rows (
    task_id TEXT NOT NULL,
    row_number INTEGER NOT NULL,
    entity_type TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    time_index TEXT NOT NULL,
    service TEXT NOT NULL,
    service_path TEXT NOT NULL,
    attributes TEXT NOT NULL,
    PRIMARY KEY (task_id, row_number)
) WITHOUT ROWID
"""
_INSERT = "INSERT OR IGNORE INTO entity_rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = """
SELECT task_id, entity_id, entity_type, time_index, service, service_path, attributes
FROM entity_rows ORDER BY task_id, row_number
"""


@dataclass(frozen=True, slots=True)
class Written:
    """What one write did: new rows, and rows that were there already from an earlier try."""

    new: int
    known: int


class RowsFile:
    """One process's connection to the file; for one thread."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create the table when it is new."""
        self._path = path
        # isolation_level None: transactions begin where this module says so, at once for writing.
        self._connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(_SCHEMA)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def write(self, rows_of_task: Mapping[str, Sequence[Row]]) -> Written:
        """Write the rows of several tasks in one transaction: all of them, or none."""
        values = [
            _values(task_id, number, row)
            for task_id, rows in rows_of_task.items()
            for number, row in enumerate(rows)
        ]
        with closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                cursor.executemany(_INSERT, values)
                new = max(cursor.rowcount, 0)
            except sqlite3.Error:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")
        return Written(new, len(values) - new)

    def read(self) -> Iterator[tuple[str, Row]]:
        """Every row with the id of its task, by task and number."""
        for (
            task_id,
            entity_id,
            entity_type,
            time_index,
            service,
            path,
            text,
        ) in self._connection.execute(_SELECT):
            bare = Row(entity_id, entity_type, time_index, service, path, ())
            whole = {**bare.to_json(), "attributes": json.loads(text)}
            yield task_id, Row.from_json(whole)


def _values(task_id: str, number: int, row: Row) -> tuple[str | int, ...]:
    return (
        task_id,
        number,
        row.entity_type,
        row.entity_id,
        row.time_index,
        row.service,
        row.service_path,
        json.dumps(row.to_json()["attributes"]),
    )
