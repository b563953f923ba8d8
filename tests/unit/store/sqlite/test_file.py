"""A file that cannot be used is refused with one clear line, and stays as it is."""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.domain.errors import Unavailable
from headrace.local.folder import temporary_folder
from headrace.store.base import Record
from headrace.store.sqlite import SqliteStore
from headrace.store.sqlite.connections import errors
from headrace.store.sqlite.file import Unusable, file_system, refuse_network
from headrace.store.sqlite.schema import VERSION, check_library
from tests.forked import in_children

NOBODY = 65_534
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


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

    assert "another program's database, or an earlier Headrace's; name another file" in refusal(
        path
    )
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    opens(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()

    line = refusal(path)

    assert "newer Headrace" in line
    assert f"schema {VERSION + 1}" in line
    assert path.read_bytes() == before


def test_a_file_on_a_network_file_system_is_refused(path: Path, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/home {path.parent} nfs4 rw 0 0\n")

    with pytest.raises(Unusable, match=r"network file system \(nfs4\); use a local disk"):
        refuse_network(str(path), path, mounts)


def test_the_file_system_of_a_path_is_that_of_the_folder_it_is_deepest_in(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    lines = (
        "odd",
        f"local {tmp_path} ext4 rw",
        rf"server:/x {tmp_path}/my\040data nfs4 rw",
        "a / xfs",
    )

    assert file_system("\n".join(lines), folder / "headrace.db") == "nfs4"
    assert file_system("\n".join(lines), tmp_path / "headrace.db") == "ext4"
    refuse_network("x", folder, tmp_path / "no mounts")  # which a Mac has none of


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "it is a folder; name a file in it"),
        ("none/headrace.db", "there is no folder .*none; make it first"),
        ("file/headrace.db", "Not a directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_path_where_no_file_can_be_is_refused(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    assert re.search(says, refusal(tmp_path / name))


def test_text_in_place_of_a_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1_000)

    assert "it is no database: name another file, or restore a backup" in refusal(path)
    assert path.read_bytes() == b"Dear diary, " * 1_000


@pytest.mark.parametrize("version", [(3, 34, 1), (2, 8, 17)])
def test_a_library_that_is_too_old_is_refused(version: tuple[int, int, int]) -> None:
    with pytest.raises(Unusable, match=r"Headrace needs 3\.35\.0 or newer"):
        check_library(version)


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


@pytest.mark.parametrize(
    ("where", "mode", "says"),
    [
        *(("file", mode, "it may not be written to") for mode in (0o400, 0o200, 0o000)),
        ("folder", 0o500, "its folder may not be written to"),
        ("folder", 0o000, "Permission denied; change the rights"),
    ],
)
def test_a_file_or_folder_that_forbids_access_is_refused(
    theirs: Path, where: str, mode: int, says: str
) -> None:
    (theirs if where == "file" else theirs.parent).chmod(mode)

    def is_refused() -> None:
        assert says in refusal(theirs)

    as_nobody(is_refused)


# -- what SQLite's errors mean ---------------------------------------------------------------------


def failure(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (sqlite3.SQLITE_BUSY, Unavailable, "another process has held it for too long"),
        (sqlite3.SQLITE_IOERR_READ, Unavailable, "the disk does not answer"),
        (sqlite3.SQLITE_PERM, Unusable, "access is denied"),
        (sqlite3.SQLITE_MISMATCH, Unusable, "disk I/O error"),
    ],
)
def test_an_error_of_the_file_says_what_it_means(
    path: Path, code: int, kind: type[Unavailable], says: str
) -> None:
    for place in (path, path / "none" / "headrace.db"):
        with pytest.raises(kind, match=f"mail.db: .*{says}"), errors("mail.db", place):
            raise failure(code)


def test_an_error_of_a_disk_without_room_asks_to_make_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(Unavailable, match="make room on it"), errors("mail.db", path):
        raise failure(sqlite3.SQLITE_IOERR_SHMSIZE)


def test_a_wrong_statement_is_no_fault_of_the_file(path: Path) -> None:
    with pytest.raises(sqlite3.ProgrammingError), errors("mail.db", path):
        raise sqlite3.ProgrammingError


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
