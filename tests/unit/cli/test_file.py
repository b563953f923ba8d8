"""`headrace timers`, `backup` and `doctor` of a service that is a file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Client
from headrace.cli.session import CliSession
from headrace.store.sqlite import SqliteStore
from tests.unit.cli.cli_runner import Ran, invoke
from tests.waiting import until


def run(url: str, *words: str, code: int = 0) -> Ran:
    ran = invoke(*words, session=CliSession(env={"HEADRACE_URL": url}))
    assert ran.code == code, ran.err
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

    told = json.loads(run(url, "backup", str(copy), "--json").out)

    assert told == {"file": str(copy), "bytes": copy.stat().st_size}
    assert copy.stat().st_mode & 0o777 == 0o600
    with Client(f"file:{copy}") as client:
        assert client.count_tasks("mail").count == 1
    refused = run(url, "backup", str(copy), code=5)
    assert refused.err.startswith("error: ")
    assert str(copy) in refused.err


@pytest.mark.slow
def test_timers_hold_the_seat_until_they_are_stopped(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "timers"],
        env={**os.environ, "HEADRACE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    ) as timers:
        assert timers.stderr is not None
        said = timers.stderr.readline()
        held = until(lambda: seat_is_held(url), 30)
        timers.send_signal(signal.SIGTERM)
        timers.communicate(timeout=20)

    assert said.startswith("Running the timers of ")
    assert timers.returncode == 0
    assert held
    assert not seat_is_held(url)


def test_doctor_shows_damage_with_which_the_service_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    SqliteStore(str(path)).close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))

    ran = run(f"file:{path}", "doctor", "--json", code=6)

    file, service = json.loads(ran.out)
    assert (file["subject"], file["level"]) == ("file", "failed")
    assert file["advice"] == "stop the programs that use it, and restore a backup"
    assert "headrace doctor shows the damage" in service["seen"]
