"""One dequeue call: which queues it reads, how long it waits, and which tasks fit its answer.

``queue_dequeue`` leases the tasks of one queue.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from headrace.domain.change import Entry
from headrace.domain.errors import FieldError, NotFound, Unavailable
from headrace.domain.lease import LeaseGroup
from headrace.domain.limits import AnswerRoom
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.task import Task
from headrace.ops.delivery.idempotency import DeliveryBatch, NotedState
from headrace.ops.delivery.queue_dequeue import QueueDequeue
from headrace.ops.shared.lanes import delivery_rank, delivery_turn
from headrace.store.call_scope import client_gone

if TYPE_CHECKING:
    from headrace.ops.delivery.deliveries import Deliveries

_PAUSED_POLL_SECONDS: Final = 5.0
_LIMITED_POLL_SECONDS: Final = 60.0  # at most: settings may change
_POLL_GROWTH: Final = 1.5
_POLL_CEILING: Final = 5
_HELP_EVERY: Final = timedelta(seconds=1)


class Order(StrEnum):
    """The order in which tasks of several queues are leased."""

    PREFERENCE = "preference"  #: a later queue only where those before have too few
    DUE = "due"  #: the tasks that fell due first, of any queue


@dataclass(frozen=True, slots=True)
class DequeueResult:
    """The leased tasks, and in how many seconds an idle worker should ask again.

    ``replayed`` tells that an earlier try of the same call leased them.
    """

    tasks: tuple[Task, ...]
    poll_after_seconds: float
    now: datetime
    replayed: bool = False


@dataclass(slots=True, eq=False, repr=False)
class DequeueCall:
    """One call and its parameters; implements Claim of the store.

    ``tasks`` are the leased tasks, ``queue_dequeues`` the state of the call in each queue.
    """

    deliveries: "Deliveries"
    queues: str | Sequence[str]
    order: Order
    batch_size: int
    wait_seconds: float
    worker: str
    keepalive: Seconds | None
    lease_id: str | None
    batch: DeliveryBatch | None
    tasks: list[Task] = field(default_factory=list, init=False)
    queue_dequeues: Sequence[QueueDequeue] = field(default=(), init=False)
    _sources: Sequence[Queue] = field(default=(), init=False)
    _group: LeaseGroup | None = field(default=None, init=False)
    _helped_at: datetime | None = field(default=None, init=False)
    _helps: bool = field(default=False, init=False)
    _parked: bool = field(default=False, init=False)
    _noted: NotedState | None = field(default=None, init=False)

    def run(self) -> DequeueResult:
        """Lease due tasks; wait for the first if no task is due.  Raises as Deliveries.dequeue."""
        deliveries = self.deliveries
        until = deliveries.now() + timedelta(seconds=self.wait_seconds)
        pause = deliveries.poll_after_seconds
        arrived = self._arrivals()
        looked = False
        while True:
            if self._client_gone():
                return DequeueResult((), 0.0, deliveries.now())
            self._sources = self._read_queues()
            self._helps = self._begin_helping()
            if not looked and (replayed := self._leased_before()) is not None:
                return replayed
            looked = True
            self._claim()
            tasks = self._deliverable()
            now = deliveries.now()
            if tasks or now >= until:
                if not tasks and self.batch is not None and not self.batch.note_nothing(now=now):
                    return self._leased_before() or DequeueResult((), 0.0, now)
                return DequeueResult(tasks, self._poll_after(now), now)
            with deliveries.crowd:
                arrived = self._wait(self._nap(pause, until, now), arrived)
            if self.tasks:
                tasks = self._deliverable()
                if tasks:
                    now = deliveries.now()
                    return DequeueResult(tasks, self._poll_after(now), now)
                continue
            deliveries.service.keys.check_caller()
            pause = min(pause * _POLL_GROWTH, deliveries.poll_after_seconds * _POLL_CEILING)

    # -- the claim --------------------------------------------------------------------------------

    def _claim(self) -> None:
        self._parked = False
        if self._needs_no_limits(self._sources):
            self.deliveries.store.claim(self)
        else:
            self.claim()

    def _needs_no_limits(self, sources: Sequence[Queue]) -> bool:
        """Return whether the store may undo a claim of *sources*.

        The process remembers more of limits, groups and lease groups than ``undo`` forgets.
        """
        return self.lease_id is None and not any(
            source.limited or source.group_limit or source.settings.groups for source in sources
        )

    def claim(self) -> Collection[str]:
        """Lease due tasks and return their ids; raises as ``run``.  See Claim of the store."""
        sources = self._sources
        if self._parked:
            if self._client_gone():
                return ()
            self.deliveries.service.keys.check_caller()
            sources = self._read_queues()
            if not self._needs_no_limits(sources):
                return ()
        self._sources, self.tasks = sources, []
        self._noted = None if self.batch is None else self.batch.state
        self.queue_dequeues = [
            QueueDequeue(
                self.deliveries,
                source,
                self.batch_size,
                self.worker,
                self.keepalive,
                self._group,
                self.batch,
            )
            for source in sources
        ]
        self._take(helps=self._helps and not self._parked)
        return [task.id for task in self.tasks]

    def undo(self) -> None:
        """Forget what the last claim leased."""
        self.deliveries.claims.drop([Entry.of(task) for task in self.tasks])
        if self.batch is not None and self._noted is not None:
            self.batch.restore(self._noted)
        self.tasks = []

    def _take(self, *, helps: bool) -> None:
        """Lease a batch.

        If the store fails midway, a call without an Idempotency-Key answers with what it has
        leased.  A call with one fails: its repeat finds those tasks.
        """
        try:
            if self.order is Order.DUE and len(self.queue_dequeues) > 1:
                self._take_by_due_time(helps=helps)
                by_queue = {each.queue.name: each for each in self.queue_dequeues}
                self.tasks.sort(key=lambda task: by_queue[task.queue].answer_order(task))
            else:
                self._take_by_preference(helps=helps)
        except Unavailable:
            if not self.tasks or self.batch is not None:
                raise

    def _take_by_preference(self, *, helps: bool) -> None:
        for each in self.queue_dequeues:
            each.count = self.batch_size - len(self.tasks)
            self.tasks += each.take(helps=helps)
            if len(self.tasks) == self.batch_size:
                return

    def _take_by_due_time(self, *, helps: bool) -> None:
        """Lease from each queue as many tasks as are among the first of all queues."""
        ready = [each.due() for each in self.queue_dequeues]
        while wanted := self.batch_size - len(self.tasks):
            waiting = [
                (self.queue_dequeues[place].turn(entry)[:2], place, entry.task_id)
                for place, entries in enumerate(ready)
                for entry in entries
            ]
            shares = Counter(place for _, place, _ in nsmallest(wanted, waiting))
            for place, count in sorted(shares.items()):
                won = self.queue_dequeues[place].lease(ready[place], count)
                self.tasks += won
                ids = {task.id for task in won}
                rest = [entry for entry in ready[place] if entry.task_id not in ids]
                ready[place] = rest if len(won) == count else []  # the rest cannot be leased now
            if not shares:
                break
        for each in self.queue_dequeues if helps else ():
            count = self.batch_size - len(self.tasks)
            if count == 0:
                return
            self.tasks += each.lease(each.reclaimed(), count)

    def _leased_before(self) -> DequeueResult | None:
        """Return the tasks that an earlier try leased and still holds, or None."""
        if self.batch is None:
            return None
        deliveries, sources = self.deliveries, self._sources
        held = self.batch.leased_before(self._group, sources)
        if held is None:
            return None
        names = [source.name for source in sources]
        order = delivery_turn if len(sources) == 1 else delivery_rank
        held.sort(key=lambda task: order(sources[names.index(task.queue)], task))
        if self.order is Order.PREFERENCE:
            held.sort(key=lambda task: names.index(task.queue))
        tasks = self._fitting(held)
        return DequeueResult(tasks, deliveries.poll_after_seconds, deliveries.now(), replayed=True)

    def _deliverable(self) -> tuple[Task, ...]:
        """Return the leased tasks that fit one answer; release all if the client disconnected."""
        fitting = self._fitting(self.tasks)
        if not fitting or not self._client_gone():
            return fitting
        self.deliveries.give_back({source.name: source for source in self._sources}, fitting)
        return ()

    def _fitting(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return the tasks that fit one answer with their payloads; release the others."""
        fitting: list[Task] = []
        surplus: list[Task] = []
        room = AnswerRoom()
        for task in tasks:
            (fitting if room.takes_task(task) or not fitting else surplus).append(task)
        by_name = {source.name: source for source in self._sources}
        self.deliveries.give_back(by_name, surplus)
        return tuple(self.deliveries.with_payloads(by_name, fitting))

    # -- queues and waiting -----------------------------------------------------------------------

    def _names(self) -> Sequence[str]:
        return [self.queues] if isinstance(self.queues, str) else self.queues

    def _read_queues(self) -> list[Queue]:
        """Return the queues.  Raises NotFound, naming the field where there are several."""
        cached = self.deliveries.service.queues.cached
        if isinstance(self.queues, str):
            return [cached(self.queues)]
        sources = []
        for place, name in enumerate(self.queues):
            try:
                sources.append(cached(name))
            except NotFound as missing:
                field = FieldError(f"queues[{place}]", missing.detail)
                raise NotFound(missing.detail, errors=[field]) from None
        return sources

    def _begin_helping(self) -> bool:
        """Return whether to reclaim leases this time, once a second; check the lease group then."""
        now = self.deliveries.now()
        if self._helped_at is not None and now - self._helped_at < _HELP_EVERY:
            return False
        self._helped_at = now
        if self.lease_id is not None:
            names = [source.name for source in self._sources]
            self._group = self.deliveries.service.leases.open_for(self.lease_id, *names)
        return True

    def _client_gone(self) -> bool:
        """Return whether the client of a waiting call has disconnected.

        A call that does not wait is answered: its client may have closed only its sending side.
        """
        return self.wait_seconds > 0 and client_gone()

    def _arrivals(self) -> Mapping[str, int]:
        """Return the numbers of arrivals so far, if the call may wait for more."""
        arrivals = self.deliveries.arrivals
        if arrivals is None or self.wait_seconds == 0:
            return {}
        return arrivals.numbers(self._names())

    def _nap(self, pause: float, until: datetime, now: datetime) -> float:
        """Return how many seconds to wait before the next poll."""
        nap = min(self.deliveries.crowd.pause(pause), (until - now).total_seconds())
        due = min((each.next_due for each in self.queue_dequeues if each.next_due), default=None)
        return nap if due is None else min(nap, max(0.001, (due - now).total_seconds()))

    def _wait(self, seconds: float, arrived: Mapping[str, int]) -> Mapping[str, int]:
        """Wait for *seconds*, or until tasks come; return the numbers of arrivals by then.

        The store may run the claim again when a task comes.
        """
        arrivals = self.deliveries.arrivals
        self.tasks = []
        if arrivals is None:
            self.deliveries.service.sleep(seconds)
            return arrived
        self._parked = self._needs_no_limits(self._sources)
        return arrivals.wait(self._names(), arrived, seconds, self if self._parked else None)

    def _poll_after(self, now: datetime) -> float:
        return min(self._poll_queue_after(each, now) for each in self.queue_dequeues)

    def _poll_queue_after(self, each: QueueDequeue, now: datetime) -> float:
        queue, usual = each.queue, self.deliveries.poll_after_seconds
        pushed = queue.settings.target is not None and not self.deliveries.pushing
        if pushed or queue.is_paused(now):
            longer = max(_PAUSED_POLL_SECONDS, usual)
            resumes = None if pushed else queue.resume_at
            return longer if resumes is None else min(longer, (resumes - now).total_seconds())
        if each.limited_for is not None:
            return max(usual, min(each.limited_for, _LIMITED_POLL_SECONDS))
        if each.no_slot:
            return usual * _POLL_CEILING
        if each.next_due is None:
            return usual
        return max(0.0, min(usual, (each.next_due - now).total_seconds()))
