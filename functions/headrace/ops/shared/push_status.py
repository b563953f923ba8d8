"""Push dispatchers: start one for each free seat, and show how a target answers.

Dispatchers note the answers of their target on their seats.  Enqueue and report calls start
dispatchers, and a timer starts the rest.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from headrace.domain.errors import Unavailable
from headrace.domain.push import Target
from headrace.domain.push_messages import PushLimit, TargetAnswer
from headrace.domain.queue import Queue
from headrace.domain.times import instant_of
from headrace.ops.shared.seats import UNTIL
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import Store

if TYPE_CHECKING:
    from headrace.runtime.service import Service

SEATS: Final = "push"
"""The kind of the seats' records."""

_LATENCIES: Final = 500  # answers by which latency is known
_LABELS: Final = 20  # different answers that are counted separately
_OTHERS: Final = "others"
_LATELY: Final = timedelta(minutes=2)


def seat_name(queue: str, number: int) -> str:
    """Return the name of a seat of *queue*; *number* counts from 0."""
    return f"{queue}:{number}"


@dataclass(slots=True, eq=False, repr=False)
class PushCounts:
    """What one dispatcher has seen of its target since it took its seat."""

    codes: Counter[str] = field(default_factory=Counter)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))  # seconds
    busy: str = ""  # the latest answer that asked for fewer requests

    def add(self, answer: TargetAnswer, seconds: float) -> None:
        """Count an answer that took so long."""
        label = answer.label
        if label not in self.codes and len(self.codes) >= _LABELS:
            label = _OTHERS
        self.codes[label] += 1
        self.latencies.append(seconds)
        if answer.busy:
            self.busy = answer.label

    def state(self, limit: PushLimit, now: float) -> tuple[Any, ...]:
        """Return the state whose changes the status should show soon."""
        return (limit.backs_off(now), self.busy)

    def notes(self, limit: PushLimit, now: float) -> dict[str, Any]:
        """Return the notes for the seat."""
        backs_off = limit.backs_off(now)
        return {
            "codes": dict(self.codes),
            "p50": _percentile(self.latencies, 50),
            "p99": _percentile(self.latencies, 99),
            "allowed": limit.allowed(now),
            "most": limit.most,
            "busy": self.busy if backs_off else "",
        }


def _percentile(seconds: Sequence[float], percent: int) -> float | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    return round(ordered[ceil(len(ordered) * percent / 100) - 1], 4)


@dataclass(frozen=True, slots=True)
class PushStatus:
    """How a target is doing: counts of its answers, and how long they take (seconds).

    ``running`` is how many dispatchers are at it now.  ``busy`` is what it answers to be asked
    less, "" unless it is; then ``allowed`` of ``most`` requests are under way at once.
    """

    running: int = 0
    codes: Mapping[str, int] = field(default_factory=dict)
    p50: float | None = None
    p99: float | None = None
    busy: str = ""
    allowed: int = 0
    most: int = 0

    @property
    def backing_off(self) -> str:
        """Why the target gets fewer requests, and how many; empty if it gets all."""
        slots = f"{self.allowed} of {self.most} slots, +1 each second"
        return f"target answered {self.busy}; {slots}" if self.busy else ""


def status_of(store: Store, queue: str, target: Target, now: datetime) -> PushStatus:
    """Return how *target* of *queue* is doing; percentiles are those of the slowest dispatcher."""
    codes: Counter[str] = Counter()
    running, allowed, most, busy = 0, 0, 0, ""
    slow: dict[str, float | None] = {"p50": None, "p99": None}
    for body in _seats(store, queue, target):
        codes.update(body.get("codes", {}))
        for name, known in slow.items():
            found = body.get(name)
            slow[name] = max(known or 0.0, found) if found is not None else known
        if instant_of(body[UNTIL]) > now:
            running += 1
            allowed += body.get("allowed", 0)
            most += body.get("most", 0)
            busy = busy or body.get("busy", "")
    return PushStatus(running, dict(codes), slow["p50"], slow["p99"], busy, allowed, most)


def busy_lately(store: Store, queue: str, target: Target, now: datetime) -> bool:
    """Return whether *target* of *queue* asked for fewer requests in the last two minutes.

    A dispatcher without work leaves for a while, so its note may be that old.
    """
    return any(
        body.get("busy") and instant_of(body[UNTIL]) > now - _LATELY
        for body in _seats(store, queue, target)
    )


def _seats(store: Store, queue: str, target: Target) -> Iterator[Mapping[str, Any]]:
    for number in range(target.seats):
        record = store.record(SEATS, seat_name(queue, number))
        if record is not None:
            yield record.body


_AT_MOST_EVERY: Final = timedelta(seconds=1)
_REMEMBERED: Final = 10_000
SOON_SECONDS: Final = 60.0
"""What falls due within this is for a dispatcher that is started now: the timer comes again."""


class PushTargets(ServicePart):
    """Finds the queues whose tasks are to be sent, and shows how their targets answer.

    A dispatcher stays for longer than a second with nothing to do, so that what comes within a
    second of its start is its own.
    """

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self._woken: dict[str, datetime] = {}

    def status(self, queue: Queue) -> PushStatus | None:
        """Return how the target of *queue* is doing; None if it has none."""
        target = queue.settings.target
        return None if target is None else status_of(self.store, queue.name, target, self.now())

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
            yield from _seat_numbers(name, target)

    def for_timer(self, *, within: float = SOON_SECONDS) -> Iterator[tuple[str, int]]:
        """Yield the seats of all queues in which a task falls due *within* so many seconds."""
        for name, target in self.targets():
            try:
                due = self.service.push.seconds_to_work(name)
            except Unavailable:
                continue  # the next time
            if due is not None and due <= within:
                yield from _seat_numbers(name, target)

    def backing_off(self, names: Iterable[str]) -> int:
        """Return how many targets of the queues *names* ask for fewer requests: a read a seat."""
        store, now = self.service.push.store, self.now()
        targets = ((name, self.service.push.target_of(name)) for name in set(names))
        return sum(
            busy_lately(store, name, target, now) for name, target in targets if target is not None
        )

    def targets(self) -> Iterator[tuple[str, Target]]:
        """Yield the queues that have a target."""
        for queue in self.service.queues.every():
            if queue.settings.target is not None:
                yield queue.name, queue.settings.target


def _seat_numbers(name: str, target: Target) -> Iterator[tuple[str, int]]:
    return ((name, number) for number in range(target.seats))
