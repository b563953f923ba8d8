"""`headrace work --reload`: when a worker is ended, and when the next begins."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until


@pytest.mark.slow
def test_a_saved_file_is_what_runs(tmp_path: Path) -> None:
    """The command itself: code that works, a syntax error, and code that works again."""
    app = tmp_path / "shop.py"
    text = (
        "from headrace import App\n"
        "app = App()\n"
        "@app.task(queue='mail')\n"
        "def send() -> None: ...\n"
        "print('loaded', {}, flush=True)\n"
    )
    app.write_text(text.format(1))
    command = [sys.executable, "-m", "headrace.cli.main", "work", "shop:app", "--reload"]
    env = {**os.environ, "HEADRACE_URL": f"file:{tmp_path}/own.db"}
    with (
        (tmp_path / "out").open("wb") as out,
        subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=out) as running,
    ):
        try:
            seen(tmp_path / "out", "headrace.worker: Worker")
            app.write_text("def\n")
            seen(tmp_path / "out", "ended with exit code 1: a change begins it anew")
            app.write_text(text.format(22))
            seen(tmp_path / "out", "loaded 22")
            seen(tmp_path / "out", "headrace.worker: Worker", times=2)
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 0
        finally:
            running.kill()
    assert (tmp_path / "out").read_text().count("headrace.worker: Stopped") == 2


def seen(out: Path, text: str, *, times: int = 1) -> None:
    """Wait until *text* is printed."""
    until(lambda: out.read_text().count(text) >= times, 30)
