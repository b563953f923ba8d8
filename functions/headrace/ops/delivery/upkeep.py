"""What is found out of a queue once its settings have been changed, and left on its record.

A queue that had more shards has tasks on them until they are gone, and every dequeue has to look
there; a limit that is new or was lowered has tasks in flight that it does not count.  Both end by
themselves.  The reaper sees when, and leaves a note, which is no change of the settings.

That a shard is empty the index says, which may lag, and whoever has old settings may put a task
there: so it is believed only once nobody has (``AGREED_AFTER``), and looked at again each hour.  A
task that should still turn up there waits for an hour, and is then found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from headrace.domain.queue import AGREED_AFTER, Queue
from headrace.domain.task import Place, State
from headrace.ops.shared.slots import Slots
from headrace.store.base import Store
from headrace.store.records.queues import KIND, from_record, note_of


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The use case, with what it needs from outside."""

    store: Store
    slots: Slots
    now: Callable[[], datetime]

    def needed(self, queue: Queue) -> bool:
        """Tell whether there is something to find out of *queue*."""
        return self._may_drain(queue) or self._may_count(queue)

    def look(self, name: str, *, again: bool = False) -> None:
        """Find out what has ended by now; *again* looks at shards that were found empty before."""
        record = self.store.record(KIND, name)
        if record is None:
            return
        queue = from_record(record)
        found = self._reopened(queue) if again else queue
        if self._may_drain(found):
            gone = {
                state
                for state in State
                if state not in found.drained and self._empty(found, state, found.shards_in_use)
            }
            found = found.with_drained(found.drained | gone)
        if self._may_count(found) and self.slots.beyond(found).number == 0:
            found = replace(found, uncounted_since=None)
        if found != queue:
            self.store.leave_note(KIND, name, note_of(found), expects=record.note)

    def _may_drain(self, queue: Queue) -> bool:
        changed_at = queue.resharded_at or queue.created_at
        fewer = queue.settings.shards < queue.shards_in_use
        return fewer and self.now() >= changed_at + AGREED_AFTER

    def _may_count(self, queue: Queue) -> bool:
        since = queue.uncounted_since
        return since is not None and self.now() >= since + AGREED_AFTER

    def _empty(self, queue: Queue, state: State, shards: int) -> bool:
        """Tell whether no task in *state* shows on the shards that the settings do without."""
        return not any(
            self.store.entries(Place(queue.name, state, shard), limit=1).entries
            for shard in range(queue.settings.shards, shards)
        )

    def _reopened(self, queue: Queue) -> Queue:
        """Return the queue with the shards in use again where something shows after all."""
        ever = max(queue.shards_ever, queue.shards_in_use)
        back = {
            state
            for state in State
            if queue.shards_of(state) < ever and not self._empty(queue, state, ever)
        }
        if not back:
            return queue
        drained = {state for state in State if queue.shards_of(state) == queue.settings.shards}
        return replace(queue, shards_in_use=ever, drained=frozenset(drained - back))
