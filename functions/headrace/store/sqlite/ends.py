"""Who waits for the end of a task is woken by the commit that ends it, in whatever process.

Of this process's commits the store tells.  Of others' ``PRAGMA data_version`` does, which one
thread asks for all who wait, as long as anybody does.
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
"""How often others' commits are asked after while somebody waits; it takes some microseconds."""

_AWAY_SECONDS: Final = 0.25
"""How long to pause before the next try while the store cannot be read."""

_RESTS: Final = 4  # times as long as asking took, where many wait: a fifth of a processor at most
_AT_A_TIME: Final = 500  # parameters of one statement


class TaskEnds:
    """Those who wait, by the id of their task."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._fresh()
        db.on_fork.append(self._fresh)

    def _fresh(self) -> None:
        self._lock = Lock()
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._asking = False

    @contextmanager
    def told(self, task_id: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call *wake* once the task has ended, in this block."""
        with self._lock:
            self._wakes.setdefault(task_id, []).append(wake)
        try:
            self._begin_to_ask()
            yield
        finally:
            with self._lock:
                others = [one for one in self._wakes.pop(task_id, ()) if one is not wake]
                if others:
                    self._wakes[task_id] = others

    def ended(self, task_ids: Iterable[str]) -> None:
        """Wake those who wait for the end of any of these."""
        if not self._wakes:
            return
        with self._lock:
            wakes = [wake for task_id in task_ids for wake in self._wakes.get(task_id, ())]
        for wake in wakes:
            wake()

    def _begin_to_ask(self) -> None:
        """Start the thread that asks after others' commits, unless it runs."""
        with self._lock:
            if self._asking or not self._db.shared:
                return
            self._asking = True
        try:
            Thread(target=self._ask, name="ends", daemon=True).start()
        except RuntimeError as error:
            self._asking = False
            raise Unavailable(f"{self._db.name}: {error}") from error

    def _waited_for(self) -> list[str]:
        """Return the ids of the tasks waited for; where there are none, nobody asks any more."""
        with self._lock:
            self._asking = bool(self._wakes)
            return list(self._wakes)

    def _ask(self) -> None:
        """Look at the tasks after each commit of others, until nobody waits."""
        seen: tuple[sqlite3.Connection, int] | None = None
        while True:
            begun = time.monotonic()
            try:
                with self._db.reading() as db:
                    # First: whoever comes behind it looks for himself, and what ends behind that
                    # is another version.  Each connection counts these in its own way.
                    (version,) = db.execute("PRAGMA data_version").fetchone()
                    waited_for = self._waited_for()
                    changed = seen is None or seen[0] is not db or seen[1] != version
                    over = _over(db, waited_for) if changed else []
            except Unavailable:  # wake every waiter: its own look answers with the error
                seen, waited_for = None, self._waited_for()
                self.ended(waited_for)
                if not waited_for:
                    return
                time.sleep(_AWAY_SECONDS)
                continue
            if not waited_for:
                return
            seen = (db, version)
            self.ended(over)
            time.sleep(max(_ASK_SECONDS, _RESTS * (time.monotonic() - begun)))


def _over(db: sqlite3.Connection, task_ids: Collection[str]) -> list[str]:
    """Return those of the tasks that have ended, or are gone."""
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
