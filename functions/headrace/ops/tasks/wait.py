"""Wait for the end of a task: read it again after pauses, or when the store signals an end.

A move, a retry or a restart is not an end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Final

from headrace.domain.task import FINISHED, Task
from headrace.ops.shared.leases import with_present_ends
from headrace.ops.shared.service_part import ServicePart
from headrace.ops.tasks.enqueue import shown_task
from headrace.store.base import Ends
from headrace.store.call_scope import client_gone

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_GROWTH: Final = 1.5
_CEILING: Final = 5  # times the first pause
_WOKEN_SECONDS: Final = 1.0
"""The pause where the store tells of the end: only whether to wait on is looked at then."""


class Waiting(ServicePart):
    """Waits for tasks to end; *poll_after_seconds* is the first pause."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.poll_after_seconds: float = service.settings.poll_after_seconds
        self.task_ends: Ends | None = service.store.task_ends
        self.new_event: Callable[[], Event] = Event

    def wait(self, task_id: str, *, seconds: float) -> Task:
        """Return a task once it has ended, or as it was last seen when *seconds* are over.

        The wait ends early if the client disconnects.  Raises Unauthenticated if the key of the
        caller is revoked during the wait; and as shown_task(), immediately, or as soon as the task
        is removed or moves to a queue that the caller may not know.
        """
        until = self.now() + timedelta(seconds=seconds)
        with self._pausing(task_id) as pause:
            while True:
                task = self._look(task_id)
                left = (until - self.now()).total_seconds()
                if task.state in FINISHED or left <= 0 or client_gone():
                    break
                pause(left)
                self.service.keys.check_caller()
        return with_present_ends(self.store, [task])[0]

    def _look(self, task_id: str) -> Task:
        """Read a task for half a unit; one that is not there at first sight is looked at again."""
        task = self.store.read([task_id], consistent=False).get(task_id)
        if task is None or task.is_hidden(self.now()):
            task = self.store.read([task_id]).get(task_id)
        return shown_task(task, task_id, self.now())

    @contextmanager
    def _pausing(self, task_id: str) -> Iterator[Callable[[float], None]]:
        """Return a function that pauses between two reads, for at most the given seconds."""
        if self.task_ends is None:
            yield _Growing(self.service.sleep, self.poll_after_seconds)
            return
        woken = self.new_event()

        def pause(most: float) -> None:
            woken.wait(min(most, _WOKEN_SECONDS))
            woken.clear()  # before the look: what ends behind that sets it again

        with self.task_ends.notify_on_end(task_id, woken.set):
            yield pause


class _Growing:
    """Pauses, each longer than the one before, up to five times the first."""

    def __init__(self, sleep: Callable[[float], None], first: float) -> None:
        self._sleep, self._next, self._most = sleep, first, first * _CEILING

    def __call__(self, most: float) -> None:
        self._sleep(min(most, self._next))
        self._next = min(self._next * _GROWTH, self._most)
