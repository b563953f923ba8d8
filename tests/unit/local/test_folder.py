"""Only the user of the service can read the data folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.local import DataFolderUnusable
from headrace.local.folder import DATABASE_NAME, data_folder, kept_admin_key


@pytest.fixture(params=[0o000, 0o022, 0o377], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> set[int]:
    """Return the modes of the folder and of everything in it."""
    return {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


def fill(folder: Path) -> None:
    """Make what a service makes, as it does."""
    kept_admin_key(folder)
    (folder / DATABASE_NAME).touch()
    (folder / "lake" / "raw").mkdir(parents=True)
    (folder / "lake" / "raw" / "a.json.gz").touch()


def test_new_files_are_private_with_any_umask(tmp_path: Path, umask: int) -> None:
    where = tmp_path / "data"

    with data_folder(str(where)) as folder:
        fill(folder)
        assert modes(folder) == {0o700, 0o600}

    assert os.umask(umask) == umask  # as it was before


def test_files_that_others_could_read_become_private(tmp_path: Path) -> None:
    with data_folder(str(tmp_path)) as folder:
        fill(folder)
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    with data_folder(str(tmp_path)) as folder:
        assert modes(folder) == {0o700, 0o600}


def test_files_of_other_programs_stay_unchanged(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    other = tmp_path / "notes.txt"
    other.touch()
    other.chmod(0o644)
    (tmp_path / "lake").symlink_to(other)

    with data_folder(str(tmp_path)) as folder:
        kept_admin_key(folder)

    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.iterdir())}
    assert found == {
        tmp_path.name: 0o755,
        "notes.txt": 0o644,
        "lake": 0o644,
        "lock": 0o600,
        "admin.key": 0o600,
    }


def test_a_key_that_cannot_be_kept_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DataFolderUnusable, match=r"admin\.key cannot be kept .*: No such file"):
        kept_admin_key(tmp_path / "gone")


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "admin.key").write_text("short", encoding="ascii")

    with pytest.raises(DataFolderUnusable, match="holds no admin key: delete the file"):
        kept_admin_key(tmp_path)
