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

from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, every
from headrace.domain.change import KeyLock
from headrace.domain.errors import Unavailable
from headrace.embedded.pushing import Dispatchers
from headrace.embedded.service import EmbeddedService
from headrace.ops.shared.seats import RENEWED_EVERY, Seat, has_ended
from headrace.runtime.service import Service
from headrace.safe_logging import safe_logger
from headrace.store.base import Store
from headrace.store.sqlite import SqliteStore

MINUTE: Final = 60.0
_LOOK_FOR_ACTIONS: Final = 1.0  # seconds: one read of the file, that finds nothing most times

_KIND: Final = "seat"
_REST: Final = 1.0  # seconds until it is looked whether the seat is held
_FREE_AGAIN: Final = 2.0  # seconds until who has no seat looks again: one read
_END_WITHIN: Final = 5.0
_FREE_PAGES: Final = 256  # of the file, that stay for what comes next
_BATCH: Final = 1000  # writes
_FEW: Final = 50
_IDLE: Final = 0.25  # seconds

_log: Final = safe_logger("headrace.timers")


def timers_seat(
    store: Store,
    now: Callable[[], datetime],
    monotonic: Callable[[], float] = time.monotonic,
) -> Seat:
    """Return the seat of the timers. It is free as soon as its holder on this machine is killed."""
    return Seat(store, now, monotonic, is_gone=has_ended)


def file_store(service: EmbeddedService) -> SqliteStore:
    """Return the store of a service that is a file.  Raises TypeError for another one."""
    if not isinstance(service.store, SqliteStore):
        raise TypeError("tables are looked after by their deployment")
    return service.store


class Recorder(Protocol):
    """Hands writes of tasks to the recorder in the order they were made."""

    def step(self) -> float:
        """Record one batch; return the seconds to wait, 0 if there is more.  Raises Unavailable."""


class EmbeddedTimers:
    """Takes the seat as soon as it is free, and runs the jobs while it holds the seat.

    Use it in a with block.
    """

    def __init__(self, service: EmbeddedService, *, now: Callable[[], datetime]) -> None:
        self._use = service.use
        self.seat = timers_seat(service.store, now)
        self._ending = False
        self._resting: str | None = None  # why, as it was said last
        self._push = Dispatchers(service.use)
        self._recorder = _recorder_of(service, self._push.arrived)
        works: dict[str, Step] = {
            "reaper": every(MINUTE, self._use.reaping.run),
            "scheduler": every(MINUTE, self._use.ticking.run),
            "actions": every(_LOOK_FOR_ACTIONS, self._act),
            "recorder": self._recorder.step,
            "push": self._push.step,
            "batches": every(MINUTE, self._use.recording.service.counters.post_left),
        }
        if isinstance(service.store, SqliteStore):
            works["broom"] = every(MINUTE, partial(sweep, service.store))
        self._threads = [
            PeriodicThread("headrace-seat", self._sit, log=_log, after_fault=RENEWED_EVERY),
            *(
                PeriodicThread(f"headrace-{name}", self._while_held(work), log=_log)
                for name, work in works.items()
            ),
        ]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, and give up the seat."""
        self._ending = True
        for thread in self._threads:
            thread.stop()
        self._push.stop()
        for thread in self._threads:
            thread.join(_END_WITHIN)
        with suppress(Unavailable):  # then it lapses
            self.seat.give_up()

    def catch_up(self) -> bool:
        """Record what was written until now, unless another process has the seat: it does.

        Return whether this one has it.  Raises Unavailable.
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
        """Work on actions on many tasks, while there are any."""
        if self._use.actions.any_unfinished():
            goes_on = lambda: MINUTE if self.seat.held and not self._ending else 0.0  # noqa: E731
            self._use.action_work.run(time_left=goes_on)

    def _while_held(self, work: Step) -> Step:
        def step() -> float | None:
            if not self.seat.held:
                return UNTIL_WOKEN  # whoever takes it wakes this
            try:
                return work()
            except Unavailable as error:
                return self._rest(error)

        return step

    def _rest(self, error: Unavailable) -> float:
        """Say once why the timers rest, until they have worked again."""
        if str(error) != self._resting:
            _log.warning("Timers rest: %s", error)
        self._resting = str(error)
        return _REST


def _recorder_of(service: EmbeddedService, arrived: Callable[[Iterable[str]], None]) -> Recorder:
    if isinstance(service.store, SqliteStore):
        return LogRecorder(service.use, service.store, arrived=arrived)
    from headrace.embedded.stream import StreamRecorder  # noqa: PLC0415  a file needs no botocore
    from headrace.runtime.wiring import table_stream  # noqa: PLC0415  likewise

    return StreamRecorder(service.use, table_stream(service.use.settings), arrived=arrived)


def sweep(store: SqliteStore) -> None:
    """Forget what is past its time, as the cloud's tables do, and give the room back."""
    while store.forget().total:
        pass
    left = store.vacuum()
    while left > _FREE_PAGES and (now := store.vacuum()) < left:
        left = now


class LogRecorder:
    """Hands the log of the file's writes to the recorder, and drops what that has counted."""

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
        """Record one batch; return the seconds to rest.  Raises Unavailable."""
        with self._turn:
            return self._step()

    def _step(self) -> float:
        if not self._shard:
            self._shard = self._name()
        # Another process may have held the seat meanwhile, so it is read anew after each rest.
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
        """Return the name that the file's log has, in a lake that may hold those of others too."""
        store, lock = self._store, KeyLock(_KIND, "log", f"file-{uuid4().hex[:12]}")
        store.set_key_lock(lock)
        return store.key_lock(_KIND, "log") or ""
