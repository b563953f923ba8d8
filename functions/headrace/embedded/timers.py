"""What a deployment's timers do, for a file: done by whichever process holds the file's seat.

The seat is a lease like any other: it lasts a minute, its holder renews it every twenty seconds and
gives it up when it ends, and then the next process to look takes it.  Two that hold it for a
moment, as after a long sleep of the machine, do no harm: each work may be done by two at once.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Self
from uuid import uuid4

from headrace.client.threads import PeriodicThread
from headrace.domain.errors import Unavailable
from headrace.domain.instants import instant_of, micros_of
from headrace.embedded.service import EmbeddedService
from headrace.store.base import Record

LASTS: Final = timedelta(seconds=60)
RENEWED_EVERY: Final = 20.0  # seconds
MINUTE: Final = 60.0

_KIND: Final = "seat"
_NAME: Final = "timers"
_REST: Final = 1.0  # seconds until it is looked whether the seat is held
_END_WITHIN: Final = 5.0

_log: Final = logging.getLogger("headrace.timers")


@dataclass(slots=True)
class Seat:
    """A place that one process at a time may have."""

    service: EmbeddedService
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    holder: str = field(default_factory=lambda: uuid4().hex)
    _until: float = 0.0  # monotonic

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self.monotonic() < self._until

    def take(self) -> bool:
        """Take or renew it, unless another has it; tell whether it is held.  Raises Unavailable."""
        now, asked = self.now(), self.monotonic()
        store = self.service.store
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
        there = self.service.store.record(_KIND, _NAME)
        if there is not None and there.body["holder"] == self.holder:
            self.service.store.drop_record(_KIND, _NAME, version=there.version)

    def _of_another(self, body: Mapping[str, Any], now: datetime) -> bool:
        until = instant_of(body["until"])
        # One from far ahead was written before the clock was set back.
        return body["holder"] != self.holder and now < until <= now + LASTS


class Timers:
    """Takes the seat as soon as it is free, and does the work while it is held; in a with block."""

    def __init__(self, service: EmbeddedService, *, now: Callable[[], datetime]) -> None:
        self._use = service.use
        self.seat = Seat(service, now)
        works: dict[str, tuple[float, Callable[[], object]]] = {
            "reaper": (MINUTE, self._reap),
            "scheduler": (MINUTE, self._tick),
        }
        self._threads = [
            PeriodicThread("headrace-seat", self._sit, log=_log, after_fault=RENEWED_EVERY),
            *(
                PeriodicThread(f"headrace-{name}", self._while_held(seconds, work), log=_log)
                for name, (seconds, work) in works.items()
            ),
        ]
        self._running = ExitStack()

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

    def _while_held(self, seconds: float, work: Callable[[], object]) -> Callable[[], float]:
        def step() -> float:
            if not self.seat.held:
                return seconds  # whoever takes it wakes this
            started = time.monotonic()
            try:
                work()
            except Unavailable as error:
                _log.warning("Timers rest: %s", error)
            return max(0.0, started + seconds - time.monotonic())

        return step

    def _reap(self) -> None:
        _log.debug("reaped %s", asdict(self._use.reaping.run()))

    def _tick(self) -> None:
        _log.debug("ticked %s", asdict(self._use.ticking.run()))
