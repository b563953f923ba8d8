"""Counting a queue anew by the index, and mending its counters, which the recorder keeps.

For when the recorder was away for more than six hours.  A call is a step: it counts for some
seconds, and its cursor goes on.  The recorder goes on too, before, between and after: by the rule
of ``history/recount`` it knows of each change, however late it comes to it, whether the new count
has seen it.

- What is counted is a record of its own, and every buffer of the counters notes it
  before the first page is counted: from then on buffers add up what the new count has not seen.
- While pages are counted, the buffers are *held*: the recorder lets what is of this queue wait,
  some seconds at most, so that it never judges by a record which lacks the page that is just read.
- The last step makes the counters what the new count and the buffers come to.  It may be repeated:
  it works out the difference anew.  From then on the recorder leaves out what was seen.

Each step also says whether the numbers are exact: whether no task of the queue is known to have
been written since the first step.  It looks at the times of the tasks that it reads, at what the
recorder has counted meanwhile, and at the end once more at how many tasks the index has.

Whoever dies on the way leaves the counters as they were, and buffers that are held for some
seconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from headrace.domain.change import Entry
from headrace.domain.errors import InvalidRequest, Unavailable
from headrace.domain.ids import new_request_token
from headrace.domain.instants import instant_of, micros_of
from headrace.domain.task import TURN_LANE, Place, State, Task, places_of
from headrace.history.counter_buffer import Buffer, BufferedRecount
from headrace.history.counters import Counters
from headrace.history.faults import FaultChanges, FaultCount, Kinds
from headrace.history.recount import DONE, OPEN, NewCount, read, to_record, together, write
from headrace.history.tally import STATES, Counts, counts_of
from headrace.history.transitions import standing_fault
from headrace.ops.shared.audit import Audit
from headrace.ops.shared.paging import Cursors
from headrace.ops.shared.queues import QueueOperations
from headrace.store.base import Position, Store

_HELD: Final = timedelta(seconds=20)
_TO_FINISH: Final = timedelta(seconds=12)  # what writing down a step may take, at the very most
_PAGES: Final = 4_000  # some 28,000,000 tasks, and a record of 200 KB


_DEAD_AT_ONCE: Final = (2_000, 500, 100, 20, 5, 1, 1, 1, 1, 1)
"""How many dead tasks a page has, and when one of them has gone meanwhile the next try of it."""

_LIVE_AT_ONCE: Final = 2_000
_READ: Final = 100
_GONE: Final = 10**15
"""A version that no task reaches: what is gone when it is read has been left in every one."""


class _Page(NamedTuple):
    """What was counted of a partition at once, and where it ended (None: with the partition)."""

    number: int
    last: Position | None
    counted_at: int
    cancelled: int = 0
    faults: FaultChanges | None = None
    changed: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Recounted:
    """What a recount has come to: final without a ``cursor``.

    ``was`` is what the counters said: now, or, when it is final, before they were corrected.
    ``exact``: no task of the queue was written since the first step.
    """

    counts: Counts
    was: Counts
    cursor: str | None
    exact: bool


@dataclass(slots=True, eq=False, repr=False)
class Recounting:
    """The use case, with what it needs from outside; *patience* is seconds a step counts for."""

    store: Store
    queues: QueueOperations
    counters: Counters
    cursors: Cursors
    audit: Audit
    now: Callable[[], datetime]
    patience: float = 5.0
    new_id: Callable[[], str] = new_request_token

    def step(self, queue: str, cursor: str | None = None) -> Recounted:
        """Begin to count *queue* anew, or go on; the last step mends the counters.

        Raises NotFound for the queue, InvalidRequest for a cursor that is none, or of a recount
        that was given up or that another has taken the place of, and Unavailable when a step took
        too long: it may be repeated.
        """
        source = self.queues.get(queue)
        scope = f"recount {queue}"
        held_until = self.now() + _HELD
        if cursor is None:
            began = micros_of(self.now())
            count = NewCount(
                self.new_id(), source.shards_in_use, lanes=source.lanes_in_use, began=began
            )
            version = write(self.store, OPEN, queue, count, self.now())
            self._hold(queue, count.id, held_until, begins=True)
        else:
            recount: str = self.cursors.read(scope, cursor)
            if (finished := self._finished(queue, recount)) is not None:
                return finished
            found = read(self.store, OPEN, queue, recount, self.now())
            if found is None:
                raise _given_up()
            count, version = found
            self._hold(queue, recount, held_until)
        count = self._count(queue, count)
        count = replace(count, exact=count.exact and not count.changed)
        self._in_time(queue, count.id, held_until)
        if not self.store.put_record(
            to_record(OPEN, queue, count, self.now(), version + 1), replaces=version
        ):
            message = "somebody else is taking the same step; repeat it"
            raise Unavailable(message)
        if count.next is None:
            return self._finish(queue, count, held_until)
        self._release(queue, count.id)
        buffers = self.counters.buffers()
        was = self.counters.counts(queue, buffers)
        fresh = [Buffer.of(buffer).recounts[queue].fresh for buffer in buffers]
        exact = count.exact and not any(map(any, fresh)) and self._unchanged(queue, count)
        return Recounted([*count.numbers], was, self.cursors.write(scope, count.id), exact)

    # -- a step --------------------------------------------------------------------------------

    def _count(self, queue: str, count: NewCount) -> NewCount:
        until = self.now() + timedelta(seconds=self.patience)
        while (place := count.next) is not None:
            state, label, last = place
            after = Position(instant_of(last.until), last.task_id) if last is not None else None
            partition = Place.labelled(queue, state, label)
            if state is State.DEAD:
                page = self._dead_page(queue, count.id, partition, after)
            else:
                live = state is not State.SUCCEEDED and count.faults is not None
                page = (self._live_page if live else self._page)(partition, after)
            end = (micros_of(page.last.scheduled_at), page.last.task_id) if page.last else None
            count = count.with_page(
                state,
                label,
                page.number,
                last=end,
                counted_at=page.counted_at,
                cancelled=page.cancelled,
                faults=page.faults,
                changed=page.changed,
            )
            if len(count.pages) > _PAGES:
                message = f"queue {queue} has too many tasks to be counted anew"
                raise InvalidRequest(message)
            if self.now() >= until:
                break
        return count

    def _page(self, partition: Place, after: Position | None) -> "_Page":
        counted_at = micros_of(self.now())
        # With those past retention: the recorder hears of them when the table removes them.
        page = self.store.count(partition, after=after, now=None)
        return _Page(page.number, page.last, counted_at)

    def _live_page(self, partition: Place, after: Position | None) -> "_Page":
        """Count a page of tasks that may change while they are read."""
        counted_at = micros_of(self.now())
        page = self.store.entries(partition, after=after, limit=_LIVE_AT_ONCE)
        faults, changed = FaultChanges(), dict[str, int]()
        for entry, task in self._read(page.entries):
            as_shown = task is not None and _stands(task, partition, entry.scheduled_at)
            if not as_shown:
                changed[entry.task_id] = _GONE if task is None else task.version
            if task is not None and (as_shown or _within(task, partition, after, page.last)):
                _count_fault(faults, task)
        return _Page(len(page.entries), page.last, counted_at, 0, faults, changed)

    def _read(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, Task | None]]:
        """Yield *entries*, each task once, with what is there of it now."""
        once = list({entry.task_id: entry for entry in entries}.values())
        for start in range(0, len(once), _READ):
            some = once[start : start + _READ]
            tasks = self.store.read((entry.task_id for entry in some), payload=False)
            yield from ((entry, tasks.get(entry.task_id)) for entry in some)

    def _dead_page(
        self, queue: str, recount: str, partition: Place, after: Position | None
    ) -> "_Page":
        """Count a page of dead tasks, each of which was read as it stood there.

        Raises Unavailable when they go as quickly as they are read.
        """
        for limit in _DEAD_AT_ONCE:
            counted_at = micros_of(self.now())
            page = self.store.entries(partition, after=after, limit=limit)
            dead = self._dead(page.entries)
            if dead is not None:
                return _Page(len(page.entries), page.last, counted_at, *dead)
            self.counters.wait()
        self._release(queue, recount)
        message = "dead tasks of the queue are just being removed; repeat this step"
        raise Unavailable(message)

    def _dead(self, entries: Sequence[Entry]) -> tuple[int, FaultChanges] | None:
        """Return how many were cancelled and what the others ended of; None if one has gone."""
        cancelled, faults = 0, FaultChanges()
        for entry, task in self._read(entries):
            if task is None or not _stands(task, entry.place, entry.scheduled_at):
                return None
            cancelled += task.cancelled
            _count_fault(faults, task)
        return cancelled, faults

    def _finish(self, queue: str, count: NewCount, held_until: datetime) -> Recounted:
        self.counters.post_faults(queue)
        buffers = self.counters.buffers()
        missed = [Buffer.of(buffer).recounts[queue] for buffer in buffers]
        fresh = [recount.fresh for recount in missed]
        counts = [max(0, number) for number in together(count.numbers, *fresh)]
        was = self.counters.counts(queue, buffers)
        off = [right - found for right, found in zip(counts, was, strict=True)]
        with self.audit.action("recount", queue=queue) as outcome:
            outcome.matched, outcome.changed = sum(counts[: len(STATES)]), sum(map(abs, off))
            self._in_time(queue, count.id, held_until)
            if any(off):
                self.counters.mend(queue, off)
            if count.faults is not None:
                self.counters.mend_faults(queue, _faults_found(count.faults, missed))
            done = replace(count, numbers=tuple(counts), was=tuple(was), exact=False)
            write(self.store, DONE, queue, done, self.now())
        self._release(queue, count.id, done)
        self.store.drop_record(OPEN, queue)
        exact = count.exact and not any(map(any, fresh)) and self._unchanged(queue, count)
        if exact:
            write(self.store, DONE, queue, replace(done, exact=True), self.now())
        return Recounted(counts, was, None, exact)

    def _finished(self, queue: str, recount: str) -> Recounted | None:
        """Return the result of a recount if it is finished, and let every buffer know that."""
        found = read(self.store, DONE, queue, recount, self.now())
        if found is None:
            return None
        done, _ = found
        self._release(queue, recount, done)
        return Recounted([*done.numbers], [*done.was], None, done.exact)

    # -- whether it is exact ---------------------------------------------------------------------

    def _unchanged(self, queue: str, count: NewCount) -> bool:
        """Tell whether, by the index, no task of *queue* was written since the first step."""
        began = instant_of(count.began)
        for state in STATES[: count.pages[-1].state + 1]:
            for place in places_of(queue, state, count.shards, count.lanes):
                since = None if place.lane == TURN_LANE else began
                page = self.store.entries(place, since=since, limit=_READ)
                if any(_written_since(began, task) for _, task in self._read(page.entries)):
                    return False
        return count.next is not None or self._as_many(queue, count)

    def _as_many(self, queue: str, count: NewCount) -> bool:
        """Tell whether the index has as many tasks as were counted; no if that takes too long."""
        until = self.now() + timedelta(seconds=self.patience)
        for state, counted in zip(STATES, count.numbers, strict=False):
            number = 0
            for place in places_of(queue, state, count.shards, count.lanes):
                after = None
                while True:
                    page = self.store.count(place, after=after, now=None)
                    number, after = number + page.number, page.last
                    if after is None:
                        break
                    if self.now() >= until:
                        return False
            if number != counted:
                return False
        return True

    # -- the buffers -----------------------------------------------------------------------------

    def _hold(self, queue: str, recount: str, until: datetime, *, begins: bool = False) -> None:
        """Have the recorder let changes of *queue* wait.  Raises as step() does."""

        def hold(buffer: Buffer) -> None:
            known = buffer.recounts.setdefault(queue, BufferedRecount())
            if begins:
                known.open, known.fresh, known.faults = recount, counts_of(), {}
            if known.open != recount:
                raise _given_up()
            known.held = micros_of(until)

        try:
            self.counters.change_buffers(hold)
        except InvalidRequest:
            self._release(queue, recount)
            raise

    def _release(self, queue: str, recount: str, done: NewCount | None = None) -> None:
        """Let the recorder go on; with what is *done*, by that."""

        def release(buffer: Buffer) -> None:
            known = buffer.recounts.get(queue)
            if known is None or known.open != recount:
                return
            known.held = micros_of(self.now())
            if done is not None:
                known.finish(done.ended)

        self.counters.change_buffers(release)

    def _in_time(self, queue: str, recount: str, held_until: datetime) -> None:
        """Raise Unavailable unless the buffers are held until what follows is written down."""
        if self.now() >= held_until - _TO_FINISH:
            self._release(queue, recount)
            message = "the table is slow; repeat this step"
            raise Unavailable(message)


def _written_since(began: datetime, task: Task | None) -> bool:
    """Tell whether *task* came to its state after *began*, or is gone since the index showed it."""
    if task is None:
        return True
    times = (task.enqueued_at, task.returned_at, task.started_at, task.finished_at)
    return any(at is not None and at > began for at in times)


def _stands(task: Task, place: Place, at: datetime) -> bool:
    return (task.spent, task.place, task.scheduled_at) == (None, place, at)


def _within(task: Task, place: Place, after: Position | None, last: Position | None) -> bool:
    """Tell whether *task* is in the part of *place* behind *after* and up to *last*."""
    if task.spent is not None or task.place != place:
        return False
    where = Position(task.scheduled_at, task.id)
    return (after is None or where > after) and (last is None or where <= last)


def _count_fault(faults: FaultChanges, task: Task) -> None:
    fault = standing_fault(task)
    if fault is not None:
        at = task.errors[-1].at if task.errors else task.finished_at or task.scheduled_at
        kind = faults.count(task.queue, fault.fingerprint)
        kind.step(fault, 1)
        kind.see(fault, micros_of(at), times=0)  # when it came the recorder has counted, or nobody


def _faults_found(counted: Mapping[str, FaultCount], missed: Iterable[BufferedRecount]) -> Kinds:
    """Return the faults that were *counted*, with what buffers know that the count has *missed*."""
    found = {name: replace(kind) for name, kind in counted.items()}
    for recount in missed:
        for name, (dead, retried) in recount.faults.items():
            kind = found.setdefault(name, FaultCount())
            kind.dead, kind.retried = kind.dead + dead, kind.retried + retried
    return found


def _given_up() -> InvalidRequest:
    message = "was of a recount that was given up, or whose place another has taken: begin anew"
    return InvalidRequest.of("cursor", message)
