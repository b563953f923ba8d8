"""One dispatcher at work: a loop that takes and reports, and threads that send.

Only the loop speaks to the tables; a thread gets a task, sends it, and hands back what came of it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeAlias

from headrace.domain.errors import HeadraceError, NotFound, Unavailable
from headrace.domain.push import REFUSED_TYPE, Target
from headrace.domain.push_answers import TargetAnswer
from headrace.domain.task import Task
from headrace.push.sending import PushSender
from headrace.safe_logging import safe_logger

NewSender: TypeAlias = Callable[[], PushSender]

_LOOK_SECONDS: Final = 0.05  # between looks while requests are under way
_NEXT_SECONDS: Final = 0.001  # for the next answer, until there are so many:
_TOGETHER: Final = 25
_END_MARGIN: Final = 5.0  # seconds kept for the reports at the end
_log: Final = safe_logger(__name__)


class PushSteps(Protocol):
    """What a dispatcher does with the tables: ``ops.delivery.push.PushRun``."""

    inflight: dict[str, tuple[Task, float]]
    poll_after: float

    @property
    def holds(self) -> bool: ...
    @property
    def room(self) -> int: ...
    @property
    def target(self) -> Target | None: ...
    def secrets(self) -> Sequence[str]: ...
    def fetch(self, *, wait_seconds: float = 0) -> Sequence[Task]: ...
    def settle(self, answers: Sequence[tuple[Task, TargetAnswer, float]]) -> None: ...
    def renew(self) -> None: ...
    def close(self) -> None: ...


_Work: TypeAlias = tuple[Task, Target, Sequence[str]]
_Done: TypeAlias = tuple[Task, TargetAnswer, float]


@dataclass(slots=True)
class PushLoop:
    """Runs one dispatcher until nothing falls due for *linger* seconds, or its time is over.

    *time_left* is how many seconds there are still; *seconds_to_work* when something falls due.
    *stopping* ends it as soon as what is under way is reported.
    """

    steps: PushSteps
    new_sender: NewSender
    seconds_to_work: Callable[[], float | None]
    linger: float = 2.0
    wait_seconds: float = 0.0
    time_left: Callable[[], float] = lambda: float("inf")
    stopping: threading.Event = field(default_factory=threading.Event)
    monotonic: Callable[[], float] = time.monotonic
    sent: int = field(default=0, init=False)
    _look_at: float = field(default=float("-inf"), init=False)
    _secrets: Sequence[str] = field(default=(), init=False)
    _work: SimpleQueue[_Work | None] = field(default_factory=SimpleQueue, init=False)
    _done: SimpleQueue[_Done] = field(default_factory=SimpleQueue, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    def run(self) -> int:
        """Send what there is; return how many requests that took."""
        try:
            self._loop()
        finally:
            for _ in self._threads:
                self._work.put(None)
            self._last_answers()
            self.steps.close()
        return self.sent

    def _loop(self) -> None:
        idle_since: float | None = None
        while True:
            try:
                self.steps.renew()
                self.steps.settle(self._answers())
                fetched = self._fetch()
            except Unavailable as error:
                _log.warning("The dispatcher rests: %s", error)
                self.stopping.wait(1.0)
                fetched = 0
            if self.steps.inflight or fetched:
                idle_since = None
                continue
            if not self._goes_on():
                return
            idle_since = idle_since or self.monotonic()
            rest = self._rest(self.monotonic() - idle_since)
            if rest is None:
                return
            self.stopping.wait(rest)

    def _goes_on(self) -> bool:
        if self.stopping.is_set() or not self.steps.holds:
            return False
        target = self.steps.target
        if target is None:
            return False
        return self.time_left() > float(target.timeout_in_seconds) + _END_MARGIN

    def _fetch(self) -> int:
        """Take tasks and hand them to threads; return how many."""
        target = self.steps.target
        if target is None or self.monotonic() < self._look_at:
            return 0
        if not self._goes_on() or not self.steps.room:
            return 0
        wait = 0.0 if self.steps.inflight else self.wait_seconds
        secrets = self._secrets or self.steps.secrets()  # it may fail: so before tasks are taken
        tasks = self.steps.fetch(wait_seconds=wait)
        if not tasks:  # each look costs, in the cloud
            self._look_at = self.monotonic() + self.steps.poll_after
        else:
            with suppress(NotFound, Unavailable):  # they may have been rotated meanwhile
                secrets = self.steps.secrets()
        self._secrets = secrets
        for task in tasks:
            self._work.put((task, target, secrets))
        while len(self._threads) < len(self.steps.inflight):
            name = f"headrace-push-{len(self._threads)}"
            thread = threading.Thread(target=self._send, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self.sent += len(tasks)
        return len(tasks)

    def _answers(self) -> list[_Done]:
        """Return what has come back; while nothing has, wait a moment for it.

        Of answers that come one upon the other many are taken together: a report of ten costs
        hardly more than a report of one.
        """
        found: list[_Done] = []
        if not self.steps.inflight:
            return found
        wait = _LOOK_SECONDS
        try:
            while len(found) < len(self.steps.inflight):
                found.append(self._done.get(timeout=wait))
                wait = _NEXT_SECONDS if len(found) < _TOGETHER else 0.0
        except Empty:
            pass
        return found

    def _last_answers(self) -> None:
        """Report what is under way, as long as there is time; what is not goes back."""
        while self.steps.inflight and self.steps.holds and self.time_left() > _END_MARGIN:
            try:
                self.steps.renew()
            except HeadraceError as error:
                _log.warning("The dispatcher ends: %s", error)
                return
            self.steps.settle(self._answers())

    def _rest(self, idle: float) -> float | None:
        """Return how long to rest with nothing to send; None to end."""
        due = self.seconds_to_work()
        if due is None or due > max(self.linger, 0.0) + _SOON_SECONDS:
            return None if idle >= self.linger else max(_LOOK_SECONDS, self.steps.poll_after)
        return min(max(due, self.steps.poll_after, 0.001), 1.0)

    def _send(self) -> None:
        sender = self.new_sender()
        try:
            while (work := self._work.get()) is not None:
                task, target, secrets = work
                began = self.monotonic()
                try:
                    answer = sender.send(target, task, secrets)
                except Exception:  # noqa: BLE001 (the edge of a thread: a task must not hang in it)
                    _log.exception("Task %s could not be sent", task.id)
                    message = "the service failed to send it; its log says why"
                    answer = TargetAnswer(None, error=REFUSED_TYPE, message=message)
                self._done.put((task, answer, self.monotonic() - began))
        finally:
            sender.close()


_SOON_SECONDS: Final = 60.0
"""What falls due within this is waited for: nothing else would look earlier."""
