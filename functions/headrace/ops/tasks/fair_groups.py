"""Looking at the groups of a queue: how one stands, and whose the next turns are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headrace.domain.change import Entry
from headrace.domain.errors import NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.patch import number
from headrace.domain.queue import Queue
from headrace.domain.task import TURN_LANE, State
from headrace.domain.task_groups import TURN, line_item, line_name, shown_turn
from headrace.ops.shared.group_limits import Blocking
from headrace.ops.shared.service_part import ServicePart

TURNS_LOOKED_AT: Final = 1_000
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """How a group of a queue stands.

    ``turn`` is how far its line has come, 1.0 for a task of weight 1.  ``waiting`` and ``inflight``
    are at least so many, where they are more than one call may count.  ``limit`` is how many may be
    in flight, None: any number; ``blocked`` is what keeps it from another.
    """

    group_key: str
    weight: float
    turn: float
    waiting: int
    inflight: int
    limit: int | None
    blocked: Blocking | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class GroupShare:
    """How many of the next turns of a queue are a group's, and since when its first is due.

    ``blocked`` is what keeps it from them, if it has as many in flight as it may.
    """

    group_key: str | None
    turns: int
    due_since: datetime
    blocked: Blocking | None = None


@dataclass(frozen=True, slots=True)
class NextTurns:
    """The groups that have most of the next turns, and how many turns were looked at in all."""

    shares: Sequence[GroupShare]
    looked_at: int


class FairGroups(ServicePart):
    """Shows the groups of a queue."""

    def get(self, queue: str, group_key: str) -> GroupStanding:
        """Return how a group stands.

        Raises NotFound for a queue that is missing or has no groups, and for a group that had no
        task there lately.
        """
        source = self.service.queues.get(queue)
        groups = source.settings.groups
        line = self.store.item(*line_item(queue, line_name(group_key))) if groups else None
        if groups is None or line is None or TURN not in line:
            message = f"queue {queue} knows no group {group_key}"
            raise NotFound(message)
        return GroupStanding(
            group_key,
            groups.weight(group_key),
            shown_turn(number(line, TURN)),
            self._count(queue, group_key, State.ENQUEUED),
            self._count(queue, group_key, State.INFLIGHT),
            source.group_limit or None,
            self.service.group_limits.blocking(source, [group_key]).get(group_key),
            self.now(),
        )

    def next_turns(self, queue: Queue) -> NextTurns:
        """Return whose the next thousand turns of *queue* are."""
        places = [one for one in queue.places(State.ENQUEUED) if one.lane == TURN_LANE]
        found: dict[str | None, list[Entry]] = {}
        looked_at = 0
        for place in places:
            page = self.store.entries(place, limit=-(-TURNS_LOOKED_AT // len(places)))
            for entry in page.entries:
                found.setdefault(entry.group_key, []).append(entry)
            looked_at += len(page.entries)
        shares = [
            GroupShare(key, len(entries), min(entry.own_time for entry in entries))
            for key, entries in found.items()
        ]
        shares.sort(key=lambda one: (-one.turns, one.due_since))
        shown = shares[:SHOWN]
        blocked = self.service.group_limits.blocking(queue, [one.group_key for one in shown])
        shown = [replace(one, blocked=blocked.get(one.group_key)) for one in shown]
        return NextTurns(shown, looked_at)

    def _count(self, queue: str, group_key: str, state: State) -> int:
        where = TaskFilter(states=(str(state),), group_key=group_key)
        return self.service.inspect.count(queue, where).count
