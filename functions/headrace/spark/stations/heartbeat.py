"""A station among the workers that operators see, quiet and stop."""

import logging
import threading
from typing import TYPE_CHECKING, Final

from headrace import __version__
from headrace.client.threads import PeriodicThread
from headrace.domain.access import Principal, Role
from headrace.ops.operators.workers import Command, WorkerHeartbeat
from headrace.runtime.wiring import UseCases
from headrace.spark.sources.leasing import heartbeat

if TYPE_CHECKING:
    from headrace.spark.stations.station import Station

SECONDS: Final = 30.0
_NAME: Final = "a station's sign of life"
_LOG: Final = logging.getLogger(__name__)


class StationHeartbeat(PeriodicThread):
    """Sends a station's worker heartbeat twice a minute, and obeys the command it gets back.

    ``quiet`` is set when nothing more is to be taken; to stop, *stopping* is set.
    """

    def __init__(self, station: "Station", uses: UseCases, stopping: threading.Event) -> None:
        """Prepare."""
        step = heartbeat(SECONDS, self.sign, name=_NAME)
        super().__init__(_NAME, step, first_after=SECONDS, log=_LOG)
        self.quiet = False
        self._workers = uses.workers
        self._sign = WorkerHeartbeat(
            station.worker, (station.queue,), uses.now(), version=__version__
        )
        self._stop_station = stopping

    def sign(self) -> bool:
        """Send one heartbeat; one write unit."""
        by = Principal("station", "station", Role.WORKER, self._sign.queues)
        command = self._workers.alive(by, self._sign)
        self.quiet = command is Command.QUIET
        if command is Command.STOP:
            self._stop_station.set()
        return True
