"""What could be leased in one queue: its due tasks, shard by shard, by the index."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.domain.change import Entry
from headrace.domain.portion import Portion
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State
from headrace.ops.delivery.contention import Claims
from headrace.ops.delivery.dequeue import Call
from headrace.ops.delivery.reaping import Reaping
from headrace.store.base import EntryPage, Position, Store

_WIDEST: Final = 1000  # entries to look at when many race for them
_MORE_PAGES: Final = 20  # looked at behind pages of what is expired or being taken


@dataclass(slots=True)
class Candidates:
    """Finds them, with what it needs from outside."""

    store: Store
    reaping: Reaping
    claims: Claims
    now: Callable[[], datetime]
    chance: random.Random

    def shards(self, queue: Queue, portion: Portion | None = None) -> list[int]:
        """Return where to look, in order.

        Shards being retired come first, so that nothing is stranded, then those of one's own
        *portion*, then the others, each by chance.
        """
        current = list(range(queue.settings.shards))
        self.chance.shuffle(current)
        retired = range(queue.settings.shards, queue.shards_of(State.ENQUEUED))
        own = set(portion.own_shards) if portion is not None else set()
        return [*retired, *sorted(current, key=lambda shard: shard not in own)]

    def of_shard(
        self, queue: Queue, shard: int, count: int, call: Call, portion: Portion | None = None
    ) -> list[Entry]:
        """Read a little more than is wanted, so that a lost race finds something else.

        In a crowd it is as much more as our part of it is smaller, so that our part may be enough.
        Not bounded by the clock: the first task that is not due yet says when to ask again.
        """
        ready: list[Entry] = []
        place = Place(queue.name, State.ENQUEUED, shard)
        after: Position | None = None
        learnt = self.claims.part(queue.name, self.now()).of
        parts = learnt if portion is None else learnt * portion.sharing(shard)
        narrow, wide = 2 * count + 16, parts * (count + count // 4 + 2)
        limit = max(narrow, min(wide, _WIDEST))
        for _ in range(_MORE_PAGES):
            page = self.store.entries(place, after=after, limit=limit)
            now = self.now()
            over = []
            for entry in page.entries:
                if entry.scheduled_at > now:
                    call.next_due = min(call.next_due or entry.scheduled_at, entry.scheduled_at)
                    page = EntryPage(page.entries, None)
                    break
                if entry.expires_at is not None and entry.expires_at <= now:
                    over.append(entry)
                else:
                    ready.append(entry)
            if over:
                list(
                    self.reaping.dead_letter(queue, over)
                )  # or the sweep would leave them in our way
            after = page.last
            if after is None or self.claims.free(ready) >= count:
                break
        return ready

    def of_queue(self, queue: Queue, call: Call, portion: Portion | None = None) -> list[Entry]:
        """Return those of all shards, of each as many as the call may want."""
        return [
            entry
            for shard in self.shards(queue, portion)
            for entry in self.of_shard(queue, shard, call.count, call, portion)
        ]
