"""Which of a queue's waiting tasks are whose, where several workers ask for them.

Every worker knows the same list of those who are alive, so none has to ask another.  With as many
shards as workers each has shards of its own; with fewer, those who share a shard divide it by a
hash of the task's id.  Every few seconds each takes over the part of the one before it, so that
nothing lies long with one who does not ask.  Whose a task is decides only who tries it first: a
conditional write decides who has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zlib import crc32

from headrace.domain.change import Entry

TURN: Final = timedelta(seconds=5)
"""How long a part is somebody's."""

_APART: Final = timedelta(milliseconds=30)
_FARTHEST: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Portion:
    """The part of the worker that is *rank*-th of *members*, in a queue with so many *shards*."""

    rank: int
    members: int
    shards: int

    @property
    def own_shards(self) -> list[int]:
        """The shards in which some tasks are ours."""
        if self.members >= self.shards:
            return [self.rank % self.shards]
        return list(range(self.rank, self.shards, self.members))

    def shares(self, shard: int) -> bool:
        """Tell whether some tasks of a shard may be ours; of one that is being retired, always."""
        return shard >= self.shards or shard in self.own_shards

    def sharing(self, shard: int) -> int:
        """Return how many members divide a shard; all of them one that is being retired."""
        if shard >= self.shards:
            return self.members
        return max(1, -((shard - self.members) // self.shards))

    def away(self, entry: Entry) -> int:
        """Return how many members are before us for this task; 0 if it is ours."""
        return (self.rank - self._owner(entry)) % self.members

    def wait(self, away: int) -> timedelta:
        """Return how long we leave a task to the members that are before us."""
        return away * min(_APART, _FARTHEST / self.members)

    def _owner(self, entry: Entry) -> int:
        shard = entry.place.shard
        number = crc32(entry.task_id.encode()) // self.shards  # what is left after the shard
        if shard >= self.shards:
            return number % self.members
        if self.members <= self.shards:
            return shard % self.members
        return shard + number % self.sharing(shard) * self.shards


def portion(members: Sequence[str], name: str, shards: int, now: datetime) -> Portion | None:
    """Return the part of *name* among *members* now; None for one who is none of them."""
    if name not in members:
        return None
    order = sorted(members, key=lambda one: (crc32(one.encode()), one))  # a host's are not in a row
    turn = int(now.timestamp() // TURN.total_seconds())
    return Portion((order.index(name) + turn) % len(order), len(order), shards)
