"""One file: who is answered what, and when, whatever happens to threads and processes.

Long, because it is a list of promises, a test for each.
"""

import ctypes
import gc
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.domain.errors import Unavailable
from headrace.store.base import Record
from headrace.store.sqlite import SqliteStore
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


def gathered(db: Database, count: int) -> None:
    """Wait until so many callers are in line."""
    deadline = time.monotonic() + 10
    while db._jobs.qsize() < count:  # noqa: SLF001 (nothing else shows it)
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_is_written_is_there_for_whoever_opens_the_file_next(path: Path) -> None:
    first = Database(str(path))
    first.write(lambda db: db.execute("CREATE TABLE notes (text)"))
    note(first, "kept")
    second = Database(str(path))

    assert notes(second) == ["kept"]
    first.close()
    second.close()


def test_a_file_in_memory_is_shared_with_nobody() -> None:
    assert not Database(":memory:").shared


def test_the_file_and_those_beside_it_are_their_owners_alone(db: Database, path: Path) -> None:
    note(db, "private")

    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    assert modes == dict.fromkeys(("headrace.db", "headrace.db-wal", "headrace.db-shm"), 384)


def test_it_stays_where_it_was_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database("here.db")
    database.write(lambda db: db.execute("CREATE TABLE notes (text)"))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    assert notes(database) == []
    database.close()
    assert list((tmp_path / "below").iterdir()) == []


@pytest.mark.parametrize("name", ["a?mode=memory#b.db", "100%25.db", "file:x.db", "ein ä.db"])
def test_no_character_of_a_path_means_anything(tmp_path: Path, name: str) -> None:
    database = Database(str(tmp_path / name))
    with database.reading():
        pass
    database.close()

    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_link_is_followed_and_what_it_points_to_is_made_as_private(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "headrace.db")

    Database(str(tmp_path / "link.db")).close()

    assert (tmp_path / "real" / "headrace.db").stat().st_mode & 0o777 == 0o600


# -- callers together ------------------------------------------------------------------------------


def test_callers_that_gather_are_all_served(db: Database) -> None:
    with ThreadPoolExecutor(20) as pool, Held(db):
        writes = [pool.submit(note, db, str(number)) for number in range(20)]
        gathered(db, 20)
    for write in writes:
        write.result()

    assert sorted(map(int, notes(db))) == list(range(20))


def test_callers_that_gather_are_committed_with_one_sync(db: Database) -> None:
    statements: list[str] = []
    with ThreadPoolExecutor(20) as pool, Held(db):
        assert db._writer is not None  # noqa: SLF001 (nothing else shows it)
        db._writer.set_trace_callback(statements.append)  # noqa: SLF001 (likewise)
        writes = [pool.submit(note, db, str(number)) for number in range(20)]
        gathered(db, 20)
    for write in writes:
        write.result()

    assert sum(statement.startswith("INSERT") for statement in statements) == 20
    assert statements.count("COMMIT") == 2  # of who held it up, and of the twenty


@contextmanager
def begun_in_vain(db: Database, path: Path, *, lazy: bool) -> Iterator[list[str]]:
    """Let another process hold the file, until a write that is handed in has tried to begin.

    Gives what is executed from then on.
    """
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    statements: list[str] = []
    assert db._writer is not None  # noqa: SLF001 (nothing else shows it)
    db._writer.set_trace_callback(statements.append)  # noqa: SLF001 (likewise)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(db.write, lambda db: db.execute("SELECT 1"), lazy=lazy)
        deadline = time.monotonic() + 10
        while "BEGIN IMMEDIATE" not in statements:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        yield statements
        other.execute("ROLLBACK")
        first.result()
    other.close()


@pytest.mark.parametrize(("lazy", "commits"), [(False, 1), (True, 2)])
def test_who_comes_while_another_process_writes_is_committed_with_who_waits(
    db: Database, path: Path, *, lazy: bool, commits: int
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with begun_in_vain(db, path, lazy=lazy) as statements:
            second = pool.submit(db.write, synced)
            gathered(db, 1)
        found = second.result()

    assert found, "it is on the disk: not together with what is lazy"
    assert statements.count("COMMIT") == commits


def test_each_commit_is_on_the_disk(db: Database) -> None:
    def setting(name: str) -> object:
        return db.write(lambda db: db.execute(f"PRAGMA {name}").fetchone()[0])

    assert (setting("journal_mode"), setting("synchronous")) == ("wal", 2)  # FULL


def test_a_reader_does_not_wait_for_who_writes(db: Database) -> None:
    note(db, "before")
    with Held(db):  # within a transaction
        assert notes(db) == ["before"]


def test_what_fails_for_one_caller_fails_for_no_other(db: Database) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('half done')")
        raise LookupError

    with ThreadPoolExecutor(20) as pool, Held(db):
        writes = [pool.submit(note, db, str(number)) for number in range(5)]
        bad = pool.submit(db.write, fails)
        writes += [pool.submit(note, db, str(number)) for number in range(5, 10)]
        gathered(db, 11)

    with pytest.raises(LookupError):
        bad.result()
    for write in writes:
        write.result()
    assert sorted(map(int, notes(db))) == list(range(10))


def test_a_caller_is_not_answered_before_the_transaction_is_committed(
    db: Database, path: Path
) -> None:
    other = sqlite3.connect(path)
    with ThreadPoolExecutor(1) as pool:
        with Held(db):
            write = pool.submit(note, db, "late")
            gathered(db, 1)
            assert not write.done()
        write.result()

    assert other.execute("SELECT text FROM notes").fetchall() == [("late",)]
    other.close()


def test_an_error_of_one_reader_leaves_no_old_state_to_the_next(db: Database) -> None:
    for number in range(3):
        note(db, str(number))
    kept: list[object] = []

    def breaks_off() -> None:
        with db.reading() as reader:
            rows = reader.execute("SELECT text FROM notes")
            kept.append(rows)
            next(rows)
            raise LookupError

    with pytest.raises(LookupError):
        breaks_off()
    note(db, "new")

    assert "new" in notes(db)


def test_readers_that_are_not_needed_any_more_are_closed(db: Database) -> None:
    together = threading.Barrier(30)

    def read(_: int) -> None:
        with db.reading():
            together.wait(10)

    with ThreadPoolExecutor(30) as pool:
        list(pool.map(read, range(30)))

    assert len(db._readers) == 8  # noqa: SLF001 (nothing else shows it)


def test_a_reader_cannot_write(db: Database) -> None:
    with pytest.raises(Unusable, match="may not be written to"), db.reading() as reader:
        reader.execute("INSERT INTO notes VALUES ('no')")


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
    assert not db._lent  # noqa: SLF001 (nothing else shows it)


# -- busy, closed, gone ----------------------------------------------------------------------------


def test_another_process_that_holds_it_is_waited_for_once_not_once_a_caller(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.sqlite.schema.WAIT_SECONDS", 0.2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(20) as pool:
        begun = time.monotonic()
        writes = [pool.submit(note, db, "x") for _ in range(20)]
        errors = [write.exception() for write in writes]
        took = time.monotonic() - begun
    other.execute("ROLLBACK")
    other.close()

    assert all(type(error) is Unavailable for error in errors)
    assert all("another process has held it for too long" in str(error) for error in errors)
    assert len(set(map(id, errors))) == 20  # an error is its caller's own
    assert took < 2
    note(db, "later")
    assert notes(db) == ["later"]


def test_what_was_handed_in_is_done_before_it_is_closed_and_nothing_hangs_after(
    db: Database, path: Path
) -> None:
    with ThreadPoolExecutor(11) as pool:
        with Held(db):
            writes = [pool.submit(note, db, str(number)) for number in range(10)]
            gathered(db, 10)
            closing = pool.submit(db.close)
        closing.result()
        for write in writes:
            write.result()

    with pytest.raises(Unavailable, match="closed"):
        note(db, "late")
    with pytest.raises(Unavailable, match="closed"):
        notes(db)
    db.close()
    again = Database(str(path))
    assert len(notes(again)) == 10
    again.close()


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


def test_whoever_reads_a_file_that_was_removed_is_told_soon(db: Database, path: Path) -> None:
    note(db, "before")
    path.unlink()
    db._checked_until = 0.0  # noqa: SLF001  half a second later

    for _ in range(2):
        with pytest.raises(Unusable, match="start this program again"), db.reading():
            pass


def test_a_file_that_is_replaced_while_it_is_open_is_left_alone(db: Database, path: Path) -> None:
    note(db, "before")
    path.unlink()
    path.write_bytes(b"")

    with pytest.raises(Unusable, match="removed or replaced"):
        note(db, "after")
    assert path.read_bytes() == b""


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


def test_after_a_fork_both_processes_go_on(db: Database) -> None:
    note(db, "before")
    notes(db)

    status = in_child(lambda: note(db, "child"), lambda: notes(db))
    note(db, "parent")

    assert status == 0
    assert notes(db) == ["before", "child", "parent"]


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


def test_a_file_that_was_in_use_all_through_a_fork_is_refused_in_the_child(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.sqlite.forks._PATIENCE_SECONDS", 0.01)

    def child() -> None:
        with pytest.raises(Unusable, match="in use when this process was forked"):
            note(db, "child")

    with db.reading():
        status = in_child(child)
    note(db, "parent")

    assert status == 0
    assert notes(db) == ["parent"]


def test_somebody_waits_and_is_woken_in_the_child_too(db: Database) -> None:
    """Whoever asked after others' commits is not there in the child: another must."""
    arrivals = ArrivalNumbers(db)
    waiter = threading.Thread(target=arrivals.wait, args=(["mail"], {}, 10.0))
    waiter.start()
    deadline = time.monotonic() + 5
    while not arrivals._asking:  # noqa: SLF001 (nothing else shows it)
        assert time.monotonic() < deadline

    def child() -> None:
        begun = time.monotonic()
        threading.Timer(0.05, arrive, (db,)).start()
        arrivals.wait(["mail"], {}, 10.0)
        assert time.monotonic() - begun < 5

    status = in_child(child)
    waiter.join(5)

    assert status == 0
    assert not waiter.is_alive()  # the child's commit was seen here


def arrive(db: Database) -> None:
    db.write(lambda db: db.execute("INSERT INTO arrivals VALUES ('mail', 1)"))


def synced(db: sqlite3.Connection) -> bool:
    return bool(db.execute("PRAGMA synchronous").fetchone() == (2,))


def test_what_is_lazy_waits_for_no_disk_and_what_comes_after_it_does(db: Database) -> None:
    found = [db.write(synced, lazy=lazy) for lazy in (False, True, True, False)]

    assert found == [True, False, False, True]


def test_what_is_lazy_is_synced_with_what_has_gathered_beside_it(db: Database) -> None:
    with ThreadPoolExecutor(2) as callers:
        with Held(db):
            both = [callers.submit(db.write, synced, lazy=lazy) for lazy in (True, False)]
            gathered(db, 2)

        assert [one.result() for one in both] == [True, True]


class FailsOnce:
    """A lock that cannot be had at first."""

    def __init__(self) -> None:
        self._failed, self._lock = False, threading.Lock()

    def __enter__(self) -> None:
        if not self._failed:
            self._failed = True
            raise MemoryError
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()


def test_an_error_beside_the_work_reaches_its_caller_and_the_next_is_served(
    db: Database,
) -> None:
    db._writer_mutex = FailsOnce()  # type: ignore[assignment]  # noqa: SLF001 (nothing else may fail)

    with pytest.raises(MemoryError):
        db.write(synced)

    assert db.write(synced)


def test_a_file_that_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    gc.collect()  # what other tests left to be found has warnings of its own
    store = SqliteStore(str(tmp_path / "let_go.db"))
    stored = store.put_record(Record("key", "one", {}), replaces=None)
    found = store.record("key", "one")
    thread = store._db._thread  # noqa: SLF001 (nothing else shows it)
    assert stored
    assert found is not None
    assert thread is not None
    assert (tmp_path / "let_go.db-wal").exists()

    with warnings.catch_warnings(action="error"):
        del store
        gc.collect()
    thread.join()  # if it does not end, nor does this

    assert not (tmp_path / "let_go.db-wal").exists()  # the last connection took it along
