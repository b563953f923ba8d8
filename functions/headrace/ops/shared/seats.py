"""Seats: places that one process at a time may have.

A seat is a lease like any other: it lasts a minute, its holder renews it every twenty seconds and
gives it up when it ends, and then the next process to look takes it.  Each write is a
compare-and-set.  Two that hold it for a moment, as after a long sleep of the machine, must do no
harm.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from headrace.domain.times import instant_of, micros_of
from headrace.store.base import Record, Store

LASTS: Final = timedelta(seconds=60)
RENEWED_EVERY: Final = 20.0  # seconds
FORGOTTEN_AFTER: Final = timedelta(days=7)
"""How long what a seat's last holder noted on it may be read."""

HOLDER: Final = "holder"
UNTIL: Final = "until"


def _this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex}"


def has_ended(holder: str) -> bool:
    """Return whether *holder* was a process of this machine that no longer runs."""
    host, pid, _ = holder.split(":")
    if sys.platform == "win32" or host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return True
    except PermissionError:  # the process belongs to another user
        return False
    return False


@dataclass(slots=True)
class Seat:
    """A place that one process at a time may have.

    *is_gone* returns whether a holder has certainly ended, so that its seat is free. None where
    that cannot be known, as on Lambda.
    """

    store: Store
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    holder: str = field(default_factory=_this_process)
    kind: str = "seat"
    name: str = "timers"
    is_gone: Callable[[str], bool] | None = None
    _until: float = 0.0  # monotonic

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self.monotonic() < self._until

    def take(self, notes: Mapping[str, Any] | None = None) -> bool:
        """Take or renew the seat unless another process holds it; return whether it is held.

        *notes* stay on it for other processes to read.  Raises Unavailable.
        """
        now, asked = self.now(), self.monotonic()
        there = self.store.record(self.kind, self.name)
        if there is not None and self._of_another(there.body, now):
            self._until = 0.0
            return False
        if self._written(there, now + LASTS, notes):
            self._until = asked + LASTS.total_seconds()
        else:
            self._until = 0.0
        return self.held

    def give_up(self, notes: Mapping[str, Any] | None = None) -> None:
        """Let the next one have it; *notes* stay on it for others to read."""
        self._until = 0.0
        there = self.store.record(self.kind, self.name)
        if there is None or there.body[HOLDER] != self.holder:
            return
        if notes is None:
            self.store.drop_record(self.kind, self.name, version=there.version)
        else:
            self._written(there, self.now(), notes)

    def _written(
        self, there: Record | None, until: datetime, notes: Mapping[str, Any] | None
    ) -> bool:
        body = {**(notes or {}), HOLDER: self.holder, UNTIL: micros_of(until)}
        version = 0 if there is None else there.version
        forgotten = None if notes is None else until + FORGOTTEN_AFTER
        record = Record(self.kind, self.name, body, version + 1, forgotten)
        return self.store.put_record(record, replaces=there.version if there else None)

    def _of_another(self, body: Mapping[str, Any], now: datetime) -> bool:
        until = instant_of(body[UNTIL])
        # One from far ahead was written before the clock was set back.
        lasts = now < until <= now + LASTS
        gone = self.is_gone is not None and self.is_gone(body[HOLDER])
        return body[HOLDER] != self.holder and lasts and not gone
