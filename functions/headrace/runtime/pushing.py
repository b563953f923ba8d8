"""Dispatchers: they send the tasks of one queue to its target and report the answers.

One loop takes tasks and reports them; only it calls the store.  Threads send: each gets a task from
the loop and returns the answer.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.domain.errors import HeadraceError, NotFound, Unavailable
from headrace.domain.push import REFUSED_TYPE, Target
from headrace.domain.push_messages import TargetAnswer
from headrace.domain.task import Task
from headrace.push.sending import CallFunction, TargetSender
from headrace.runtime.service import Service
from headrace.safe_logging import safe_logger

if TYPE_CHECKING:
    from headrace.ops.delivery.push import PushRun

_LINGER_SECONDS: Final = 3.0  # without tasks; longer than the second in which a queue starts one
_SOON_SECONDS: Final = 60.0  # tasks due within this have no other timer
_LOOK_SECONDS: Final = 0.05  # between looks while requests are in flight
_NEXT_SECONDS: Final = 0.001  # to wait for the next answer, up to so many:
_TOGETHER: Final = 25
_END_MARGIN: Final = 5.0  # seconds for the reports at the end
_log: Final = safe_logger(__name__)

_Work: TypeAlias = tuple[Task, Target, Sequence[str]]
_Done: TypeAlias = tuple[Task, TargetAnswer, float]


@dataclass(slots=True)
class Dispatcher:
    """Runs until no task is due for some seconds, *time_left* (seconds) is over, or *stopping*.

    Before it ends, it reports the requests in flight.
    """

    use: Service
    steps: "PushRun"
    wait_seconds: float = 0.0
    time_left: Callable[[], float] = lambda: float("inf")
    stopping: threading.Event = field(default_factory=threading.Event)
    linger: float = _LINGER_SECONDS
    sent: int = field(default=0, init=False)
    _look_at: float = field(default=float("-inf"), init=False)
    _secrets: Sequence[str] = field(default=(), init=False)
    _work: SimpleQueue[_Work | None] = field(default_factory=SimpleQueue, init=False)
    _done: SimpleQueue[_Done] = field(default_factory=SimpleQueue, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    def run(self) -> int:
        """Send tasks; return the number of requests."""
        try:
            self._loop()
        finally:
            for _ in self._threads:
                self._work.put(None)
            self._report_last_answers()
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
                _log.warning("The dispatcher of queue %s waits: %s", self.steps.queue, error)
                self.stopping.wait(1.0)
                fetched = 0
            if self.steps.inflight or fetched:
                idle_since = None
                continue
            if not self._may_fetch():
                return
            idle_since = idle_since or time.monotonic()
            pause = self._pause(time.monotonic() - idle_since)
            if pause is None:
                return
            self.stopping.wait(pause)

    def _may_fetch(self) -> bool:
        if self.stopping.is_set() or not self.steps.holds:
            return False
        target = self.steps.target
        if target is None:
            return False
        return self.time_left() > float(target.timeout_in_seconds) + _END_MARGIN

    def _fetch(self) -> int:
        """Take tasks and give them to threads; return their number."""
        target = self.steps.target
        if target is None or time.monotonic() < self._look_at:
            return 0
        if not self._may_fetch() or not self.steps.room:
            return 0
        wait = 0.0 if self.steps.inflight else self.wait_seconds
        secrets = self._secrets or self.steps.secrets()  # it may fail, so before fetch()
        tasks = self.steps.fetch(wait_seconds=wait)
        if not tasks:  # on AWS, each look costs
            self._look_at = time.monotonic() + self.steps.poll_after
        else:
            with suppress(NotFound, Unavailable):  # a rotation may have changed them
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
        """Return the answers received; wait a moment for the first one.

        Answers in quick succession are taken together, because a report of ten costs little more
        than a report of one.
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

    def _report_last_answers(self) -> None:
        """Report the requests in flight while there is time; the others are released."""
        while self.steps.inflight and self.steps.holds and self.time_left() > _END_MARGIN:
            try:
                self.steps.renew()
            except HeadraceError as error:
                _log.warning("The dispatcher of queue %s ends: %s", self.steps.queue, error)
                return
            self.steps.settle(self._answers())

    def _pause(self, idle: float) -> float | None:
        """Return the seconds to wait without tasks to send; None to end."""
        due = self.use.push.seconds_to_work(self.steps.queue)
        if due is None or due > self.linger + _SOON_SECONDS:
            return None if idle >= self.linger else max(_LOOK_SECONDS, self.steps.poll_after)
        return min(max(due, self.steps.poll_after, 0.001), 1.0)

    def _send(self) -> None:
        settings = self.use.settings.push
        call_function = _function_caller() if settings.functions else None
        sender = TargetSender(settings.hosts, self.use.now, call_function)
        try:
            while (work := self._work.get()) is not None:
                task, target, secrets = work
                began = time.monotonic()
                try:
                    answer = sender.send(target, task, secrets)
                except Exception:  # noqa: BLE001 (the edge of a thread: a task must not hang in it)
                    _log.exception("Task %s could not be sent", task.id)
                    message = "the service failed to send it; its log says why"
                    answer = TargetAnswer(None, error=REFUSED_TYPE, message=message)
                self._done.put((task, answer, time.monotonic() - began))
        finally:
            sender.close()


def dispatcher_of(
    use: Service,
    queue: str,
    number: int,
    *,
    time_left: Callable[[], float] = lambda: float("inf"),
    stopping: threading.Event | None = None,
    wait_seconds: float = 0.0,
) -> Dispatcher | None:
    """Take a seat of *queue* and return its dispatcher; None if another process has the seat.

    Raises Unavailable.
    """
    run = use.push.begin(queue, number)
    if run is None:
        return None
    return Dispatcher(use, run, wait_seconds, time_left, stopping or threading.Event())


def _function_caller() -> CallFunction | None:
    try:
        from headrace.store.services import call_function  # noqa: PLC0415  only with boto3
    except ImportError:
        return None
    return call_function
