"""Who feeds whom: the moves between queues, as the recorder has counted them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from headrace.domain.access import Permission, Principal
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.task import State
from headrace.history.counters import Counters
from headrace.history.recent import last_day, last_hour
from headrace.history.tally import STATES


@dataclass(frozen=True, slots=True)
class Flow:
    """Tasks that went from one queue to another: in the last hour, and in the last day.

    Numbers are by five minutes and by the hour, so the ends of both are that rough.
    """

    source: str
    target: str
    hour: int
    day: int


@dataclass(frozen=True, slots=True)
class FlowMap:
    """Flows, the strongest first, and how many tasks are enqueued in each of their queues.

    ``as_of`` is the latest change counted, None when there is none yet.
    """

    flows: tuple[Flow, ...]
    enqueued: Mapping[str, int]
    as_of: datetime | None


@dataclass(slots=True)
class Flows:
    """The use case, with what it needs from outside."""

    counters: Counters
    now: Callable[[], datetime]

    def seen_by(self, by: Principal) -> FlowMap:
        """Return the moves of the last day between *by*'s own queues.

        An edge to or from a queue of others is left out: it would tell of what is there.
        Two reads, whatever the number of queues; a bucket of totals keeps some hundred edges.
        """
        by.require(Permission.READ)
        totals, now = self.counters.totals(), micros_of(self.now())
        flows = [
            Flow(source, target, last_hour(slots, now), last_day(slots, now))
            for target, source, slots in totals.flows().edges()
            if by.covers(source) and by.covers(target)
        ]
        seen = sorted(
            (flow for flow in flows if flow.day),
            key=lambda flow: (-flow.day, flow.source, flow.target),
        )
        place = STATES.index(State.ENQUEUED)
        queues = {queue for flow in seen for queue in (flow.source, flow.target)}
        counted = totals.as_of
        return FlowMap(
            tuple(seen),
            {queue: max(0, totals.counts(queue)[place]) for queue in sorted(queues)},
            None if counted is None else instant_of(counted),
        )
