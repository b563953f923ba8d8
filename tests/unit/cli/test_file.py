"""`headrace timers`, `backup` and `doctor` of a service that is a file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace import Client
from headrace.cli.doctor import file_advice
from headrace.store.sqlite import SqliteStore


def run(url: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", *words],
        env={**os.environ, "HEADRACE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"file:{tmp_path}/headrace.db"
    with Client(url) as client:
        client.create_queue("mail")
        client.enqueue("mail", {"to": "ada"})
    return url


def seat_is_held(url: str) -> bool:
    store = SqliteStore(url.removeprefix("file:"))
    try:
        return store.record("seat", "timers") is not None
    finally:
        store.close()


def test_a_backup_is_a_file_like_any_other_and_replaces_none(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    told = json.loads(run(url, "backup", str(copy), "--json").stdout)

    assert told == {"file": str(copy), "bytes": copy.stat().st_size}
    assert copy.stat().st_mode & 0o777 == 0o600
    with Client(f"file:{copy}") as client:
        assert client.count_tasks("mail").count == 1
    refused = run(url, "backup", str(copy), code=5)
    assert refused.stderr.startswith("error: ")
    assert str(copy) in refused.stderr


def test_the_commands_of_a_file_are_refused_for_a_service_that_is_none() -> None:
    refused = run("http://127.0.0.1:1", "timers", "--key", "hr_key", code=2)

    assert refused.stderr == (
        "error: `headrace timers` is for a service that is a file, as"
        " HEADRACE_URL=file:headrace.db: http://127.0.0.1:1 is none\n"
    )


def test_timers_hold_the_seat_until_they_are_stopped(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "timers"],
        env={**os.environ, "HEADRACE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    ) as timers:
        assert timers.stderr is not None
        said = timers.stderr.readline()
        deadline = time.monotonic() + 30
        while not (held := seat_is_held(url)) and time.monotonic() < deadline:
            time.sleep(0.05)
        timers.send_signal(signal.SIGTERM)
        timers.communicate(timeout=20)

    assert said.startswith("Running the timers of ")
    assert timers.returncode == 0
    assert held
    assert not seat_is_held(url)


def test_doctor_looks_at_the_file(url: str, tmp_path: Path) -> None:
    found = json.loads(run(url, "doctor", "--json").stdout)

    seen = {one["subject"]: one["seen"] for one in found}
    assert seen["file"] == f"{tmp_path}/headrace.db is whole"


def test_damage_fails_line_by_line() -> None:
    found = file_advice("h.db", ["row 7 missing from index tasks_by_state"])

    assert [(one.subject, one.seen, one.level) for one in found] == [
        ("file", "row 7 missing from index tasks_by_state", "failed")
    ]
