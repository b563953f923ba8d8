"""One file: who is answered what, and when, whatever happens to threads and processes."""

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.domain.errors import Unavailable
from headrace.store.sqlite.arrivals import ArrivalNumbers
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.failures import Unusable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headrace.db"


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    database = Database(str(path))
    database.write(lambda db: db.execute("CREATE TABLE notes (text)"))
    yield database
    database.close()


def note(db: Database, text: str) -> None:
    db.write(lambda db: db.execute("INSERT INTO notes VALUES (?)", (text,)))


def notes(db: Database) -> list[str]:
    with db.reading() as reader:
        return [text for (text,) in reader.execute("SELECT text FROM notes ORDER BY rowid")]


class Held:
    """Holds up the thread that writes, so that callers gather behind it."""

    def __init__(self, db: Database) -> None:
        self._go, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=db.write, args=(self._wait,))

    def _wait(self, _: sqlite3.Connection) -> None:
        self._begun.set()
        self._go.wait(10)

    def __enter__(self) -> None:
        self._thread.start()
        self._begun.wait(10)

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._thread.join()


def gathered(callers: Sequence[Future[None]]) -> None:
    """Wait until all of them have called."""
    deadline = time.monotonic() + 10
    while not all(caller.running() for caller in callers):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_file_and_those_beside_it_are_their_owners_alone(db: Database, path: Path) -> None:
    note(db, "private")

    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    assert modes == dict.fromkeys(("headrace.db", "headrace.db-wal", "headrace.db-shm"), 384)


@pytest.mark.parametrize("name", ["a?mode=memory#b.db", "100%25.db", "file:x.db", "ein ä.db"])
def test_no_character_of_a_path_means_anything(tmp_path: Path, name: str) -> None:
    database = Database(str(tmp_path / name))
    with database.reading():
        pass
    database.close()

    assert [file.name for file in tmp_path.iterdir()] == [name]


# -- callers together ------------------------------------------------------------------------------


def test_what_fails_for_one_caller_fails_for_no_other(db: Database) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('half done')")
        raise LookupError

    with ThreadPoolExecutor(20) as pool, Held(db):
        writes = [pool.submit(note, db, str(number)) for number in range(5)]
        bad = pool.submit(db.write, fails)
        writes += [pool.submit(note, db, str(number)) for number in range(5, 10)]
        gathered([*writes, bad])

    with pytest.raises(LookupError):
        bad.result()
    for write in writes:
        write.result()
    assert sorted(map(int, notes(db))) == list(range(10))


def interrupt(thread: threading.Thread) -> None:
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(TimeoutError)
    )


def test_a_thread_that_is_interrupted_anywhere_does_not_hold_up_the_others(db: Database) -> None:
    """As the worker ends a job that takes too long."""
    arrivals = ArrivalNumbers(db)

    def works() -> None:
        try:
            while True:
                note(db, "busy")
                notes(db)
                arrivals.ring()
        except TimeoutError:
            pass

    for _ in range(30):
        threads = [threading.Thread(target=works) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.002)
        for thread in threads:
            interrupt(thread)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()

    note(db, "after")
    assert notes(db)[-1] == "after"


# -- busy, closed, gone ----------------------------------------------------------------------------


def test_while_it_is_being_closed_every_caller_is_answered(path: Path) -> None:
    for _ in range(20):
        db = Database(str(path))
        db.write(lambda db: db.execute("CREATE TABLE IF NOT EXISTS notes (text)"))
        done: list[int] = []
        refused: list[int] = []

        def works(db: Database = db, done: list[int] = done, refused: list[int] = refused) -> None:
            try:
                while True:
                    note(db, "x")
                    done.append(1)
            except Unavailable:
                refused.append(1)

        before = len(notes(db))
        threads = [threading.Thread(target=works) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.005)
        db.close()
        for thread in threads:
            thread.join(10)
        assert len(refused) == 4
        after = Database(str(path))
        assert len(notes(after)) == before + len(done)
        after.close()


def test_a_file_that_is_removed_while_it_is_open_takes_no_more_writes(
    db: Database, path: Path
) -> None:
    note(db, "before")
    path.unlink()

    with pytest.raises(Unusable, match="removed or replaced"):
        note(db, "after")
    assert not path.exists()


# -- forks -----------------------------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(*works: Callable[[], object]) -> int:
    """Run *works* in a fork and return its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            for work in works:
                work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  pytest must not go on in the child
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_a_child_is_told_is_written_stays_when_its_parent_closes(
    db: Database, path: Path
) -> None:
    """SQLite's account of locks is not the child's: this lost acknowledged writes."""
    note(db, "before")
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()

    pid = os.fork()
    if pid == 0:
        note(db, "first")
        os.write(from_child, b".")
        os.read(to_child, 1)
        note(db, "second")
        os._exit(0)
    os.read(to_parent, 1)
    db.close()
    os.write(from_parent, b".")
    os.waitpid(pid, 0)

    later = Database(str(path))
    assert notes(later) == ["before", "first", "second"]
    later.close()


def test_forks_in_the_midst_of_writes_and_reads_lose_nothing(db: Database) -> None:
    stop = threading.Event()
    written = [0]
    count = threading.Lock()

    def works() -> None:
        while not stop.is_set():
            note(db, "parent")
            with count:
                written[0] += 1
            notes(db)
            stop.wait(0.002)  # or the children would wait for a moment in which nobody writes

    threads = [threading.Thread(target=works) for _ in range(4)]
    for thread in threads:
        thread.start()
    statuses = [in_child(lambda: note(db, "child"), lambda: notes(db)) for _ in range(20)]
    stop.set()
    for thread in threads:
        thread.join()

    assert statuses == [0] * 20
    assert notes(db).count("parent") == written[0]
    assert notes(db).count("child") == 20
