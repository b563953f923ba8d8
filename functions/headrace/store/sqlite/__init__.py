"""The embedded store: the protocol on one SQLite file, for any number of threads and processes."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from headrace.store.base import Store
from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.commits import Log
from headrace.store.sqlite.connections import MEMORY
from headrace.store.sqlite.control import Control, Matches
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.ends import TaskEnds
from headrace.store.sqlite.log import LoggedWrites
from headrace.store.sqlite.tasks import TaskTable
from headrace.store.sqlite.upkeep import FileUpkeep

__all__ = ["SqliteStore"]

_UTC_NOW: Final = partial(datetime.now, UTC)


class SqliteStore(TaskTable, Control, Matches, FileUpkeep, LoggedWrites, Store):
    """Implements ``headrace.store.base.Store`` on the file at *path*, which is created if missing.

    Raises Unavailable for a file that cannot be used.
    """

    def __init__(
        self,
        path: str = MEMORY,
        *,
        now: Callable[[], datetime] = _UTC_NOW,
        keeps: Callable[[str], bool] = lambda _queue: False,
    ) -> None:
        """*keeps* returns whether the log of writes contains the payloads of a queue."""
        self._db = Database(path)
        self._log = Log(now, keeps)
        self._arrivals = ArrivalNumbers(self._db)
        self._ends = TaskEnds(self._db)

    @property
    def arrivals(self) -> ArrivalNumbers:
        """The signal that tasks wait in queues."""
        return self._arrivals

    @property
    def task_ends(self) -> TaskEnds:
        """The signal that tasks have ended."""
        return self._ends

    def close(self) -> None:
        """Close the file."""
        self._db.close()
