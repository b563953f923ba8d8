"""What the recorder comes to of a queue that is counted anew, or was; see ``recount``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.domain.instants import micros_of
from headrace.history import recount as recount_record
from headrace.history.counter_buffer import Buffer, BufferedRecount
from headrace.history.counters import Counters
from headrace.history.recount import NewCount
from headrace.history.transitions import IndexEntry


class IndexChange(NamedTuple):
    """A change of the index: the entry that went, the one that came, and when.

    ``version`` is the task's after it.
    """

    left: IndexEntry | None
    entered: IndexEntry | None
    at: int
    version: int


@dataclass(slots=True, eq=False, repr=False)
class Judging:
    """Judges changes by what new counts have seen of them."""

    counters: Counters
    _finished: dict[str, NewCount] = field(default_factory=dict)  # by id; they do not change

    def add(self, buffer: Buffer, changes: Sequence[IndexChange]) -> bool:
        """Note in *buffer* what *changes* mean to the queues that are counted anew, or were.

        The buffer's tally has counted them as if there were no such queue.  Returns whether that
        could be done: not while a count is being made.
        """
        by_queue = {queue: _of(queue, changes) for queue in buffer.recounts}
        by_queue = {queue: some for queue, some in by_queue.items() if some}
        now = micros_of(self.counters.now())
        if any(buffer.recounts[queue].held > now for queue in by_queue):
            return False
        for queue, some in by_queue.items():
            recount = buffer.recounts[queue]
            if recount.open:
                self._add_fresh(queue, recount, some)
            if recount.done:
                self._leave_out(buffer, queue, recount, some)
            if not recount.open and not recount.done:
                del buffer.recounts[queue]
        return True

    def _add_fresh(
        self, queue: str, recount: BufferedRecount, changes: Sequence[IndexChange]
    ) -> None:
        done = self._read(recount_record.DONE, queue, recount.open)
        if done is not None:  # whoever finished it could not tell this buffer
            recount.finish(done.ended)
            return
        count = self._read(recount_record.OPEN, queue, recount.open)
        if count is None:
            recount.give_up()
            return
        for change in changes:
            for place, step in count.adds(*change[:3]):
                recount.fresh[place] += step
            for fingerprint, dead, step in count.fault_steps(*change):
                recount.add_fault(fingerprint, step, dead=dead)

    def _leave_out(
        self, buffer: Buffer, queue: str, recount: BufferedRecount, changes: Sequence[IndexChange]
    ) -> None:
        """Take back from the buffer's tally what the finished count of *queue* has seen already."""
        late = [change for change in changes if change.at <= recount.ended]
        if not late:
            return
        count = self._finished.get(recount.done)
        count = count or self._read(recount_record.DONE, queue, recount.done)
        if count is None:  # too long ago for anything to come
            recount.done, recount.ended = "", 0
            return
        self._finished[recount.done] = count
        everything = NewCount("", 0)  # has seen nothing, so all is to be added
        for change in late:
            for place, step in count.adds(*change[:3]):
                buffer.tally.add_count(queue, place, step)
            for place, step in everything.adds(*change[:3]):
                buffer.tally.add_count(queue, place, -step)
            if count.faults is None:
                continue
            for fingerprint, dead, step in count.fault_steps(*change):
                buffer.tally.faults.add(queue, fingerprint, step, dead=dead)
            for fingerprint, dead, step in everything.fault_steps(*change):
                buffer.tally.faults.add(queue, fingerprint, -step, dead=dead)

    def _read(self, kind: str, queue: str, recount: str) -> NewCount | None:
        found = recount_record.read(self.counters.store, kind, queue, recount, self.counters.now())
        return found[0] if found else None


def _of(queue: str, changes: Sequence[IndexChange]) -> list[IndexChange]:
    """Return *changes* as one queue sees them."""
    sides = (
        IndexChange(
            left if left is not None and left.queue == queue else None,
            entered if entered is not None and entered.queue == queue else None,
            at,
            version,
        )
        for left, entered, at, version in changes
        if left != entered  # else a heartbeat, or another write that moves nothing
    )
    return [change for change in sides if change[:2] != (None, None)]
