"""The end of the line: rows in an SQLite file that several processes, and their threads, write to.

A row's key is the task that brought it and its number in there. A task that comes again, because
a worker died between writing and reporting, therefore writes nothing twice.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.ngsi.ngsi import Attribute, Row

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
    """What one write did: new rows, and rows that were there from an earlier attempt."""

    new: int
    known: int


class RowsFile:
    """A process's connection to the file; threads may share it."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create the table when it is new."""
        self._connection = sqlite3.connect(
            path, timeout=WAIT_SECONDS, isolation_level="IMMEDIATE", check_same_thread=False
        )
        self._lock = threading.Lock()  # one transaction at a time: a connection has no more
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(_SCHEMA)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def write(self, task_id: str, rows: Sequence[Row]) -> Written:
        """Write the rows of one task: all of them, or none."""
        values = [_values(task_id, number, row) for number, row in enumerate(rows)]
        with self._lock, self._connection:
            new = max(self._connection.executemany(_INSERT, values).rowcount, 0)
        return Written(new, len(values) - new)

    def read(self) -> Iterator[tuple[str, Row]]:
        """Every row with the id of its task, by task and number."""
        for task_id, *fields, text in self._connection.execute(_SELECT):
            entity_id, entity_type, time_index, service, path = fields
            attributes = {name: Attribute(**each) for name, each in json.loads(text).items()}
            yield task_id, Row(entity_id, entity_type, time_index, service, path, attributes)


def _values(task_id: str, number: int, row: Row) -> tuple[str | int, ...]:
    attributes = {name: asdict(attribute) for name, attribute in row.attributes.items()}
    return (
        task_id,
        number,
        row.entity_type,
        row.entity_id,
        row.time_index,
        row.service,
        row.service_path,
        json.dumps(attributes),
    )
