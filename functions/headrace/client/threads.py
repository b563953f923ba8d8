"""What a program that goes on needs: threads that act in turn, and signals as a call."""

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final, Self, TypeAlias

from headrace.safe_logging import SafeLogger

Died: TypeAlias = Callable[[BaseException], None]
"""Takes the error that has ended a thread; called in that thread."""

Step: TypeAlias = Callable[[], float | None]
"""Does something once; returns the seconds until the next step, or None for the last one."""

UNTIL_WOKEN: Final = 3600.0

_HANGUP: Final = getattr(signal, "SIGHUP", None)  # not on Windows


class PeriodicThread:
    """Takes steps in a thread, one at a time, until the last step or `stop`.

    Tests call the step themselves.  An error of a step is logged with its traceback, and the next
    step follows.  In a ``with`` block the thread runs during the block, whose end waits for the
    current step.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        *,
        first_after: float = 0.0,
        log: logging.Logger | SafeLogger,
        fault: str = "%s failed; it runs again in time",
        after_fault: float = 1.0,
        died: Died | None = None,
    ) -> None:
        """Prepare; *first_after* seconds lie before the first step, *after_fault* after a bad one.

        *fault* is what *log* says of that, with the name of the thread in it.  *died* is called
        when the thread ends with an error that is no Exception.
        """
        self.name, self.step = name, step
        self._first_after = first_after
        self._log, self._fault, self._after_fault = SafeLogger(log), fault, after_fault
        self._stopping = False
        self._woken = threading.Event()
        run = self._run if died is None else partial(call_on_death, died, self._run)
        self._thread = threading.Thread(target=run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Take the next step now."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """Take no further step."""
        self._stopping = True
        self._woken.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait, up to *timeout* seconds, for the last step; return whether it is over."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        """Begin."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; a step under way is waited for."""
        self.stop()
        self.join()

    def _run(self) -> None:
        if self._first_after:
            self._woken.wait(self._first_after)
        while not self._stopping:
            self._woken.clear()
            try:
                rest = self.step()
            except Exception:  # noqa: BLE001 (the edge of a thread: what is wrong is logged, and it goes on)
                self._log.exception(self._fault, self.name)
                rest = self._after_fault
            if rest is None:
                return
            if rest > 0 and not self._stopping:
                self._woken.wait(rest)


def call_on_death(died: Died, run: Callable[[], object]) -> None:
    """Run *run* in a thread; call *died* with any error that comes out of it."""
    try:
        run()
    except BaseException as error:  # noqa: BLE001 (the edge of a thread)
        died(error)


def every(seconds: float, action: Callable[[], object]) -> Step:
    """The step that does *action* once in so many seconds.

    One that takes longer is followed by the next at once, and what was missed is left out.
    """

    def step() -> float:
        started = time.monotonic()
        action()
        return max(0.0, started + seconds - time.monotonic())

    return step


def in_turn(*steps: Step) -> Step:
    """Return a step that runs the one of *steps* that has been due for the longest time.

    A step that raises is due again after a second.
    """
    due = dict.fromkeys(steps, 0.0)

    def step() -> float:
        first = min(due, key=lambda one: due[one])
        if (now := time.monotonic()) >= due[first]:
            due[first] = now + 1.0
            rest = first()
            due[first] = math.inf if rest is None else time.monotonic() + rest
        return max(0.0, min(due.values()) - time.monotonic())

    return step


def stop_signals() -> list[signal.Signals]:
    """Return the signals by which a program is asked to stop.

    They include SIGHUP, for a terminal that closes, unless the program ignores it, as under nohup,
    or handles it.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if _HANGUP is not None and signal.getsignal(_HANGUP) is signal.SIG_DFL:
        numbers.append(_HANGUP)
    return numbers


@contextmanager
def signals_to(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* for `stop_signals` during the block, if this is the main thread.

    The third signal does what it did before, for workers that do not end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in stop_signals()}
    received = 0

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def received_one(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        if received and number == _HANGUP:
            return  # a shell and its terminal both send the signal
        received += 1
        if received > 1:
            restore()
        stop()

    for number in before:
        signal.signal(number, received_one)
    try:
        yield
    finally:
        restore()
