"""The errors of all queues, in groups of tasks with the same error, as the recorder counts them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain import access
from headrace.domain.access import Permission, Principal
from headrace.domain.fingerprints import current_fingerprint_of
from headrace.domain.task import State, Task
from headrace.domain.times import instant_of, micros_of
from headrace.history.faults import FAULTS, FaultCount, QueueFaults
from headrace.history.flows import by_hour
from headrace.history.tally import CANCELLED, STATES
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import every_record
from headrace.store.call_scope import flat_rate

_PAGE: Final = 200
_DEAD: Final = STATES.index(State.DEAD)


@dataclass(frozen=True, slots=True)
class ErrorInQueue:
    """The number of tasks of one queue that are dead of an error or retried after it."""

    name: str
    dead: int
    retried: int


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Tasks of all queues with the same error; without a ``fingerprint``, those with rare ones.

    ``day`` has how often it occurred, by hours of the clock.
    ``samples`` are tasks that failed last, dead ones first; ``workers`` had such tasks lately.
    """

    fingerprint: str
    type: str
    message: str
    dead: int
    retried: int
    first: datetime
    last: datetime
    day: tuple[int, ...]
    queues: tuple[ErrorInQueue, ...]
    samples: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """All groups with standing errors, the largest first.

    ``dead`` is the number of their dead tasks.  ``uncounted`` are queues with another number of
    dead tasks: not all of their errors were counted, so they need a recount.
    ``as_of`` is the time of the latest change counted; None before the first one.
    """

    groups: tuple[ErrorGroup, ...]
    dead: int
    uncounted: tuple[str, ...]
    as_of: datetime | None


class ErrorOperations(ServicePart):
    """Shows errors."""

    def seen_by(self, by: Principal, *, only: str | None = None) -> Errors:
        """Return the errors in the queues of *by*, or in the queue *only*."""
        by.require(Permission.LIST)
        prefix = only or ""
        totals, now = self.service.counters.totals(), micros_of(self.now())
        with flat_rate():  # the cost must not disclose other queues
            records = every_record(self.service.counters.store, FAULTS, prefix=prefix, page=_PAGE)
            found = {record.name: QueueFaults.of(record) for record in records}
        pending = {name for buffer in totals.buffers for name in buffer.body["faults"]}
        groups: dict[str, dict[str, FaultCount]] = {}
        uncounted: list[str] = []
        for queue in sorted(found.keys() | pending | totals.queues()):
            if only not in (None, queue) or not by.covers(queue):
                continue
            faults = found.get(queue) or QueueFaults()
            faults.merge_buffers(queue, totals.buffers, now)
            counts = totals.counts(queue)
            if faults.dead != counts[_DEAD] - counts[CANCELLED]:
                uncounted.append(queue)
            for fingerprint, kind in faults.kinds.items():
                if kind.stands:
                    groups.setdefault(fingerprint, {})[queue] = kind
        shown = sorted(
            (_group(fingerprint, kinds, now) for fingerprint, kinds in groups.items()),
            key=lambda group: (-group.dead - group.retried, -group.last.timestamp()),
        )
        as_of = None if totals.as_of is None else instant_of(totals.as_of)
        return Errors(tuple(shown), sum(one.dead for one in shown), tuple(uncounted), as_of)

    def samples(self, by: Principal, groups: Sequence[ErrorGroup]) -> Mapping[str, Sequence[Task]]:
        """Return the samples of *groups* by fingerprint, as *by* may see them.

        A sample that succeeded, was restarted or was removed since then is left out.
        """
        by.require(Permission.LIST)
        ids = [task_id for group in groups for task_id in group.samples]
        found = self.service.counters.store.read(ids)
        samples: dict[str, list[Task]] = {}
        for group in groups:
            for task in filter(None, map(found.get, group.samples)):
                fault = current_fingerprint_of(task)
                if fault is not None and by.covers(task.queue) and group.fingerprint in ("", fault):
                    samples.setdefault(group.fingerprint, []).append(access.as_seen_by(by, task))
        return samples


def _group(fingerprint: str, queues: Mapping[str, FaultCount], now: int) -> ErrorGroup:
    """Return the group of one error, which *queues* have."""
    whole = FaultCount()
    for kind in sorted(queues.values(), key=lambda kind: kind.last, reverse=True):
        whole.merge(kind)
    return ErrorGroup(
        fingerprint,
        whole.type,
        whole.message,
        max(0, whole.dead),
        max(0, whole.retried),
        instant_of(whole.first),
        instant_of(whole.last),
        by_hour(whole.slots, now),
        tuple(
            ErrorInQueue(name, max(0, kind.dead), max(0, kind.retried))
            for name, kind in sorted(queues.items())
        ),
        whole.tasks,
        tuple(whole.workers),
    )
