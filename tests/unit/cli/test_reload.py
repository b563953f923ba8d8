"""`headrace work --reload`: when a worker is ended, and when the next begins."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cli.reload import Changes, Reloading, changes_in
from headrace.cli.session import CliSession
from tests.unit.cli.cli_runner import invoke


class Worker:
    """A process that ends with a code of its own, or when it is asked to."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.code

    def wait(self) -> int:
        assert self.code is not None, "it would be waited for for ever"
        return self.code

    def send_signal(self, number: int, /) -> None:
        self.signals.append(number)
        self.code = 0


def reloaded(workers: list[Worker], changes: Callable[[Reloading], Changes]) -> list[str]:
    """Let *workers* start one after the other; return what a person reads, the code at its end."""
    notes: list[str] = []
    left = iter(workers)
    reloading = Reloading(lambda: next(left), notes.append)
    code = reloading.run(changes(reloading))
    assert next(left, None) is None, "one was never started"
    return [*notes, str(code)]


def ctrl_c(*before: list[str]) -> Callable[[Reloading], Changes]:
    def changes(reloading: Reloading) -> Iterator[list[str]]:
        yield from before
        reloading.stop(signal.SIGINT)
        yield []

    return changes


def test_a_change_ends_the_worker_and_begins_another() -> None:
    first, second = Worker(), Worker()

    notes = reloaded([first, second], ctrl_c([], ["a.py", "b.py"], []))

    assert first.signals == [signal.SIGTERM]
    assert second.signals == [signal.SIGINT]
    assert notes == ["a.py, b.py changed: the worker begins anew", "0"]


def test_one_that_cannot_start_is_tried_again_at_the_next_change_and_not_before() -> None:
    broken, mended = Worker(code=1), Worker()

    notes = reloaded([broken, mended], ctrl_c([], [], [], ["a.py"], []))

    assert broken.signals == []
    assert notes == [
        "the worker ended with exit code 1: a change begins it anew",
        "a.py changed: the worker begins anew",
        "0",
    ]


def test_one_that_an_operator_stops_stays_stopped() -> None:
    assert reloaded([Worker(code=0)], lambda _: [[], ["a.py"]]) == ["0"]


def test_ctrl_c_while_the_old_one_ends_starts_no_new_one() -> None:
    reloading: Reloading

    class Slow(Worker):
        def wait(self) -> int:
            if self.signals == [signal.SIGTERM]:
                reloading.stop(signal.SIGINT)
            return super().wait()

    slow = Slow()
    reloading = Reloading(iter([slow]).__next__, lambda _: None)

    assert reloading.run([["a.py"], []]) == 0
    assert slow.signals == [signal.SIGTERM, signal.SIGINT]


def test_many_files_are_counted() -> None:
    notes = reloaded([Worker(), Worker()], ctrl_c([f"{n}.py" for n in range(5)]))

    assert notes[0] == "0.py, 1.py, 2.py and 2 more changed: the worker begins anew"


@pytest.mark.slow
def test_a_change_right_after_the_start_is_not_missed(tmp_path: Path) -> None:
    changes = changes_in(tmp_path)
    (tmp_path / "shop.py").write_text("app = 1")  # before anybody has asked for the first

    assert next(changed for changed in changes if changed) == ["shop.py"]


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
    until = time.monotonic() + 30
    while out.read_text().count(text) < times:
        assert time.monotonic() < until, out.read_text()
        time.sleep(0.05)


def test_burst_and_reload_are_two_things() -> None:
    ran = invoke("work", "shop:app", "--burst", "--reload", session=CliSession(env={}))

    assert ran.code == 2
    assert "say one of them" in ran.error
