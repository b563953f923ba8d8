"""What a deployment's timers do, for a file: done by whichever process holds the file's seat.

The seat is a lease like any other: it lasts a minute, its holder renews it every twenty seconds and
gives it up when it ends, and then the next process to look takes it; so does one that finds its
holder killed.  Two that hold it for a
moment, as after a long sleep of the machine, do no harm: each work may be done by two at once.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Self
from uuid import uuid4

from headrace.client.threads import UNTIL_WOKEN, PeriodicThread, Step, every
from headrace.domain.change import KeyLock
from headrace.domain.errors import Unavailable
from headrace.domain.instants import instant_of, micros_of
from headrace.embedded.service import EmbeddedService
from headrace.runtime.wiring import UseCases
from headrace.store.base import Record, Store
from headrace.store.sqlite import SqliteStore

LASTS: Final = timedelta(seconds=60)
RENEWED_EVERY: Final = 20.0  # seconds
MINUTE: Final = 60.0

_KIND: Final = "seat"
_NAME: Final = "timers"
_REST: Final = 1.0  # seconds until it is looked whether the seat is held
_END_WITHIN: Final = 5.0
_FREE_PAGES: Final = 256  # of the file, that stay for what comes next
_BATCH: Final = 1000  # writes
_FEW: Final = 50
_IDLE: Final = 0.25  # seconds

_log: Final = logging.getLogger("headrace.timers")


@dataclass(slots=True)
class Seat:
    """A place that one process at a time may have."""

    store: Store
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    holder: str = field(
        default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex}"
    )
    _until: float = 0.0  # monotonic

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self.monotonic() < self._until

    def take(self) -> bool:
        """Take or renew it, unless another has it; tell whether it is held.  Raises Unavailable."""
        now, asked = self.now(), self.monotonic()
        store = self.store
        there = store.record(_KIND, _NAME)
        if there is not None and self._of_another(there.body, now):
            self._until = 0.0
            return False
        body = {"holder": self.holder, "until": micros_of(now + LASTS)}
        version = 0 if there is None else there.version
        record = Record(_KIND, _NAME, body, version + 1)
        if store.put_record(record, replaces=there.version if there else None):
            self._until = asked + LASTS.total_seconds()
        else:
            self._until = 0.0
        return self.held

    def give_up(self) -> None:
        """Let the next one have it."""
        self._until = 0.0
        there = self.store.record(_KIND, _NAME)
        if there is not None and there.body["holder"] == self.holder:
            self.store.drop_record(_KIND, _NAME, version=there.version)

    def _of_another(self, body: Mapping[str, Any], now: datetime) -> bool:
        until = instant_of(body["until"])
        # One from far ahead was written before the clock was set back.
        lasts = now < until <= now + LASTS
        return body["holder"] != self.holder and lasts and not _is_gone(body["holder"])


def _is_gone(holder: str) -> bool:
    """Tell whether *holder* is known to have ended: a process of this machine, which is no more."""
    host, pid, _ = holder.split(":")
    if sys.platform == "win32" or host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)  # only asks
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's
        return False
    return False


def file_store(service: EmbeddedService) -> SqliteStore:
    """Return the store of a service that is a file.  Raises TypeError for another one."""
    if not isinstance(service.store, SqliteStore):
        raise TypeError("tables are looked after by their deployment")
    return service.store


class FileTimers:
    """Takes the seat as soon as it is free, and does the work while it is held; in a with block."""

    def __init__(self, service: EmbeddedService, *, now: Callable[[], datetime]) -> None:
        store = file_store(service)
        self._use = service.use
        self.seat = Seat(store, now)
        self._recorder = LogRecorder(service.use, store)
        works: dict[str, Step] = {
            "reaper": every(MINUTE, self._use.reaping.run),
            "scheduler": every(MINUTE, self._use.ticking.run),
            "broom": every(MINUTE, partial(sweep, store)),
            "recorder": self._recorder.step,
        }
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
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join(_END_WITHIN)
        with suppress(Unavailable):  # then it lapses
            self.seat.give_up()

    def _sit(self) -> float:
        held = self.seat.held
        try:
            taken = self.seat.take()
        except Unavailable as error:
            _log.warning("Timers rest: %s", error)
            return _REST
        if taken and not held:
            _log.info("This process runs the timers of the file")
            for thread in self._threads[1:]:
                thread.wake()
        return RENEWED_EVERY

    def _while_held(self, work: Step) -> Step:
        def step() -> float | None:
            if not self.seat.held:
                return UNTIL_WOKEN  # whoever takes it wakes this
            try:
                return work()
            except Unavailable as error:
                _log.warning("Timers rest: %s", error)
                return _REST

        return step


def sweep(store: SqliteStore) -> None:
    """Forget what is past its time, as the cloud's tables do, and give the room back."""
    while store.forget().total:
        pass
    left = store.vacuum()
    while left > _FREE_PAGES and (now := store.vacuum()) < left:
        left = now


class LogRecorder:
    """Hands the log of the file's writes to the recorder, and drops what that has counted."""

    def __init__(self, use: UseCases, store: SqliteStore) -> None:
        self._use, self._store = use, store
        self._shard = ""
        self._position = -1

    def step(self) -> float:
        """Record one batch; return the seconds to rest.  Raises Unavailable."""
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
            self._position = writes[-1].sequence
            self._store.trim(self._position)
        return 0.0 if len(writes) == _BATCH else _REST if len(writes) > _FEW else _IDLE

    def _name(self) -> str:
        """Return the name that the file's log has, in a lake that may hold those of others too."""
        store, lock = self._store, KeyLock(_KIND, "log", f"file-{uuid4().hex[:12]}")
        store.set_key_lock(lock)
        return store.key_lock(_KIND, "log") or ""
