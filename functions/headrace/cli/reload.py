"""`headrace work --reload`: the worker in a process of its own, made anew when a file changes.

For development.  The worker ends as it does when it is asked to stop: tasks under way end, or go
back with no attempt used.  One that cannot start, be it for a syntax error, is tried again at the
next change.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

from headrace.cli.session import need_packages
from headrace.client.threads import stop_signals

OPTION: Final = "--reload"
MODULE: Final = "headrace.cli.main"
_SHOWN: Final = 3
_LOOK_MILLISECONDS: Final = 200

Changes = Iterable[Sequence[str]]
"""Names of the files that have changed, time and again; none: nothing has, for a moment."""


class WorkerProcess(Protocol):
    """As much of `subprocess.Popen` as is used."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def wait(self) -> int:
        """Wait for its end; return the exit code."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""


class Reloading:
    """Starts worker after worker, one at a time; `note` says to a person what happens."""

    def __init__(self, start: Callable[[], WorkerProcess], note: Callable[[str], None]) -> None:
        self._start, self._note = start, note
        self._worker: WorkerProcess | None = None
        self._stopping = threading.Event()

    def stop(self, number: int, _frame: FrameType | None = None) -> None:
        """Hand a signal on to the worker; with it this ends too.  Called by the signal."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.send_signal(number)

    def run(self, changes: Changes) -> int:
        """Go on until asked to stop, or the worker ends in peace; return its exit code."""
        worker = self._worker = self._start()
        failed = False
        for changed in changes:
            code = worker.poll()
            if self._stopping.is_set() or code == 0:
                break
            if changed:
                self._note(f"{_named(changed)} changed: the worker begins anew")
                if code is None:
                    worker.send_signal(signal.SIGTERM)
                    worker.wait()
                if self._stopping.is_set():
                    break
                worker, failed = self._start(), False
                self._worker = worker
            elif code is not None and not failed:
                failed = True
                self._note(f"the worker ended with exit code {code}: a change begins it anew")
        return worker.wait()


def work_again(note: Callable[[str], None]) -> int:
    """Run this process's own command line without the option, again and again."""
    need_packages(f"{OPTION} needs", ["watchfiles"], "'headrace[reload]'")
    words = [word for word in sys.argv[1:] if word != OPTION]
    reloading = Reloading(lambda: _worker(words), note)
    for number in stop_signals():
        signal.signal(number, reloading.stop)
    return reloading.run(changes_in(Path.cwd()))


def _worker(words: Sequence[str]) -> WorkerProcess:
    # In a session of its own: Ctrl-C reaches it through this process, and once.  Windows has no
    # such thing, and no signal but the one that ends a process at once.  No bytecode is written: it
    # is told from stale by whole seconds, and a person may save twice in one.
    command = [sys.executable, "-P", "-B", "-m", MODULE, *words]
    return subprocess.Popen(command, start_new_session=os.name != "nt")  # noqa: S603 (our own)


def changes_in(folder: Path) -> Changes:
    """Watch the Python files of *folder* from now on, so that no change after this is missed."""
    from watchfiles import PythonFilter, watch  # noqa: PLC0415 (an extra)

    seen = watch(
        folder,
        watch_filter=PythonFilter(),
        rust_timeout=_LOOK_MILLISECONDS,
        yield_on_timeout=True,
        raise_interrupt=False,
    )
    first = next(seen)  # only now it begins
    return (
        sorted({os.path.relpath(name, folder) for _, name in changed})
        for changed in chain([first], seen)
    )


def _named(changed: Sequence[str]) -> str:
    shown = ", ".join(changed[:_SHOWN])
    more = len(changed) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
