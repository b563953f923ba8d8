"""Who starts dispatchers: whoever hears that tasks have come to wait, and a timer for the rest."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headrace.domain.errors import Unavailable
from headrace.domain.push import Target
from headrace.ops.shared.push_status import busy_lately
from headrace.ops.shared.service_part import ServicePart

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_PAGE: Final = 250
_AT_MOST_EVERY: Final = timedelta(seconds=1)
_REMEMBERED: Final = 10_000
SOON_SECONDS: Final = 60.0
"""What falls due within this is for a dispatcher that is started now: the timer comes again."""


class PushWaking(ServicePart):
    """Finds the queues whose tasks are to be sent.

    A dispatcher stays for longer than a second with nothing to do, so that what comes within a
    second of its start is its own.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._woken: dict[str, datetime] = {}

    def for_arrivals(self, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Yield which seats of the queues *names* want a dispatcher, each queue once a second."""
        now = self.now()
        for name in names:
            if now - self._woken.get(name, now - _AT_MOST_EVERY) < _AT_MOST_EVERY:
                continue
            target = self.service.push.target_of(name)
            if target is None:
                continue
            if len(self._woken) >= _REMEMBERED:
                self._woken.clear()
            self._woken[name] = now
            yield from _seats(name, target)

    def for_timer(self, *, within: float = SOON_SECONDS) -> Iterator[tuple[str, int]]:
        """Yield the seats of all queues in which a task falls due *within* so many seconds."""
        for name, target in self.targets():
            try:
                due = self.service.push.seconds_to_work(name)
            except Unavailable:
                continue  # the next time
            if due is not None and due <= within:
                yield from _seats(name, target)

    def backing_off(self, names: Iterable[str]) -> int:
        """Return how many targets of the queues *names* ask for fewer requests: a read a seat."""
        store, now = self.service.push.store, self.now()
        targets = ((name, self.service.push.target_of(name)) for name in set(names))
        return sum(
            busy_lately(store, name, target, now) for name, target in targets if target is not None
        )

    def targets(self) -> Iterator[tuple[str, Target]]:
        """Yield the queues that have a target."""
        cursor: str | None = None
        while True:
            page = self.service.queues.list(limit=_PAGE, cursor=cursor)
            for queue in page.shown:
                if queue.settings.target is not None:
                    yield queue.name, queue.settings.target
            cursor = page.cursor
            if cursor is None:
                return


def _seats(name: str, target: Target) -> Iterator[tuple[str, int]]:
    return ((name, number) for number in range(target.seats))
