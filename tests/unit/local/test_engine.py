"""What the local service says when its engine, or what it left behind, is not as it should be."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.local import (
    DataFolderInUse,
    EngineFailed,
    EngineMissing,
    LocalServiceError,
    UnsupportedPlatform,
)
from headrace.local.engine import find_binary, start_engine
from headrace.local.folder import data_folder
from headrace.local.gateway import load_handler
from headrace.local.stream import add_index


@pytest.mark.parametrize(
    ("system", "machine", "package", "name"),
    [
        ("linux", "x86_64", "linux-x64", "dynoxide"),
        ("linux", "aarch64", "linux-arm64", "dynoxide"),
        ("darwin", "arm64", "darwin-arm64", "dynoxide"),
        ("win32", "AMD64", "win32-x64", "dynoxide.exe"),
    ],
)
def test_the_binary_is_that_of_the_platform(
    tmp_path: Path, system: str, machine: str, package: str, name: str
) -> None:
    binary = tmp_path / "node_modules" / "@dynoxide" / package / name
    binary.parent.mkdir(parents=True)
    binary.touch()

    assert find_binary(tmp_path, system=system, machine=machine) == binary


def test_a_platform_without_a_build_is_told_about_other_endpoints(tmp_path: Path) -> None:
    message = one_line(UnsupportedPlatform, tmp_path, "sunos5", "sparc")

    assert "sunos5 on sparc" in message
    assert "HEADRACE_DYNAMODB_URL" in message


def test_without_npm_it_says_to_install_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    message = one_line(EngineMissing, tmp_path, "linux", "x86_64")

    assert "install Node.js" in message
    assert "HEADRACE_DYNAMODB_URL" in message


def test_with_npm_it_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {"optionalDependencies": {"@dynoxide/linux-x64": "1.2.3"}}
    (tmp_path / "package.json").write_text(json.dumps(pins))
    (tmp_path / "npm").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    pinned = one_line(EngineMissing, tmp_path, "linux", "x86_64")
    other = one_line(EngineMissing, tmp_path, "darwin", "arm64")

    assert "`npm ci`" in pinned
    assert "`npm install --no-save @dynoxide/darwin-arm64@1.2.3`" in other


def one_line(kind: type[LocalServiceError], root: Path, system: str, machine: str) -> str:
    with pytest.raises(kind) as caught:
        find_binary(root, system=system, machine=machine)
    (line,) = str(caught.value).splitlines()
    return line


def test_an_engine_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"^The embedded engine ended at once: [^\n]+$"):
        start_engine(tmp_path, binary=Path(sys.executable))


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(EngineFailed, match=r"the disk of .* is full \(4,096 bytes free\)"):
        start_engine(tmp_path, binary=Path(sys.executable))


def test_an_engine_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "engine").touch(mode=0o644)

    with pytest.raises(EngineFailed, match=r"^The embedded engine [^\n]+$"):
        start_engine(tmp_path, binary=tmp_path / "engine")


def test_a_database_of_another_kind_is_told(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"nothing that SQLite knows" * 100)

    with pytest.raises(EngineFailed, match="dynoxide"):
        add_index(tmp_path / "other.db")


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    with (
        data_folder(str(tmp_path)),
        pytest.raises(DataFolderInUse, match="HEADRACE_DATA_DIR"),
        data_folder(str(tmp_path)),
    ):
        pass
    with data_folder(str(tmp_path)) as folder:
        assert folder == tmp_path


@pytest.mark.parametrize("name", ["no_such_module.handler", "headrace.no_such_function", "nothing"])
def test_a_handler_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(LocalServiceError, match=name):
        load_handler(name)
