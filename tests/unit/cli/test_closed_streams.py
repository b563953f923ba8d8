"""The command where stdin, stdout or stderr was closed before it began: `<&-`, `>&-`, `2>&-`."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Client


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A service with the queue mail, in which a task is due."""
    made = f"file:{tmp_path / 'headrace.db'}"
    with Client(made) as client:
        client.create_queue("mail")
        client.enqueue("mail", {"n": 1}, id="a")
    return made


def run(closed: str, url: str, *words: str) -> tuple[int, str, str]:
    """Run `headrace` with a stream *closed*, as a shell does it; return what came of it."""
    ran = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'exec "$0" -m headrace "$@" {closed}',
            sys.executable,
            *words,
            "--url",
            url,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("words", [("task", "list", "mail")])
def test_without_stdout_a_command_does_what_it_does(url: str, words: tuple[str, ...]) -> None:
    assert run(">&-", url, *words) == (0, "", "")


def test_without_stdin_there_is_nobody_to_ask(url: str) -> None:
    words = ("queue", "purge", "mail", "--state", "ENQUEUED")

    ran = run("<&-", url, *words)

    assert ran == run("", url, *words)
    assert ran[0] == 2
    assert "Say --yes" in ran[2]


@pytest.mark.parametrize(
    "words",
    [("enqueue", "mail", "-"), ("queue", "list", "--key-file", "-")],
)
def test_what_is_to_be_read_from_a_closed_stdin_is_missed(url: str, words: tuple[str, ...]) -> None:
    code, out, err = run("<&-", url, *words)

    first, *_ = err.splitlines()
    assert (code, out, first) == (2, "", "error: there is nothing to read: stdin is closed")
