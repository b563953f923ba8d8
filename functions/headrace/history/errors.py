"""What goes wrong in all queues: one group for each kind of error, as the recorder counts them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from headrace.domain import access
from headrace.domain.access import Permission, Principal
from headrace.domain.filters import standing_fault_of
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.task import State, Task
from headrace.history.counter_buffer import add_pending_faults
from headrace.history.counters import Counters
from headrace.history.faults import FAULTS, FaultCount, QueueFaults, newest_first
from headrace.history.recent import by_five_minutes, by_hour
from headrace.history.tally import CANCELLED, STATES
from headrace.store.base import every_record
from headrace.store.call_scope import flat_rate

_PAGE: Final = 200
_DEAD: Final = STATES.index(State.DEAD)


@dataclass(frozen=True, slots=True)
class ErrorInQueue:
    """Tasks of one queue that are dead of an error, and that are tried again after it."""

    name: str
    dead: int
    retried: int


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Tasks of all queues that fail alike; without a ``fingerprint`` those of many rare kinds.

    ``hour`` is how often it was seen by five minutes, ``day`` by hours of the clock.
    ``sample`` is the task that failed last, ``workers`` are who had it lately.
    """

    fingerprint: str
    type: str
    message: str
    dead: int
    retried: int
    first: datetime
    last: datetime
    hour: tuple[int, ...]
    day: tuple[int, ...]
    queues: tuple[ErrorInQueue, ...]
    sample: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """All groups of which something stands, the largest first.

    ``dead`` is how many dead tasks they have.  ``uncounted`` are queues that have more or fewer
    dead tasks: not all of their errors were counted, so they need a recount.
    ``as_of`` is the latest change that was counted, None for none yet.
    """

    groups: tuple[ErrorGroup, ...]
    dead: int
    uncounted: tuple[str, ...]
    as_of: datetime | None


@dataclass(slots=True, eq=False, repr=False)
class ErrorOperations:
    """The use case, with what it needs from outside."""

    counters: Counters
    now: Callable[[], datetime]

    def seen_by(self, by: Principal, *, prefix: str = "", only: str | None = None) -> Errors:
        """Return what goes wrong in *by*'s own queues whose names begin with *prefix*.

        *only* is the one queue to look at, whatever the *prefix*.
        """
        by.require(Permission.LIST)
        prefix = prefix if only is None else only
        totals, now = self.counters.totals(), micros_of(self.now())
        with flat_rate():  # whatever others have there
            records = every_record(self.counters.store, FAULTS, prefix=prefix, page=_PAGE)
            found = {record.name: QueueFaults.of(record) for record in records}
        pending = {name for buffer in totals.buffers for name in buffer.body.get("faults", {})}
        counted = {name for body in totals.buckets.values() for name in body["counts"]}
        counted |= {name for buffer in totals.buffers for name in buffer.body["counts"]}
        groups: dict[str, _Together] = {}
        uncounted: list[str] = []
        for queue in sorted(found.keys() | pending | counted):
            if not queue.startswith(prefix) or not by.covers(queue):
                continue
            if only not in (None, queue):
                continue
            faults = found.get(queue) or QueueFaults()
            add_pending_faults(faults, queue, totals.buffers, now)
            counts = totals.counts(queue)
            if faults.dead != counts[_DEAD] - counts[CANCELLED]:
                uncounted.append(queue)
            for fingerprint, kind in faults.kinds.items():
                if kind.stands:
                    groups.setdefault(fingerprint, _Together()).add(queue, kind)
        shown = sorted(
            (one.group(name, now) for name, one in groups.items()),
            key=lambda group: (-group.dead - group.retried, -group.last.timestamp()),
        )
        as_of = None if totals.as_of is None else instant_of(totals.as_of)
        return Errors(tuple(shown), sum(one.dead for one in shown), tuple(uncounted), as_of)

    def samples(self, by: Principal, groups: Sequence[ErrorGroup]) -> Mapping[str, Task]:
        """Return the samples of *groups* by fingerprint, as *by* may see them.

        A sample that has succeeded, was restarted or is not kept since is left out.
        """
        by.require(Permission.LIST)
        found = self.counters.store.read([group.sample for group in groups if group.sample])
        samples = {}
        for group in groups:
            task = found.get(group.sample)
            fault = None if task is None else standing_fault_of(task)
            if task is None or fault is None or not by.covers(task.queue):
                continue
            if group.fingerprint in ("", fault):
                samples[group.fingerprint] = access.as_seen_by(by, task)
        return samples


@dataclass(slots=True)
class _Together:
    """What the queues have of one kind."""

    queues: dict[str, FaultCount] = field(default_factory=dict)

    def add(self, queue: str, kind: FaultCount) -> None:
        self.queues[queue] = kind

    def group(self, fingerprint: str, now: int) -> ErrorGroup:
        whole = FaultCount()
        for kind in newest_first(self.queues.values()):
            whole.merge(kind)
        return ErrorGroup(
            fingerprint,
            whole.type,
            whole.message,
            max(0, whole.dead),
            max(0, whole.retried),
            instant_of(whole.first),
            instant_of(whole.last),
            by_five_minutes(whole.slots, now),
            by_hour(whole.slots, now),
            _in_queues(self.queues),
            whole.sample,
            tuple(whole.workers),
        )


def _in_queues(queues: Mapping[str, FaultCount]) -> tuple[ErrorInQueue, ...]:
    return tuple(
        ErrorInQueue(name, max(0, kind.dead), max(0, kind.retried))
        for name, kind in sorted(queues.items())
    )
