"""`headrace run`: finding the service, and what it is given."""

import os
import subprocess
import sys
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


def test_ctrl_c_while_the_service_is_imported_is_no_traceback(tmp_path: Path) -> None:
    # The first process becomes a second one, which is interrupted and becomes the service.
    run = f"from headrace.cli.run import become; become([{sys.executable!r}, *{{}}], {{}})"
    service = "import sys; from headrace.local.__main__ import main; sys.exit(main([]))"
    interrupted = f"import signal; signal.raise_signal(signal.SIGINT)\n{service}"
    ran = subprocess.run(
        [sys.executable, "-c", run.format(["-c", interrupted], "__import__('os').environ")],
        env={**os.environ, "HEADRACE_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")
    assert not (tmp_path / "data").exists()
