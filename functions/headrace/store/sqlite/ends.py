"""Notifications of the end of a task, from commits of any process.

The store notifies of the commits of this process.  For commits of other processes, one thread polls
``PRAGMA data_version`` while there are waiting callers.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Final

from headrace.domain.errors import Unavailable
from headrace.domain.task import LIVE
from headrace.store.sqlite.database import Database

_ASK_SECONDS: Final = 0.002
"""The pause between two polls for commits of others; a poll takes some microseconds."""

_AWAY_SECONDS: Final = 0.25
"""The pause before the next try while the store cannot be read."""

_PAUSE_FACTOR: Final = 4  # of the duration of a poll, so that polls take at most a fifth of a CPU
_AT_A_TIME: Final = 500  # parameters of one statement


class TaskEnds:
    """The waiting callers, by the id of their task."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._fresh()
        db.on_fork.append(self._fresh)

    def _fresh(self) -> None:
        self._lock = Lock()
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._polling = False

    @contextmanager
    def notify_on_end(self, task_id: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call *wake* once the task has ended, in this block."""
        with self._lock:
            self._wakes.setdefault(task_id, []).append(wake)
        try:
            self._start_polling()
            yield
        finally:
            with self._lock:
                others = [one for one in self._wakes.pop(task_id, ()) if one is not wake]
                if others:
                    self._wakes[task_id] = others

    def ended(self, task_ids: Iterable[str]) -> None:
        """Wake the callers that wait for the end of any of these tasks."""
        if not self._wakes:
            return
        with self._lock:
            wakes = [wake for task_id in task_ids for wake in self._wakes.get(task_id, ())]
        for wake in wakes:
            wake()

    def _start_polling(self) -> None:
        """Start the thread that polls for commits of others, unless it runs."""
        with self._lock:
            if self._polling or not self._db.shared:
                return
            self._polling = True
        try:
            Thread(target=self._poll, name="ends", daemon=True).start()
        except RuntimeError as error:
            self._polling = False
            raise Unavailable(f"{self._db.name}: {error}") from error

    def _waiting_ids(self) -> list[str]:
        """Return the ids of tasks with waiting callers; without any, stop polling."""
        with self._lock:
            self._polling = bool(self._wakes)
            return list(self._wakes)

    def _poll(self) -> None:
        """Check the tasks after each commit of others, until no caller waits."""
        seen: tuple[sqlite3.Connection, int] | None = None
        while True:
            begun = time.monotonic()
            try:
                with self._db.reading() as db:
                    # Before the rest: a later caller reads its task itself, and a task that
                    # ends later changes the version.  Each connection counts versions separately.
                    (version,) = db.execute("PRAGMA data_version").fetchone()
                    waiting = self._waiting_ids()
                    changed = seen is None or seen[0] is not db or seen[1] != version
                    over = _over(db, waiting) if changed else []
            except Unavailable:  # wake every caller: its own read raises the error
                seen, waiting = None, self._waiting_ids()
                self.ended(waiting)
                if not waiting:
                    return
                time.sleep(_AWAY_SECONDS)
                continue
            if not waiting:
                return
            seen = (db, version)
            self.ended(over)
            time.sleep(max(_ASK_SECONDS, _PAUSE_FACTOR * (time.monotonic() - begun)))


def _over(db: sqlite3.Connection, task_ids: Collection[str]) -> list[str]:
    """Return the tasks that have ended or were removed."""
    ids, states = list(task_ids), ",".join(f"'{state}'" for state in sorted(LIVE))
    live: set[str] = set()
    for start in range(0, len(ids), _AT_A_TIME):
        some = ids[start : start + _AT_A_TIME]
        marks = ",".join("?" * len(some))
        found = db.execute(
            f"SELECT id FROM tasks WHERE id IN ({marks}) AND state IN ({states})", some
        )
        live.update(task_id for (task_id,) in found)
    return [task_id for task_id in ids if task_id not in live]
