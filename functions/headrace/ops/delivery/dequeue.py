"""One dequeue call: which queues it looks at, how long it waits, and what fits its answer.

How tasks of one queue are leased is the business of ``leasing``.

Long, because the call reads from top to bottom here, the look within the write of somebody else
included.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from headrace.domain import plan, settle
from headrace.domain.change import Entry
from headrace.domain.errors import FieldError, NotFound, Unavailable
from headrace.domain.lease import LeaseGroup
from headrace.domain.limits import AnswerRoom
from headrace.domain.queue import Queue
from headrace.domain.retry import Seconds
from headrace.domain.settle import Held, ReleaseReason
from headrace.domain.task import Task
from headrace.ops.delivery.contention import Crowd
from headrace.ops.delivery.idempotency import DeliveryBatch, NotedState
from headrace.ops.delivery.leasing import Leasing, QueueLook
from headrace.ops.shared.commits import commit
from headrace.ops.shared.lanes import delivery_rank, delivery_turn
from headrace.ops.shared.limiting import limited
from headrace.store.base import Arrivals

if TYPE_CHECKING:
    from headrace.runtime.service import Service


_PAUSED_POLL_SECONDS: Final = 5.0
_LIMITED_POLL_SECONDS: Final = 60.0  # at most: settings may change meanwhile
_POLL_GROWTH: Final = 1.5
_POLL_CEILING: Final = 5
_HELP_EVERY: Final = timedelta(seconds=1)


class Order(StrEnum):
    """In which order tasks of several queues are taken."""

    PREFERENCE = "preference"  #: a later queue only where those before have too few
    DUE = "due"  #: those whose turn is first, of whatever queue


@dataclass(frozen=True, slots=True)
class DequeueResult:
    """The tasks handed out, and when an idle worker should ask again (seconds)."""

    tasks: tuple[Task, ...]
    poll_after_seconds: float
    now: datetime
    replayed: bool = False  # whether they are what an earlier try of the same call had leased


class Deliveries(Leasing):
    """The use case, with what it needs from outside."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.poll_after_seconds: float = service.settings.poll_after_seconds
        self.crowd: Crowd = Crowd()
        self.arrivals: Arrivals | None = service.store.arrivals

    def dequeue(  # noqa: PLR0913  the API's own fields, and how to wait
        self,
        queues: str | Sequence[str],
        *,
        order: Order = Order.PREFERENCE,
        batch_size: int = 1,
        wait_seconds: float = 0,
        worker: str = "",
        keepalive: Seconds | None = None,
        lease_id: str | None = None,
        batch: DeliveryBatch | None = None,
        go_on: Callable[[], bool] = lambda: True,
        still_may: Callable[[], object] = lambda: None,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> DequeueResult:
        """Lease up to *batch_size* due tasks to *worker*, of one queue in order of their due time.

        Of several *queues* a later one is asked only for what those before do not have; by the
        *order* DUE those tasks are leased that fell due first of all.
        Waits up to *wait_seconds* for the first one, as long as *go_on* says so; *still_may* is
        asked each time before it looks again.  If *is_gone* tells that the client of a call that
        waits has hung up, nothing is leased, and tasks leased meanwhile go back, no attempt used.
        *lease_id* is a group to put them under; *keepalive*
        has no meaning then.  Of calls with the same *batch* the first one leases, and the others
        get what is left of that.
        Raises NotFound for a queue that is missing, LeaseLost unless the group is open, as *batch*
        does, and what *still_may* raises; nothing is leased then.
        """
        result = Dequeue(
            self,
            queues,
            order,
            batch_size,
            wait_seconds,
            worker,
            keepalive,
            lease_id,
            batch,
            go_on,
            still_may,
            is_gone,
        ).run()
        self.release_keys(result.tasks)
        return result

    def lease(
        self,
        queue: Queue,
        entries: Sequence[Entry],
        *,
        worker: str,
        group: LeaseGroup,
        rated: bool = True,
    ) -> list[Task]:
        """Lease *entries* under *group* as far as the limits of *queue* allow; return the tasks.

        They are what the index shows as due; how many they are is the caller's business.  If not
        *rated*, they do not count for the queue's rate.
        """
        look = QueueLook(self, queue, len(entries), worker, group=group, rated=rated)
        tasks = self.whole({queue.name: queue}, look.lease(entries, len(entries)))
        self.release_keys(tasks)
        return tasks

    def release_keys(self, tasks: Iterable[Task]) -> None:
        """Free the dedupe keys that *tasks*, which are about to be handed out, hold until then.

        If the process dies before this, the key is free after the next delivery.
        """
        for task in tasks:
            lock = plan.release_at_start(task)
            if lock is not None:
                with suppress(Unavailable):
                    self.store.set_key_lock(lock)

    def give_back(self, sources: Mapping[str, Queue], surplus: Sequence[Task]) -> None:
        """Release at once what was leased of *sources* in vain, its turn kept."""
        if not surplus:
            return
        now = self.now()
        changes = [
            settle.release(
                Held.of(task), sources[task.queue], now=now, reason=ReleaseReason.UNDELIVERED
            )
            for task in surplus
        ]
        with suppress(Unavailable):  # then their leases lapse
            commit(self.service, changes)
        self.claims.drop([Entry.of(task) for task in surplus])

    def whole(self, sources: Mapping[str, Queue], tasks: list[Task]) -> list[Task]:
        """Return *tasks* of *sources* with their payloads; those whose payload is lost are dead.

        While payloads cannot be fetched, the tasks that have one elsewhere go back.
        Raises Unavailable where those are all.
        """
        if not any(task.fetchable for task in tasks):
            return tasks
        try:
            filled = self.service.texts.filled(tasks)
        except Unavailable:
            inside = [task for task in tasks if not task.fetchable]
            self.give_back(sources, [task for task in tasks if task.fetchable])
            if not inside:
                raise
            return inside
        lost = [task for task in filled if "payload" in self.service.texts.lost(task)]
        if not lost:
            return filled
        now = self.now()
        changes = [settle.reject_lost(task, sources[task.queue], now=now) for task in lost]
        with suppress(Unavailable):  # then their leases lapse, and it is seen again
            commit(self.service, changes)
        return [task for task in filled if task not in lost]


@dataclass(slots=True, eq=False, repr=False)
class Dequeue:
    """One call, with what it asks for.

    *queues* is one name, or several in order of preference.  *go_on* tells whether there is time to
    wait on, *still_may* raises when that is over, *is_gone* tells that the client hung up.
    """

    deliveries: Deliveries
    queues: str | Sequence[str]
    order: Order
    batch_size: int
    wait_seconds: float
    worker: str
    keepalive: Seconds | None
    lease_id: str | None
    batch: DeliveryBatch | None
    go_on: Callable[[], bool]
    still_may: Callable[[], object]
    is_gone: Callable[[], bool]
    group: LeaseGroup | None = field(default=None, init=False)
    helped_at: datetime | None = field(default=None, init=False)

    def run(self) -> DequeueResult:
        """Lease what there is, and wait for it if there is nothing.  Raises as Deliveries do."""
        deliveries = self.deliveries
        until = deliveries.now() + timedelta(seconds=self.wait_seconds)
        pause, first_look = deliveries.poll_after_seconds, True
        arrived = self._arrived()
        while True:
            if self._client_gone():
                return DequeueResult((), 0.0, deliveries.now())
            sources = self._sources()
            helps = self._helps(sources)
            if first_look and (held := self._leased_before(sources)) is not None:
                return held
            first_look = False
            looks = [self._look(source) for source in sources]
            tasks = self._deliverable(sources, self._take(looks, [], helps=helps))
            now = deliveries.now()
            if tasks or now >= until or not self.go_on():
                if not tasks and self.batch is not None and not self.batch.note_nothing(now=now):
                    return self._leased_before(sources) or DequeueResult((), 0.0, now)
                return DequeueResult(tasks, self._poll_after_all(looks, now), now)
            nap = min(deliveries.crowd.pause(pause), (until - now).total_seconds())
            due = _first(look.next_due for look in looks)
            if due is not None:
                nap = min(nap, max(0.001, (due - now).total_seconds()))
            early = _EarlyLook(self) if self._looks_early(sources) else None
            with deliveries.crowd:
                arrived = self._wait(nap, arrived, early)
            if early is not None and early.tasks:
                tasks, now = self._deliverable(sources, early.tasks), deliveries.now()
                if tasks:
                    return DequeueResult(tasks, self._poll_after_all(early.looks, now), now)
                continue
            self.still_may()  # after the nap: what is leased next is leased by its answer
            pause = min(pause * _POLL_GROWTH, deliveries.poll_after_seconds * _POLL_CEILING)

    def take_early(self, taken: list[Task]) -> Sequence[QueueLook]:
        """Look, and lease into *taken*, within the write that brings a task; raises as run()."""
        if not self.go_on() or self._client_gone():
            return ()
        self.still_may()
        sources = self._sources()
        if not self._looks_early(sources):  # any more
            return ()
        looks = [self._look(source) for source in sources]
        self._take(looks, taken, helps=False)
        return looks

    def _client_gone(self) -> bool:
        """Return whether nobody reads the answer of a call that waits.

        A call that does not wait is answered: its client may have closed only its sending side.
        """
        return self.wait_seconds > 0 and self.is_gone()

    def _deliverable(self, sources: Sequence[Queue], tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return the tasks that fit one answer; give all back if the client hung up meanwhile."""
        fitting = self._fitting(sources, tasks)
        if not fitting or not self._client_gone():
            return fitting
        self.deliveries.give_back({source.name: source for source in sources}, fitting)
        return ()

    def _names(self) -> Sequence[str]:
        return [self.queues] if isinstance(self.queues, str) else self.queues

    def _arrived(self) -> Mapping[str, int]:
        """Return the numbers of arrivals so far, for whoever then waits for more."""
        arrivals = self.deliveries.arrivals
        if arrivals is None or self.wait_seconds == 0:
            return {}
        return arrivals.numbers(self._names())

    def _looks_early(self, sources: Sequence[Queue]) -> bool:
        """Tell whether to look within the write that brings a task.

        Not where a limit, groups that take turns, or the lease of a group have to be looked at too.
        """
        return self.lease_id is None and not any(
            limited(source) or source.group_limit or source.settings.groups for source in sources
        )

    def _wait(
        self, seconds: float, arrived: Mapping[str, int], early: "_EarlyLook | None"
    ) -> Mapping[str, int]:
        """Wait for so long, or where that can be known until more than *arrived* has come.

        Return what has come by then.
        """
        arrivals = self.deliveries.arrivals
        if arrivals is None:
            self.deliveries.service.sleep(seconds)
            return arrived
        return arrivals.wait(self._names(), arrived, seconds, early)

    def _sources(self) -> list[Queue]:
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

    def _look(self, source: Queue) -> QueueLook:
        return QueueLook(
            self.deliveries,
            source,
            self.batch_size,
            self.worker,
            self.keepalive,
            self.group,
            batch=self.batch,
        )

    def _helps(self, sources: Sequence[Queue]) -> bool:
        """Tell whether to reclaim leases this time: once in a while, as is looking at the group."""
        now = self.deliveries.now()
        if self.helped_at is not None and now - self.helped_at < _HELP_EVERY:
            return False
        self.helped_at = now
        if self.lease_id is not None:
            names = [source.name for source in sources]
            self.group = self.deliveries.service.leases.open_for(self.lease_id, *names)
        return True

    def _take(
        self, looks: Sequence[QueueLook], taken: list[Task], *, helps: bool
    ) -> Sequence[Task]:
        """Lease a batch into *taken*, and return that.

        If the store fails midway, a call without an Idempotency-Key answers with what it has
        leased.  A call with one fails: its repeat finds that, and what the failed write leased.
        """
        try:
            if self.order is Order.DUE and len(looks) > 1:
                self._take_by_due(looks, taken, helps=helps)
                by_queue = {look.queue.name: look for look in looks}
                taken.sort(key=lambda task: by_queue[task.queue].answer_order(task))
            else:
                self._take_by_preference(looks, taken, helps=helps)
        except Unavailable:
            if not taken or self.batch is not None:
                raise
        return taken

    def _take_by_preference(
        self, looks: Sequence[QueueLook], taken: list[Task], *, helps: bool
    ) -> None:
        for look in looks:
            look.count = self.batch_size - len(taken)
            taken += look.take(helps=helps)
            if len(taken) == self.batch_size:
                return

    def _take_by_due(self, looks: Sequence[QueueLook], taken: list[Task], *, helps: bool) -> None:
        """Lease from each queue as many as are among the first of all; in vain, from the others."""
        ready = [look.due() for look in looks]
        while wanted := self.batch_size - len(taken):
            waiting = [
                (looks[place].turn(entry)[:2], place, entry.task_id)
                for place, entries in enumerate(ready)
                for entry in entries
            ]
            shares = Counter(place for _, place, _ in nsmallest(wanted, waiting))
            for place, count in sorted(shares.items()):
                won = looks[place].lease(ready[place], count)
                taken += won
                names = {task.id for task in won}
                rest = [entry for entry in ready[place] if entry.task_id not in names]
                ready[place] = rest if len(won) == count else []  # what is left is not to be had
            if not shares:
                break
        for look in looks if helps else ():
            count = self.batch_size - len(taken)
            if count == 0:
                return
            taken += look.lease(look.reclaimed(), count)

    def _leased_before(self, sources: Sequence[Queue]) -> DequeueResult | None:
        """Return the rest of the tasks that an earlier try leased, if there was one."""
        if self.batch is None:
            return None
        deliveries = self.deliveries
        held = self.batch.leased_before(self.group, sources)
        if held is None:
            return None
        names = [source.name for source in sources]
        order = delivery_turn if len(sources) == 1 else delivery_rank
        held.sort(key=lambda task: order(sources[names.index(task.queue)], task))
        if self.order is Order.PREFERENCE:
            held.sort(key=lambda task: names.index(task.queue))
        tasks = self._fitting(sources, held)
        return DequeueResult(tasks, deliveries.poll_after_seconds, deliveries.now(), replayed=True)

    def _poll_after_all(self, looks: Sequence[QueueLook], now: datetime) -> float:
        return min(self._poll_after(look, now) for look in looks)

    def _poll_after(self, look: QueueLook, now: datetime) -> float:
        queue, usual = look.queue, self.deliveries.poll_after_seconds
        pushed = queue.settings.target is not None and not self.deliveries.pushing
        if pushed or queue.paused(now):
            longer = max(_PAUSED_POLL_SECONDS, usual)
            if pushed or queue.resume_at is None:
                return longer
            return min(longer, (queue.resume_at - now).total_seconds())
        if look.limited_for is not None:
            return max(usual, min(look.limited_for, _LIMITED_POLL_SECONDS))
        if look.no_slot:
            return usual * _POLL_CEILING
        if look.next_due is None:
            return usual
        return max(0.0, min(usual, (look.next_due - now).total_seconds()))

    def _fitting(self, sources: Sequence[Queue], tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return the tasks that fit one answer; the surplus goes back at once, its turn kept."""
        fitting: list[Task] = []
        surplus: list[Task] = []
        room = AnswerRoom()
        for task in tasks:
            (fitting if room.takes_task(task) or not fitting else surplus).append(task)
        by_name = {source.name: source for source in sources}
        self.deliveries.give_back(by_name, surplus)
        return tuple(self.deliveries.whole(by_name, fitting))


@dataclass(slots=True, eq=False, repr=False)
class _EarlyLook:
    """What *call* does within the write that brings a task; implements EarlyLook of the store."""

    call: Dequeue
    looks: Sequence[QueueLook] = ()
    tasks: list[Task] = field(default_factory=list)
    noted: NotedState | None = field(init=False)

    def __post_init__(self) -> None:
        batch = self.call.batch
        self.noted = None if batch is None else batch.state

    def look(self) -> list[str]:
        """Lease what there is."""
        self.looks = self.call.take_early(self.tasks)
        return [task.id for task in self.tasks]

    def undo(self) -> None:
        """Let go of what was leased."""
        self.call.deliveries.claims.drop([Entry.of(task) for task in self.tasks])
        if self.call.batch is not None and self.noted is not None:
            self.call.batch.state = self.noted
        self.looks, self.tasks = (), []


def _first(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of the *times* that are known."""
    return min((time for time in times if time is not None), default=None)
