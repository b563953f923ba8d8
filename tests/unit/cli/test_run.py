"""`headrace run`: finding the service, its engine, and what the service is told."""

from pathlib import Path

import pytest

from headrace.cli.run import checkout, ensure_engine, environment
from headrace.cli.session import CliSession, Failed

ROOT = Path(__file__).parents[3]


def test_the_service_is_found_in_the_checkout() -> None:
    assert checkout() == ROOT


def test_an_installed_copy_has_none(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "headrace"
    package.mkdir(parents=True)

    assert checkout(package) is None


def test_a_folder_means_the_same_one_to_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert environment({})["HEADRACE_DATA_DIR"] == str(tmp_path / ".headrace")
    assert environment({}, data_dir="x")["HEADRACE_DATA_DIR"] == str(tmp_path / "x")
    assert environment({}, data_dir=":memory:")["HEADRACE_DATA_DIR"] == ":memory:"
    kept = environment({"HEADRACE_DATA_DIR": "/data"})
    assert kept["HEADRACE_DATA_DIR"] == "/data"


def test_what_is_said_goes_by_the_environment() -> None:
    given = {"HEADRACE_PORT": "1", "PATH": "/bin"}

    reported = environment(given, port=0, admin_key="k" * 16)

    assert reported["HEADRACE_PORT"] == "0"
    assert environment(given, host="0.0.0.0")["HEADRACE_HOST"] == "0.0.0.0"  # noqa: S104
    assert reported["HEADRACE_ADMIN_KEY"] == "k" * 16
    assert reported["PATH"] == "/bin"
    assert given == {"HEADRACE_PORT": "1", "PATH": "/bin"}
    assert "HEADRACE_ADMIN_KEY" not in environment(given)


def npm(folder: Path, script: str) -> CliSession:
    """Return a session whose PATH has an npm that runs *script*."""
    program = folder / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return CliSession(env={"PATH": str(program.parent)})


def test_an_engine_that_is_there_is_left_alone(tmp_path: Path) -> None:
    binary = tmp_path / "node_modules" / "@dynoxide" / "linux-x64" / "dynoxide"
    binary.parent.mkdir(parents=True)
    binary.touch()

    ensure_engine(CliSession(env={"PATH": ""}), tmp_path)


def test_a_missing_engine_is_installed_with_a_line_saying_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = npm(tmp_path, 'echo noise; echo "$PWD $1" > said')

    ensure_engine(session, tmp_path)

    assert capfd.readouterr() == ("", "Installing the embedded engine, once: npm ci\n")
    assert (tmp_path / "said").read_text() == f"{tmp_path} ci\n"


def test_an_npm_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="npm ended with 7"):
        ensure_engine(npm(tmp_path, "exit 7"), tmp_path)


def test_without_npm_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"install Node\.js 18 or newer, or set HEADRACE_DYNAMODB_URL"):
        ensure_engine(CliSession(env={"PATH": str(tmp_path)}), tmp_path)
