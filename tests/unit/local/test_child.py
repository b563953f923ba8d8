"""A process beside the service, with another program in its place: begun again, and ended."""

import logging
import os
import select
import signal
import threading
import time
from pathlib import Path

import pytest

from headrace.local.child import SupervisedProcess

SOON = 30.0  # seconds until a test gives up
LOG = logging.getLogger("headrace.tests")


class Heard(logging.Handler):
    """Tells that something was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, _record: logging.LogRecord) -> None:
        self.event.set()


class Children:
    """Children that say their process id when they begin, and end when their stdin does."""

    def __init__(self, folder: Path) -> None:
        path = folder / "begun"
        os.mkfifo(path)
        self._begun = os.open(path, os.O_RDWR)
        self.command = ["sh", "-c", f"echo $$ > {path}; exec cat"]

    def next(self) -> int:
        readable, _, _ = select.select([self._begun], [], [], SOON)
        assert readable, "no child has begun"
        return int(os.read(self._begun, 100))

    def close(self) -> None:
        os.close(self._begun)


def test_another_begins_when_it_is_killed_and_the_last_one_ends_with_the_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    children = Children(tmp_path)
    with SupervisedProcess("timers", children.command, log=LOG, again_seconds=0.01):
        first = children.next()
        os.kill(first, signal.SIGKILL)
        second = children.next()
    children.close()

    assert second != first
    for pid in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert caplog.messages == ["The process for timers ended with -9; another begins"]


def test_one_that_cannot_begin_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    children = Children(tmp_path)
    program = tmp_path / "sh"
    command = [str(program), *children.command[1:]]
    failed = Heard()
    LOG.addHandler(failed)
    with SupervisedProcess("timers", command, log=LOG, again_seconds=0.01):
        assert failed.event.wait(SOON)
        program.symlink_to("/bin/sh")
        assert children.next()
    LOG.removeHandler(failed)
    children.close()

    assert set(caplog.messages) == {"timers failed; it runs again in time"}


def test_it_is_given_the_files_that_it_inherits_and_no_others(tmp_path: Path) -> None:
    children = Children(tmp_path)
    given, kept = os.pipe()
    with SupervisedProcess("requests", children.command, log=LOG, inherits=[given]):
        pid = children.next()
        files = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    children.close()
    for number in (given, kept):
        os.close(number)

    assert given in files
    assert kept not in files


def test_all_that_are_told_to_end_do_so_at_the_same_time(tmp_path: Path) -> None:
    children = Children(tmp_path)
    with SupervisedProcess("timers", children.command, log=LOG) as one:
        first = children.next()
        with SupervisedProcess("requests", children.command, log=LOG) as another:
            second = children.next()
            for child in (one, another):
                child.let_end()
            wait_until_gone(first, second)
    children.close()


def wait_until_gone(*pids: int) -> None:
    for pid in pids:
        until = time.monotonic() + SOON
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < until
