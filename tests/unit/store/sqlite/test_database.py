"""One file under threads and forks: what was acknowledged stays, and every call is answered."""

import ctypes
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from headrace.domain.errors import Unavailable
from headrace.store.base import Record
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.file import Unusable
from tests.forked import in_children
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


class Notes:
    """A store and the number of records that it acknowledged."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(str(path))
        self.acknowledged = 0
        self._lock = threading.Lock()

    def put(self, kind: str = "note") -> None:
        record = Record(kind, os.urandom(8).hex(), {})
        assert self.store.put_record(record, replaces=None)
        with self._lock:
            self.acknowledged += 1

    def count(self, kind: str = "note") -> int:
        found, more = self.store.records(kind, limit=100_000)
        assert not more
        return len(found)


@pytest.fixture
def notes(path: Path) -> Iterator[Notes]:
    notes = Notes(path)
    yield notes
    notes.store.close()


def started(work: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_only_the_owner_may_read_the_file_and_the_files_beside_it(notes: Notes, path: Path) -> None:
    notes.put()

    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    assert modes == dict.fromkeys(("headrace.db", "headrace.db-wal", "headrace.db-shm"), 0o600)


@pytest.mark.parametrize("name", ["a?mode=memory#b.db", "100%25.db", "file:x.db", "ein ä.db"])
def test_no_character_of_a_path_has_a_meaning(tmp_path: Path, name: str) -> None:
    SqliteStore(str(tmp_path / name)).close()

    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_call_that_fails_undoes_no_write_of_another_call(path: Path) -> None:
    """The calls are gathered behind one that holds up the thread that writes."""
    db, go = Database(str(path)), threading.Event()
    db.write(lambda db: db.execute("CREATE TABLE notes (n)"))

    def insert(number: int, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES (?)", (number,))
        if number == 5:
            raise LookupError

    with ThreadPoolExecutor(20) as pool:
        held = pool.submit(db.write, lambda _: go.wait(10))
        writes = [pool.submit(db.write, partial(insert, number)) for number in range(10)]
        until(lambda: all(write.running() for write in writes))
        go.set()

    assert held.result()
    assert [number for number, write in enumerate(writes) if write.exception()] == [5]
    with db.reading() as reader:
        found = [number for (number,) in reader.execute("SELECT n FROM notes ORDER BY n")]
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    db.close()


def test_a_thread_that_is_interrupted_anywhere_does_not_hold_up_the_others(notes: Notes) -> None:
    """As the worker ends a job that takes too long."""

    def work() -> None:
        try:
            while True:
                notes.put("busy")
                notes.store.records("busy", limit=5)
        except TimeoutError:
            pass

    for _ in range(30):
        before = notes.acknowledged
        threads = started(work)
        until(lambda: notes.acknowledged > before, every=0.001)  # noqa: B023  called at once
        for thread in threads:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeoutError)
            )
        joined(threads)

    notes.put()
    assert notes.count() == 1


def test_while_the_file_is_closed_every_caller_is_answered(path: Path) -> None:
    for _ in range(20):
        notes = Notes(path)
        before, refused = notes.count(), list[int]()

        def work(notes: Notes = notes, refused: list[int] = refused) -> None:
            try:
                while True:
                    notes.put()
            except Unavailable:
                refused.append(1)

        threads = started(work)
        until(lambda: notes.acknowledged > 5, every=0.001)  # noqa: B023  called at once
        notes.store.close()
        joined(threads)
        assert len(refused) == 4
        after = Notes(path)
        assert after.count() == before + notes.acknowledged
        after.store.close()


def test_a_file_that_is_removed_while_it_is_open_takes_no_more_writes(
    notes: Notes, path: Path
) -> None:
    notes.put()
    path.unlink()

    with pytest.raises(Unusable, match="removed or replaced"):
        notes.put()
    assert not path.exists()


def test_what_a_child_has_written_stays_when_its_parent_closes_the_file(
    notes: Notes, path: Path
) -> None:
    """The locks of SQLite are not the child's: without care, acknowledged writes are lost."""
    notes.put()
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()

    pid = os.fork()
    if pid == 0:
        notes.put()
        os.write(from_child, b".")
        os.read(to_child, 1)
        notes.put()
        os._exit(0)
    os.read(to_parent, 1)
    notes.store.close()
    os.write(from_parent, b".")
    os.waitpid(pid, 0)

    later = Notes(path)
    assert later.count() == 3
    later.store.close()


def test_forks_during_writes_and_reads_lose_nothing(notes: Notes) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            notes.put()
            notes.count()
            stop.wait(0.002)  # or the children would wait for a moment in which nobody writes

    threads = started(work)
    for _ in range(20):
        in_children(1, lambda _: notes.put("child"))
    stop.set()
    joined(threads)

    assert notes.count() == notes.acknowledged
    assert notes.count("child") == 20


@pytest.mark.parametrize("place", [":memory:", "file"])
def test_what_is_to_follow_a_write_follows_only_if_it_stands(place: str, path: Path) -> None:
    db = Database(place if place == ":memory:" else str(path))
    done: list[str] = []

    def work(connection: sqlite3.Connection, *, fails: bool) -> None:
        with db.joined(connection):
            db.after_commit(lambda: done.append(f"fails: {fails}"))
        if fails:
            raise LookupError
        assert done == []

    with pytest.raises(LookupError):
        db.write(partial(work, fails=True))
    db.write(partial(work, fails=False))
    db.after_commit(lambda: done.append("now"))

    assert done == ["fails: False", "now"]
    db.close()


def test_where_no_thread_can_be_started_a_write_is_unavailable(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unavailable, match="start new thread"):
            notes.put()

    notes.put()
    assert notes.count() == 1


def test_a_write_within_a_write_that_sqlite_has_undone_is_refused(path: Path) -> None:
    db = Database(str(path))

    def work(connection: sqlite3.Connection) -> None:
        with db.joined(connection):
            connection.execute("ROLLBACK")
            db.write(lambda within: within.execute("SELECT 1"))

    with pytest.raises(Unavailable, match="the whole write was undone"):
        db.write(work)
    db.close()
