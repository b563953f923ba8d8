"""The background jobs of a service on one machine, over a file or over DynamoDB tables.

The process that holds the seat of the timers runs them.  Another process takes the seat when the
holder gives it up, does not renew it for a minute, or was killed.  Two processes that hold it for a
moment do no harm: each job may run twice at the same time.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, Protocol, Self
from uuid import uuid4

from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, every, in_turn
from headrace.domain.change import KeyLock
from headrace.domain.errors import Unavailable
from headrace.embedded.service import EmbeddedService
from headrace.ops.shared.seats import RENEWED_EVERY, Seat, has_ended
from headrace.runtime.pushing import dispatcher_of
from headrace.runtime.service import Service
from headrace.safe_logging import safe_logger
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore

MINUTE: Final = 60.0
_LOOK_FOR_ACTIONS: Final = 1.0  # seconds; one read of the file

_KIND: Final = "seat"
_REST: Final = 1.0  # seconds between checks for the seat
_FREE_AGAIN: Final = 2.0  # seconds between attempts to take the seat; one read
_END_WITHIN: Final = 5.0
_FREE_PAGES: Final = 256  # of the file, which are kept for new data
_BATCH: Final = 1000  # writes
_FEW: Final = 50
_IDLE: Final = 0.25  # seconds

_PUSH_LOOKS_EVERY: Final = 1.0  # seconds between looks for due tasks of targets
_TARGETS_EVERY: Final = 10.0  # seconds between looks for targets
_PUSH_WAIT: Final = 0.5  # seconds that a dispatcher waits for the next task

_log: Final = safe_logger("headrace.timers")
_push_log: Final = safe_logger("headrace.push")


def timers_seat(
    store: Store,
    now: Callable[[], datetime],
    monotonic: Callable[[], float] = time.monotonic,
) -> Seat:
    """Return the seat of the timers. It is free when its holder on this machine was killed."""
    return Seat(store, now, monotonic, is_gone=has_ended)


def file_store(service: EmbeddedService) -> SqliteStore:
    """Return the store of a service over a file. Raises TypeError for other services."""
    if not isinstance(service.store, SqliteStore):
        raise TypeError("tables are looked after by their deployment")
    return service.store


class Recorder(Protocol):
    """Passes writes of tasks to the recorder in the order in which they were made."""

    def step(self) -> float:
        """Record one batch; return the seconds to wait, 0 if there is more.  Raises Unavailable."""


class EmbeddedTimers:
    """Takes the seat as soon as it is free, and runs the jobs while it holds the seat.

    Use it in a with block.
    """

    def __init__(self, service: EmbeddedService, *, now: Callable[[], datetime]) -> None:
        self._use = service.use
        self.seat = timers_seat(service.store, now)
        self._resting: str | None = None  # the reason that was logged last
        self._push = Dispatchers(service.use)
        self._recorder = _recorder_of(service, self._push.arrived)
        upkeep = [
            every(MINUTE, self._use.reaping.run),
            every(_LOOK_FOR_ACTIONS, self._act),
            every(MINUTE, self._use.recording.service.counters.post_left),
        ]
        if isinstance(service.store, SqliteStore):
            upkeep.append(every(MINUTE, partial(sweep, service.store)))
        # What takes long does not hold up what must be on time.
        steps = {
            "recorder": in_turn(self._sit, self._while_held(self._recorder.step, _FREE_AGAIN)),
            "scheduler": self._while_held(
                in_turn(every(MINUTE, self._use.ticking.run), self._push.step)
            ),
            "upkeep": self._while_held(in_turn(*upkeep)),
        }
        self._threads = [
            PeriodicThread(f"headrace-{name}", step, log=_log) for name, step in steps.items()
        ]

    def __enter__(self) -> Self:
        """Start the jobs."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the jobs and give up the seat."""
        for thread in self._threads:
            thread.stop()
        self._push.stop()
        for thread in self._threads:
            thread.join(_END_WITHIN)
        with suppress(Unavailable):  # then the seat lapses
            self.seat.give_up()

    def catch_up(self) -> bool:
        """Record all writes until now, unless another process has the seat and does this.

        Return whether this process has it. Raises Unavailable.
        """
        if not self.seat.held:
            self._sit()
        if not self.seat.held:
            return False
        while self._recorder.step() == 0.0:
            pass
        return True

    def _sit(self) -> float:
        held = self.seat.held
        try:
            taken = self.seat.take()
        except Unavailable as error:
            return self._rest(error)
        self._resting = None
        if taken and not held:
            _log.info("This process runs the timers")
            for thread in self._threads[1:]:
                thread.wake()
        return RENEWED_EVERY if taken else _FREE_AGAIN

    def _act(self) -> None:
        """Process actions on many tasks for a second at most."""
        if self._use.actions.any_unfinished():
            until = time.monotonic() + _LOOK_FOR_ACTIONS
            self._use.action_work.run(time_left=lambda: until - time.monotonic())

    def _while_held(self, work: Step, rest: float = UNTIL_WOKEN) -> Step:
        """Run *work* only if this process has the seat; `_sit` wakes the threads when it does."""

        def step() -> float | None:
            if not self.seat.held:
                return rest
            try:
                return work()
            except Unavailable as error:
                return self._rest(error)

        return step

    def _rest(self, error: Unavailable) -> float:
        """Log once why the timers pause; return the seconds until they try again."""
        if str(error) != self._resting:
            _log.warning("Timers rest: %s", error)
        self._resting = str(error)
        return _REST


def _recorder_of(service: EmbeddedService, arrived: Callable[[Iterable[str]], None]) -> Recorder:
    if isinstance(service.store, SqliteStore):
        return LogRecorder(service.use, service.store, arrived=arrived)
    from headrace.embedded.stream import StreamRecorder  # noqa: PLC0415  a file needs no botocore
    from headrace.runtime.wiring import table_stream  # noqa: PLC0415  same reason

    return StreamRecorder(service.use, table_stream(service.use.settings), arrived=arrived)


def sweep(store: SqliteStore) -> None:
    """Delete what is past its retention, as the cloud's tables do, and release free pages."""
    while store.forget().total:
        pass
    left = store.vacuum()
    while left > _FREE_PAGES and (now := store.vacuum()) < left:
        left = now


class LogRecorder:
    """Passes the log of the file's writes to the recorder, and deletes the recorded part."""

    def __init__(
        self,
        use: Service,
        store: SqliteStore,
        *,
        arrived: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        self._use, self._store, self._arrived = use, store, arrived
        self._shard = ""
        self._position = -1
        self._turn = threading.Lock()

    def step(self) -> float:
        """Record one batch; return the seconds to wait. Raises Unavailable."""
        with self._turn:
            return self._step()

    def _step(self) -> float:
        if not self._shard:
            self._shard = self._name()
        # Read again after each pause, because another process may have had the seat.
        self._position = max(self._position, self._use.recording.position(self._shard))
        writes = self._store.writes(after=self._position, limit=_BATCH)
        if writes:
            recorded = self._use.recording.record(self._shard, writes)
            for reason in recorded.unreadable:
                _log.error("A write is left out of history: %s", reason)
            if recorded.failed_at is not None:
                return _REST
            self._arrived(recorded.arrived)
            self._position = writes[-1].sequence
            self._store.trim(self._position)
        return 0.0 if len(writes) == _BATCH else _REST if len(writes) > _FEW else _IDLE

    def _name(self) -> str:
        """Return the name of the file's log, which is unique in a lake of several services."""
        store, lock = self._store, KeyLock(_KIND, "log", f"file-{uuid4().hex[:12]}")
        store.set_key_lock(lock)
        return store.key_lock(_KIND, "log") or ""


# ------------------------------------------------------------------------------------- dispatchers


class Dispatchers:
    """Starts dispatchers, in threads, for queues with a target and with due tasks."""

    def __init__(self, use: Service, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._use, self._monotonic = use, monotonic
        self._running: dict[tuple[str, int], threading.Thread] = {}
        self._stopping = threading.Event()
        self._known: list[str] = []
        self._looked_at = float("-inf")

    def arrived(self, names: Iterable[str]) -> None:
        """Start dispatchers for the tasks that arrived in these queues."""
        for queue, number in self._use.push_targets.for_arrivals(names):
            self._start(queue, number)

    def step(self) -> float:
        """Start dispatchers for tasks that become due; return the seconds to wait."""
        push, now = self._use.push, self._monotonic()
        if now - self._looked_at >= _TARGETS_EVERY:
            self._known = [name for name, _ in self._use.push_targets.targets()]
            self._looked_at = now
        for name in self._known:
            target, due = push.target_of(name), push.seconds_to_work(name)
            if target is not None and due is not None and due <= _PUSH_LOOKS_EVERY:
                for number in range(target.seats):
                    self._start(name, number)
        return _PUSH_LOOKS_EVERY

    def stop(self) -> None:
        """Stop all dispatchers: they report finished tasks and release the others."""
        self._stopping.set()
        until = self._monotonic() + _END_WITHIN
        for thread in list(self._running.values()):
            thread.join(max(0.0, until - self._monotonic()))

    def _start(self, queue: str, number: int) -> None:
        running = self._running.get((queue, number))
        if self._stopping.is_set() or (running is not None and running.is_alive()):
            return
        thread = threading.Thread(
            target=self._run, args=(queue, number), name=f"headrace-push-{queue}", daemon=True
        )
        self._running[queue, number] = thread
        thread.start()

    def _run(self, queue: str, number: int) -> None:
        try:
            loop = dispatcher_of(
                self._use, queue, number, stopping=self._stopping, wait_seconds=_PUSH_WAIT
            )
            if loop is not None:
                loop.run()
        except Unavailable as error:
            _push_log.warning("Nothing is sent of queue %s for now: %s", queue, error)
        except Exception:  # noqa: BLE001 (the edge of a thread: what is wrong is logged, and it is started again)
            _push_log.exception("The dispatcher of queue %s failed; it starts again in time", queue)
