"""The reaper's pass over everything, once a minute: in a budget of time, fairly divided.

Queues, removals and closings share the time of a pass, and queues divide theirs evenly, page by
page: one with a million lapsed leases, or one whose partition is slow, costs the others nothing.  A
queue that is throttled is left alone until the next pass.  Where time is over before everything is
done, the next pass begins with whose turn it was, and is divided by shard among several at a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias

from headrace.domain.errors import Unavailable
from headrace.ops.delivery.reaper_pass import Pass
from headrace.ops.delivery.reaping import Reaping
from headrace.ops.delivery.upkeep import Upkeep
from headrace.ops.shared.leases import Leases
from headrace.ops.shared.queues import QueueOperations
from headrace.ops.shared.removals import Removals
from headrace.store.records.reaper import ReaperPart

_LONG: Final = timedelta(hours=1)

HandOn: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Has another pass take a part, named by the event, at the same time; tells whether one will."""


@dataclass(slots=True)
class Reaped:
    """What a pass of the reaper did; ``released`` is what closed groups still held.

    ``throttled`` is whether a queue, or all, were left alone because the table did not answer;
    ``cut`` whether time was over before everything was done, and ``unseen`` how many queues it did
    not come to.  ``oldest_ready_seconds`` is how long the oldest task that could be taken, in a
    queue that is not paused, has been waiting for somebody to take it.
    """

    retried: int = 0
    released: int = 0
    buried: int = 0
    expired: int = 0
    healthy: int = 0
    evicted: int = 0
    purged: int = 0
    throttled: bool = False
    cut: bool = False
    unseen: int = 0
    parts: int = 1
    oldest_ready_seconds: float = field(default=0.0, compare=False)


@dataclass(slots=True, kw_only=True)
class Reaper(Reaping):
    """The use case, with what it needs from outside."""

    queues: QueueOperations
    removals: Removals
    leases: Leases
    upkeep: Upkeep

    def run(
        self,
        part: ReaperPart | None = None,
        *,
        time_left: Callable[[], float] = _LONG.total_seconds,
        hand_on: HandOn | None = None,
    ) -> Reaped:
        """Look at every overdue lease and every due task of every queue, or of one *part* of them.

        Ends when there is no *time_left* (seconds).  Without a part it is the timer's own pass,
        which hands parts on where the last one has shown that it takes several.  Stops and says so
        while the table throttles: late heartbeats are its fault then.
        """
        began = self.now()
        reaped = Reaped()
        try:
            Pass(self, reaped, began, part, time_left, hand_on).run()
        except Unavailable:
            reaped.throttled = True
        return reaped
