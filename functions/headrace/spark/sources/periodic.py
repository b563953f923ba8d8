"""A periodic thread beside a job: it extends the lease of a group, or sends worker heartbeats."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from headrace.domain.errors import HeadraceError, LeaseLost
from headrace.ops.leases import Leases

_LOG: Final = logging.getLogger(__name__)
_PER_LEASE: Final = 3


class PeriodicThread:
    """Calls something every so many seconds, from a thread, for the length of a with block.

    It ends early when the call returns False.  An error of the service is logged: the next call
    may get through.
    """

    def __init__(self, seconds: float, call: Callable[[], bool], *, name: str) -> None:
        """Prepare; the first call comes after *seconds*."""
        self._seconds = seconds
        self._call = call
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End; a call under way is waited for."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                if not self._call():
                    return
            except HeadraceError as error:
                _LOG.warning("%s: %s", self._thread.name, error)


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

    return PeriodicThread(lease_seconds / _PER_LEASE, extend, name="heartbeat of a station's lease")
