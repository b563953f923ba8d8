"""The worker heartbeat, and the commands of operators that it brings back."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from headrace.client.threads import UNTIL_WOKEN
from headrace.client.worker.inflight import InflightTasks
from headrace.client.worker.loop import worker_thread
from headrace.client.worker.service import WorkerService
from headrace.client.worker.settings import WorkerSettings
from headrace.domain.errors import Forbidden, HeadraceError, RateLimited, Unavailable
from headrace.domain.limits import WORKER_TASKS

_EVERY_SECONDS: Final = 30.0
_FORGOTTEN_SECONDS: Final = 300.0
"""After so long the service forgets a worker that is silent."""

_log = logging.getLogger("headrace.worker")


class Registry:
    """Reports every 30 seconds what the worker does, and passes on the commands of operators."""

    def __init__(
        self,
        service: WorkerService,
        settings: WorkerSettings,
        inflight: InflightTasks,
        *,
        version: str,
        started_at: datetime,
        command: Callable[[str], None],
    ) -> None:
        """*command* gets ``"quiet"`` or ``"stop"``, once."""
        self._service, self._settings, self._inflight = service, settings, inflight
        self._last_received: str | None = None
        self._version, self._started_at, self._command = version, started_at, command
        self.loop = worker_thread("sign-of-life", self.step)

    def step(self) -> float:
        """Send a worker heartbeat; return the seconds until the next."""
        running = [held.task.id for held in self._inflight.all() if held.running]
        try:
            received = self._service.sign(
                self._settings.name,
                queues=list(self._settings.queues),
                concurrency=self._settings.concurrency,
                running=running[:WORKER_TASKS],
                version=self._version,
                started_at=self._started_at,
            )
        except (Unavailable, RateLimited) as error:
            _log.debug("No sign of life could be given: %s", error)
        except Forbidden as error:  # until then, a worker of other queues may have had the name
            _log.warning("This worker is not listed, and asks again in 5 minutes: %s", error)
            return _FORGOTTEN_SECONDS
        except HeadraceError as error:
            _log.warning("This worker will not be listed: %s", error)
            return UNTIL_WOKEN
        else:
            if received is not None and received != self._last_received:
                self._command(
                    received
                )  # once: a worker that is stopped a second time does not wait
            self._last_received = received
        return _EVERY_SECONDS
