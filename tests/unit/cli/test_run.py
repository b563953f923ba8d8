"""`headrace run`: finding the service, and what it is given."""

from pathlib import Path

import pytest

from headrace.cli.run import checkout, environment

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
    assert environment(given, processes=2)["HEADRACE_PROCESSES"] == "2"
    assert environment(given, host="0.0.0.0")["HEADRACE_HOST"] == "0.0.0.0"  # noqa: S104
    assert reported["HEADRACE_ADMIN_KEY"] == "k" * 16
    assert reported["PATH"] == "/bin"
    assert given == {"HEADRACE_PORT": "1", "PATH": "/bin"}
    assert not {"HEADRACE_ADMIN_KEY", "HEADRACE_PROCESSES"} & environment(given).keys()
