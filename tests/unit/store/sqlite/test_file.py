"""Files that cannot be used, or not now: one clear line each, and nothing is done to them.

Long, because each state in which a file may be found is a test of its own.
"""

import json
import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.client.address import FileAddress, read_address
from headrace.domain.errors import Unavailable
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.task import Place, State
from headrace.local.folder import temporary_folder
from headrace.store.base import Record
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.failures import Unusable
from headrace.store.sqlite.location import file_system, refuse_network
from headrace.store.sqlite.schema import APPLICATION_ID, MIGRATIONS, VERSION, check_library
from tests.forked import in_children

NOBODY = 65_534
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headrace.db"


def opens(path: Path) -> None:
    SqliteStore(str(path)).close()


def refusal(path: Path) -> str:
    """Return what opening the file is refused with, on one line that names it."""
    with pytest.raises(Unusable) as error:
        opens(path)
    line = str(error.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def put(store: SqliteStore, number: int, size: int = 1) -> None:
    assert store.put_record(Record("test", str(number), {"x": "x" * size}), replaces=None)


# -- what it is ------------------------------------------------------------------------------------


def test_another_programs_database_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()

    assert "another program's database; name another file" in refusal(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)

    assert "no database: name another file" in refusal(path)
    assert path.read_text() == "Dear diary, " * 1000


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    opens(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()

    line = refusal(path)

    assert "newer Headrace" in line
    assert f"schema {VERSION + 1}" in line
    assert path.read_bytes() == before


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "it is a folder" in refusal(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    line = refusal(tmp_path / "none" / "headrace.db")

    assert f"there is no folder {tmp_path / 'none'}" in line


def test_an_sqlite_that_is_too_old_is_named_with_what_is_needed() -> None:
    with pytest.raises(Unusable, match=r"SQLite 3\.31\.1; Headrace needs 3\.35\.0 or newer"):
        check_library((3, 31, 1))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/data/x.db", "nfs4"),
        ("/srv/database/x.db", "ext4"),
        ("/my disk/x.db", "cifs"),
        ("/mnt/x.db", "ext4"),  # mounted over the share
        ("/mnt/größe/x.db", "9p"),
    ],
)
def test_the_kind_of_file_system_is_that_of_the_nearest_folder_mounted_last(
    path: str, kind: str
) -> None:
    mounts = (
        "/dev/sda1 / ext4 rw 0 0\n\nbroken\n"
        "server:/data /srv/data nfs4 rw 0 0\n"
        "//server/share /my\\040disk cifs rw 0 0\n"
        "server:/old /mnt nfs rw 0 0\n"
        "/dev/sdb1 /mnt ext4 rw 0 0\n"
        "host /mnt/größe 9p rw 0 0\n"
    )

    assert file_system(mounts, Path(path)) == kind


def test_a_file_on_a_network_file_system_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/home {path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr("headrace.store.sqlite.location._MOUNTS", mounts)

    assert "network file system (nfs4); use a local disk" in refusal(path)
    assert not path.exists()


def test_where_nothing_tells_of_mounts_nothing_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.sqlite.location._MOUNTS", path / "none")

    refuse_network("x", path)


# -- how it begins ---------------------------------------------------------------------------------


def test_processes_that_open_a_new_file_at_once_all_get_it(path: Path) -> None:
    def opens_and_writes(number: int) -> None:
        store = SqliteStore(str(path))
        put(store, number)
        store.close()

    in_children(8, opens_and_writes)

    store = SqliteStore(str(path))
    assert len(store.records("test", limit=100)[0]) == 8
    store.close()


@pytest.mark.parametrize("begun", ["empty", "switched to write-ahead logging"])
def test_a_file_whose_maker_was_killed_before_its_tables_is_gone_on_with(
    path: Path, begun: str
) -> None:
    path.touch(0o600)
    if begun != "empty":
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")

    opens(path)

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)  # incremental


def test_a_migration_that_many_begin_is_made_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(path)
    schema = "headrace.store.sqlite.schema"
    newer = (*MIGRATIONS, "CREATE TABLE added (a); INSERT INTO added VALUES (1)")
    monkeypatch.setattr(f"{schema}.MIGRATIONS", newer)
    monkeypatch.setattr(f"{schema}.VERSION", VERSION + 1)

    in_children(8, lambda _: opens(path))

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM added").fetchone() == (1,)
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(path)
    schema = "headrace.store.sqlite.schema"
    newer = (*MIGRATIONS, "CREATE TABLE added (a); INSERT INTO nowhere VALUES (1)")
    with monkeypatch.context() as patch:
        patch.setattr(f"{schema}.MIGRATIONS", newer)
        patch.setattr(f"{schema}.VERSION", VERSION + 1)
        refusal(path)

    opens(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM sqlite_master WHERE name = 'added'").fetchall() == []


def test_a_file_of_the_first_version_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as first:
        first.setattr("headrace.store.sqlite.schema.MIGRATIONS", MIGRATIONS[:1])
        first.setattr("headrace.store.sqlite.schema.VERSION", 1)
        opens(path)
    rest = json.dumps(
        {"due_at": "2026-11-22T12:00:00.000007Z"}
        | dict.fromkeys(("created_at", "enqueued_at"), "2026-11-22T12:00:00Z")
    )
    due = micros_of(datetime(2026, 11, 22, 12, tzinfo=UTC)) + 7
    spot = ("one", "mail", "INFLIGHT", 3, due + 30_000_000, None, None, rest)
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*spot, '"payload"'))
        side = json.dumps([*spot, 9])
        db.execute("INSERT INTO changes VALUES (1, 5, 0, NULL, ?, NULL)", (side,))
        db.commit()

    with closing(SqliteStore(str(path))) as store:
        (entry,) = store.entries(Place("mail", State.INFLIGHT, 3), limit=5).entries
        (write,) = store.writes(after=0, limit=5)
        task = store.read(["one"])["one"]

    assert entry.due_at == task.due_at == instant_of(due)
    assert (task.place, task.payload) == (entry.place, '"payload"')
    assert write.after is not None
    assert (write.after.due_at, write.after.label, write.after.payload_bytes) == (due, 3, 9)


# -- what it may -----------------------------------------------------------------------------------


def as_nobody(work: Callable[[], object]) -> None:
    """Run *work* without the rights of root, in a child where the tests are root's."""

    def child(_: int) -> None:
        os.setuid(NOBODY)
        work()

    if AS_ROOT:
        in_children(1, child)
    else:
        work()


@pytest.fixture
def theirs() -> Iterator[Path]:
    """Give a path in a folder that whoever is refused may reach, and owns."""
    with temporary_folder() as folder:
        path = folder / "headrace.db"
        opens(path)
        if AS_ROOT:
            for one in (folder, path):
                os.chown(one, NOBODY, NOBODY)
        yield path
        folder.chmod(0o700)


@pytest.mark.parametrize("mode", [0o400, 0o200, 0o000])
def test_a_file_that_may_not_be_written_or_read_is_refused(theirs: Path, mode: int) -> None:
    theirs.chmod(mode)

    as_nobody(lambda: _refused(theirs, "it may not be written to"))


def test_a_file_in_a_folder_that_may_not_be_written_is_refused(theirs: Path) -> None:
    theirs.parent.chmod(0o500)

    as_nobody(lambda: _refused(theirs, "its folder may not be written to"))


def test_no_file_is_made_in_a_folder_that_may_not_be_written(theirs: Path) -> None:
    theirs.unlink()
    theirs.parent.chmod(0o500)

    as_nobody(lambda: _refused(theirs, "Permission denied"))


def test_a_folder_that_cannot_be_looked_into_is_refused(theirs: Path) -> None:
    theirs.parent.chmod(0o000)

    as_nobody(lambda: _refused(theirs, "Permission denied"))


def test_a_url_of_such_a_folder_leaves_it_to_the_store_to_say_so(theirs: Path) -> None:
    theirs.parent.chmod(0o000)

    as_nobody(lambda: _reads_as(f"file:{theirs}", FileAddress(str(theirs))))


def _reads_as(url: str, address: FileAddress) -> None:
    assert read_address(url) == address


def _refused(path: Path, why: str) -> None:
    line = refusal(path)
    assert why in line, line


# -- room ------------------------------------------------------------------------------------------


def until_full(store: SqliteStore, size: int) -> tuple[int, Unavailable]:
    """Write records until one is refused; return how many were acknowledged, and the refusal."""
    for number in range(10_000):
        try:
            put(store, number, size)
        except Unavailable as error:
            return number, error
    raise AssertionError


def numbers(store: SqliteStore) -> list[int]:
    records, more = store.records("test", limit=20_000)
    assert not more
    return sorted(int(record.name) for record in records)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S607  wherever it is


@pytest.mark.skipif(not AS_ROOT, reason="a small disk is made by root alone")
def test_a_full_disk_loses_nothing_and_works_again_once_there_is_room(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * 2_000_000)
    store = SqliteStore(str(disk / "headrace.db"))
    written, error = until_full(store, 20_000)

    assert type(error) is Unavailable  # it passes
    assert "the disk is full" in str(error)
    assert "make room" in str(error)
    assert numbers(store) == list(range(written))
    ballast.unlink()
    put(store, written, 20_000)
    assert numbers(store) == list(range(written + 1))
    assert store.check() == ()
    store.close()
    again = SqliteStore(str(disk / "headrace.db"))
    assert numbers(again) == list(range(written + 1))
    again.close()


@pytest.mark.skipif(not AS_ROOT, reason="a small disk is made by root alone")
def test_who_opens_a_file_on_a_full_disk_is_told_so(disk: Path) -> None:
    SqliteStore(str(disk / "headrace.db")).close()
    with (disk / "rest").open("wb", buffering=0) as rest, suppress(OSError):
        while True:
            rest.write(b"x" * 1024)

    with pytest.raises(Unavailable, match="the disk is full"):
        SqliteStore(str(disk / "headrace.db"))


def test_a_disk_that_takes_no_more_loses_nothing_and_works_again_once_it_does(path: Path) -> None:
    def child(_: int) -> int:
        store = SqliteStore(str(path))
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, most))
        written, error = until_full(store, 20_000)
        assert type(error) is Unavailable
        assert numbers(store) == list(range(written))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        put(store, written, 20_000)
        store.close()
        return written

    (written,) = in_children(1, child)

    store = SqliteStore(str(path))
    assert written > 10
    assert numbers(store) == list(range(written + 1))
    assert store.check() == ()
    store.close()


def test_of_callers_that_gather_the_small_are_served_while_the_large_find_no_room(
    path: Path,
) -> None:
    def child(_: int) -> tuple[list[int], list[int]]:
        store = SqliteStore(str(path))
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, most))
        done, refused = [], []
        for number in range(60):
            try:
                put(store, number, 200_000 if number % 2 else 10)
                done.append(number)
            except Unavailable:
                refused.append(number)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        store.close()
        return done, refused

    ((done, refused),) = in_children(1, child)

    store = SqliteStore(str(path))
    assert numbers(store) == done
    assert set(range(0, 60, 2)) <= set(done)
    assert refused
    store.close()
