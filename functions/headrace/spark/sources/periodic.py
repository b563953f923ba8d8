"""The threads beside a job: heartbeats while it runs, and the deadline of a shutdown."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from headrace.client.threads import PeriodicThread, Step
from headrace.domain.errors import HeadraceError, LeaseLost
from headrace.ops.shared.leases import Leases

_LOG: Final = logging.getLogger(__name__)
_PER_LEASE: Final = 3
_LOOK_EVERY: Final = 0.1  # seconds, for a shutdown


def heartbeat(seconds: float, call: Callable[[], bool], *, name: str) -> Step:
    """The step that does *call* every so many seconds, until it returns False.

    An error of the service is logged: the next call may get through.
    """

    def step() -> float | None:
        try:
            return seconds if call() else None
        except HeadraceError as error:
            _LOG.warning("%s: %s", name, error)
            return seconds

    return step


def group_heartbeat(
    leases: Leases,
    group_id: str,
    *,
    lease_seconds: float,
    on_lost: Callable[[], None] = lambda: None,
) -> PeriodicThread:
    """Extend a group at each third of its lease, from a thread: one write for all its tasks.

    *on_lost* is called, from the thread, when the group has ended all the same: what it held is
    others' now.
    """

    def extend() -> bool:
        try:
            leases.extend(group_id)
        except LeaseLost:
            on_lost()
            return False
        return True

    seconds, name = lease_seconds / _PER_LEASE, "heartbeat of a station's lease"
    step = heartbeat(seconds, extend, name=name)
    return PeriodicThread(name, step, first_after=seconds, log=_LOG)


def shutdown_deadline(
    stopping: threading.Event, seconds: float, call_off: Callable[[], None]
) -> PeriodicThread:
    """Call a batch off, for the length of a with block, when stopping it takes too long.

    *call_off* is called from another thread.
    """
    rests = iter((seconds,))

    def step() -> float | None:
        if not stopping.is_set():
            return _LOOK_EVERY
        rest = next(rests, None)
        if rest is None:
            call_off()
        return rest

    return PeriodicThread("shutdown-deadline", step, log=_LOG)
