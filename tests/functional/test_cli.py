"""`headrace` as a user runs it: a process of its own, against the real local service."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.launch import Launched
from tests.documented_lines import PAGES, command_lines
from tests.waiting import until

ROOT = Path(__file__).parents[2]
HEADRACE = [sys.executable, "-P", "-m", "headrace.cli.main"]

pytestmark = pytest.mark.slow  # each starts a process or several


def environment(service: Launched | None = None, **more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HEADRACE_")}
    where = {"HEADRACE_URL": service.url, "HEADRACE_KEY": service.admin_key} if service else {}
    return {**kept, "PYTHONPATH": str(ROOT / "functions"), **where, **more}


def headrace(
    service: Launched, *words: str, folder: Path | None = None, code: int = 0, **more: Any
) -> str:
    done = subprocess.run(
        [*HEADRACE, *words],
        env=environment(service),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )
    assert done.returncode == code, done.stderr
    return str(done.stdout)


def test_ctrl_c_ends_what_follows_with_130(service: Launched) -> None:
    headrace(service, "queue", "create", "followed")
    headrace(service, "enqueue", "followed", "1", "--id", "seen")
    follower = subprocess.Popen(
        [*HEADRACE, "task", "tail", "followed", "--since", "-1h", "--interval", "50ms"],
        env=environment(service),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    line = follower.stdout.readline()

    follower.send_signal(signal.SIGINT)

    assert "seen" in line
    assert follower.wait(20) == 130
    assert follower.communicate()[1].strip() == "interrupted"


# ------------------------------------------------------------------------------------------- run


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `headrace run` in *folder*; give the process and what it greets with on a terminal."""
    terminal, its_end = os.openpty()
    process = subprocess.Popen(
        [*HEADRACE, "run", *words],
        env=environment(),
        cwd=folder,
        stdout=its_end,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(its_end)
    with os.fdopen(terminal) as output:
        try:
            greeting = ""
            while "Ctrl-C stops it." not in greeting:
                line = output.readline()
                assert line, process.stderr and process.stderr.read()
                greeting += line
            yield process, greeting
        finally:
            process.kill()
            process.communicate()


def test_run_prints_two_lines_to_paste_and_ends_as_the_service_does(tmp_path: Path) -> None:
    with running(tmp_path, "--port", "0") as (process, greeting):
        pasted = dict(re.findall(r"^  export (HEADRACE_\w+)=(\S+)$", greeting, re.MULTILINE))
        done = subprocess.run(
            [*HEADRACE, "queue", "create", "mail"],
            env=environment() | pasted,
            timeout=60,
            check=False,
        )
        command_line = Path(f"/proc/{process.pid}/cmdline")
        shown = command_line.read_text() if command_line.exists() else ""
        process.send_signal(signal.SIGTERM)

        assert set(pasted) == {"HEADRACE_URL", "HEADRACE_KEY"}
        assert done.returncode == 0
        assert pasted["HEADRACE_KEY"] not in shown
        assert process.wait(20) == 0
        assert re.fullmatch(documented_greeting(), greeting)
    assert (tmp_path / ".headrace").is_dir()


@pytest.mark.parametrize("given", [None, "a-key-of-sixteen-characters"])
def test_run_shows_the_key_to_a_terminal_only(tmp_path: Path, given: str | None) -> None:
    env = environment() | ({"HEADRACE_ADMIN_KEY": given} if given else {})
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            [*HEADRACE, "run", "--port", "0"], env=env, cwd=tmp_path, stdout=output, stderr=output
        )

        def text_of_ready_service() -> str:
            assert process.poll() is None
            text = Path(output.name).read_text()
            return text if "Ctrl-C stops it." in text else ""

        text = until(text_of_ready_service, 60)
        lines = "\n".join(re.findall(r"^  export .*$", text, re.MULTILINE))
        script = f"{lines}\n{' '.join(HEADRACE)} queue create mail"
        done = subprocess.run(["/bin/sh", "-c", script], env=env, timeout=60, check=False)
        process.terminate()
        process.wait(20)

    key = given or (tmp_path / ".headrace" / "admin.key").read_text().strip()
    assert key not in text
    assert done.returncode == 0


RUN_LINES = sorted({line.words[1:] for line in command_lines() if line.words[:1] == ("run",)})


@pytest.mark.parametrize("words", RUN_LINES, ids=" ".join)
def test_every_line_of_the_documentation_that_starts_a_service_does(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with running(tmp_path, "--port", "0", *words) as (process, greeting):
        process.send_signal(signal.SIGTERM)

        assert "Headrace is ready." in greeting
        assert process.wait(20) == 0


def documented_greeting() -> str:
    """Return the output of `headrace run` on the page that shows it whole, as a pattern."""
    pattern = re.compile(r"^\$ headrace run\n([^`]*Admin key.*?)```", re.MULTILINE | re.DOTALL)
    found = next(filter(None, (pattern.search(page.read_text()) for page in PAGES)))
    return re.escape(found[1]).replace("…", r"\S+").replace("8080", r"\d+")


def test_what_is_taken_is_refused_naming_the_option(tmp_path: Path) -> None:
    refusals = {}
    with running(tmp_path, "--port", "0", "--data-dir", "data") as (_, greeting):
        (port,) = re.findall(r"URL .*:(\d+)$", greeting, re.MULTILINE)
        taken = {"--port": ["--port", port], "--data-dir": ["--port", "0", "--data-dir", "data"]}
        for named, words in taken.items():
            refusals[named] = subprocess.run(
                [*HEADRACE, "run", *words],
                env=environment(),
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

    for named, done in refusals.items():
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert f"say {named} with another" in done.stderr
        assert "HEADRACE_" not in done.stderr
        assert done.stderr.count("\n") == 1
