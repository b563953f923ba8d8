"""Any order of calls to the service, compared with the model after every one."""

import itertools
import random
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.domain.change import Entry
from headrace.domain.errors import Inflight, NotFound
from headrace.domain.filters import TaskFilter
from headrace.domain.plan import NewTask
from headrace.domain.task import Place, State, Task
from headrace.ops.reports import Report, ReportOutcome, Reports, ReportStatus, WorkerError
from headrace.ops.tasks import Enqueued, EnqueueOutcome
from headrace.runtime.wiring import UseCases
from headrace.store.base import Store
from tests.contract.conftest import World, lease_name, new_world
from tests.manual_clock import ManualClock
from tests.property.model import RETRIES, SPREAD, Known, Model, Rules, copied, known

_TICK: Final = 0.001  # no two calls of a real clock see the same instant
_ROOM: Final = 14  # waiting tasks of a queue: what one dequeue of one task looks at is 18
_STATES: Final = ("ENQUEUED", "INFLIGHT", "DEAD", "SUCCEEDED")  # in the order of lists
_VERBS: Final = {
    "SUCCEEDED": "succeed",
    "INFLIGHT": "heartbeat",
    "FAILED": "fail",
    "RELEASED": "release",
    "MOVED": "move",
}

queue_names = st.sampled_from(["plain", "bare", "wide"])
any_of_them = st.integers(0, 1_000)
delays = st.sampled_from([None, None, 0, 0.5, 2, 6, 15, 70])
keepalives = st.sampled_from([None, None, 1, 4, 25])


def new_rules() -> dict[str, Rules]:
    """Return the queues: an ordinary one, one that keeps nothing, one of two shards."""
    return {
        "plain": Rules(),
        "bare": Rules(keepalive=12, expires=20, retry="at once", dead_letters=0, history=0),
        "wide": Rules(
            keepalive=8, expires=0, retry="listed", dead_letters=15, history=40, shards=2,
            shards_in_use=2,
        ),
    }  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """One entry of an enqueue call; times are seconds from now."""

    id: str | None
    delay: float | None
    at: float | None
    expires: float | None
    retry: str | None
    keepalive: float | None


asks = st.builds(
    Ask,
    id=st.sampled_from([None, None, None, "order-1", "order-2", "order-3"]),
    delay=delays,
    at=st.sampled_from([None, None, None, -5, 0.5, 9]),
    expires=st.sampled_from([None, None, None, None, -1, 3, 8, 30]),
    retry=st.none() | st.sampled_from(list(RETRIES)),
    keepalive=keepalives,
)


PLAIN: Final = Ask(None, None, None, None, None, None)
OWN: Final = Ask(None, None, None, expires=45, retry="growing", keepalive=7)


@dataclass(frozen=True)
class Say:
    """One report: about which delivery, under which lease, and what."""

    live: bool
    delivery: int
    lease: str
    status: str
    delay: float | None
    keepalive: float | None
    text: str | None
    retryable: bool
    target: str
    elsewhere: bool


says = st.builds(
    Say,
    live=st.sampled_from([True, True, False]),
    delivery=any_of_them,
    lease=st.sampled_from(["held"] * 6 + ["foreign", "forged", "nonsense"]),
    status=st.sampled_from(list(_VERBS)),
    delay=delays,
    keepalive=keepalives,
    text=st.sampled_from([None, "1"]),
    retryable=st.sampled_from([True, True, True, False]),
    target=st.sampled_from(["plain", "bare", "wide", "plain", "bare", "wide", "nowhere"]),
    elsewhere=st.sampled_from([False] * 7 + [True]),
)


@dataclass(frozen=True)
class Delivery:
    """What a worker knows of a task it was handed."""

    task_id: str
    queue: str
    lease: str


class AnyOrder(RuleBasedStateMachine):
    """The rules are calls; the invariants are the promises of design 1, section 2."""

    look_every = 1  # how many calls between looks at the index, which are dear on a real engine

    def make_store(self) -> Store:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.world: World = new_world(self.make_store(), self.clock)
        self._leave_nothing_to_chance(self.world.use)
        self.model = Model(new_rules())
        self.deliveries: list[Delivery] = []
        self.calls = 0

    @staticmethod
    def _leave_nothing_to_chance(use: UseCases) -> None:
        """Make the same calls end the same way, so that a failure can be seen again."""
        numbers = itertools.count()
        use.tasks.new_id = lambda now: f"tsk_{next(numbers):026}"
        use.tasks.new_token = lambda: f"{next(numbers):010}"
        use.deliveries.new_lease = lambda: f"lse_{next(numbers):020}"
        use.deliveries.chance = random.Random(7)
        use.reaping.spread = use.reports.spread = lambda: SPREAD

    @initialize()
    def begin(self) -> None:
        for name, rules in self.model.queues.items():
            self.world.use.queues.create(name, rules.settings())
        for name in self.model.queues:
            self.enqueue(name, [OWN, PLAIN])

    def now(self) -> datetime:
        """Let a moment pass and return the time of this call."""
        self.calls += 1
        self.clock.forward(_TICK)
        return self.clock()

    def stored(self) -> dict[str, Task]:
        ids = {*self.model.tasks, *self.model.ended}
        return self.world.store.read(sorted(ids))

    # -- producers -----------------------------------------------------------------------------

    @rule(queue=queue_names, entries=st.lists(asks, min_size=1, max_size=3))
    def enqueue(self, queue: str, entries: list[Ask]) -> None:
        if len(self.model.of(queue, "ENQUEUED")) + len(entries) > _ROOM:
            return
        now = self.now()
        new = [
            NewTask(
                str(number),
                id=ask.id,
                scheduled_at=None if ask.at is None else now + timedelta(seconds=ask.at),
                delay_in_seconds=ask.delay if ask.at is None else None,
                expires_at=None if ask.expires is None else now + timedelta(seconds=ask.expires),
                keepalive=ask.keepalive,
                retry=RETRIES[ask.retry].strategy if ask.retry else None,
            )
            for number, ask in enumerate(entries)
        ]

        results = self.world.use.tasks.enqueue(queue, new)

        taken: set[datetime] = set()
        for ask, entry, result in zip(entries, new, results, strict=True):
            due = now + timedelta(seconds=ask.delay or 0)
            due = due if entry.scheduled_at is None else max(now, entry.scheduled_at)
            while due in taken:
                due += timedelta(microseconds=1)
            taken.add(due)
            self._acknowledged(queue, ask, entry, due, result, now)

    def _acknowledged(
        self, queue: str, ask: Ask, entry: NewTask, due: datetime, result: Enqueued, now: datetime
    ) -> None:
        there = self.model.visible(ask.id, now) if ask.id else None
        if there is not None:
            expected = EnqueueOutcome.EXISTING if there.queue == queue else EnqueueOutcome.INVALID
            assert result.outcome is expected
            assert (result.task is None) == (there.queue != queue)
        elif entry.expires_at is not None and entry.expires_at <= due:
            assert result.outcome is EnqueueOutcome.INVALID
        else:
            assert result.outcome is EnqueueOutcome.CREATED
            task = self.model.new(cast("str", result.id), queue, entry.payload, due, now)
            task.keepalive, task.retry = ask.keepalive, ask.retry
            task.expires = entry.expires_at or task.expires
            assert result.id == ask.id or (ask.id is None and result.id not in self.model.tasks)
            self.model.enqueue(task)

    @rule(queue=queue_names, count=st.integers(1, 3))
    def enqueue_plainly(self, queue: str, count: int) -> None:
        self.enqueue(queue, [PLAIN] * count)

    # -- workers -------------------------------------------------------------------------------

    @rule(queue=queue_names)
    def dequeue_plainly(self, queue: str) -> None:
        self.dequeue(queue, 3, None)

    @rule(queue=queue_names, count=st.integers(1, 5), keepalive=keepalives)
    def dequeue(self, queue: str, count: int, keepalive: float | None) -> None:
        now = self.now()
        rules, before = self.model.queues[queue], self.model.of(queue, "ENQUEUED")
        due = [task for task in before if task.at <= now]
        ready = {task.id: task for task in due if not task.expired(now)}
        lapsed = [task for task in self.model.of(queue, "INFLIGHT") if task.lapsed(now)]
        paused = rules.holds_back(now)

        answer = self.world.use.deliveries.dequeue(
            queue, batch_size=count, worker="ada", keepalive=keepalive
        )

        got = {task.id: task for task in answer.tasks}
        assert len(got) == len(answer.tasks)
        assert [*got] == [task.id for task in sorted(got.values(), key=_turn)]
        if paused:
            assert not got
            return
        first = [task for task in ready.values() if task.id in got]
        assert len(first) == min(count, len(ready))
        self._buried_on_the_way(due, first, now, all_shards=len(first) < count)
        again: list[Known] = []
        if len(first) < count:
            again = self._reclaimed_on_the_way(lapsed, now)[: count - len(first)]
        assert {task.id for task in (*first, *again)} == set(got)
        for task in (*first, *again):
            self._delivered(task, got[task.id], now, keepalive)

    def _buried_on_the_way(
        self, due: list[Known], first: list[Known], now: datetime, *, all_shards: bool
    ) -> None:
        """A shard that was looked at gave its first tasks, and buried its expired ones."""
        stored = self.world.store.read([task.id for task in due if task.expired(now)])
        gone: list[Known] = []
        for shard in {task.shard for task in due}:
            mine = [task for task in due if task.shard == shard]
            waiting = [task for task in mine if not task.expired(now)]
            picked = [task for task in waiting if task in first]
            assert picked == waiting[: len(picked)]  # nobody was passed over
            over = [task for task in mine if task.expired(now)]
            buried = [
                task for task in over if task.id not in stored or known(stored[task.id]) != task
            ]
            assert buried in ([], over)
            assert buried == over or not (picked or all_shards)
            gone += buried
        for task in gone:
            self.model.expire(task, now)

    def _reclaimed_on_the_way(self, lapsed: list[Known], now: datetime) -> list[Known]:
        """Too little was ready, so lapsed leases were taken back; some of the tasks wait no more.

        A lease that a heartbeat has moved may be trusted for a while.
        """
        stored = self.world.store.read([task.id for task in lapsed])
        ready = []
        for task in sorted(lapsed, key=lambda task: (task.shard, task.at, task.id)):
            there = stored.get(task.id)
            if task.beaten and there is not None and there.version == task.version:
                continue
            self.model.reclaim(task, now)
            if task.state == "ENQUEUED" and task.due <= now:
                ready.append(task)
        return ready

    def _delivered(self, task: Known, got: Task, now: datetime, keepalive: float | None) -> None:
        assert task.due <= now
        assert task.expires is None or task.expires > now
        lease = cast("str", got.lease_id)
        assert all(lease not in delivery.lease for delivery in self.deliveries)
        self.model.deliver(task, lease, "ada", now, keepalive)
        self.deliveries.append(Delivery(task.id, task.queue, str(lease_name(got))))

    @precondition(lambda self: self.deliveries)
    @rule(say=says)
    def report_one(self, say: Say) -> None:
        self.report([say])

    @precondition(lambda self: self.deliveries)
    @rule(said=st.lists(says, min_size=1, max_size=3))
    def report(self, said: list[Say]) -> None:
        now = self.now()
        first = self._chosen(said[0], self.deliveries)
        here = [delivery for delivery in self.deliveries if delivery.queue == first.queue]
        chosen = [first, *(self._chosen(say, here) for say in said[1:])]
        path = chosen[0].queue
        if said[0].elsewhere:
            path = next(name for name in self.model.queues if name != path)
        leases = [self._lease(say, of) for say, of in zip(said, chosen, strict=True)]
        reports = [
            self._report(say, of, lease)
            for say, of, lease in zip(said, chosen, leases, strict=True)
        ]

        results = self.world.use.reports.report(path, reports)

        for say, of, lease, result in zip(said, chosen, leases, results, strict=True):
            before = self.model.tasks.get(of.task_id)
            expected = self._expected(say, of.task_id, path, lease, now)
            assert result.outcome is expected, (say, before, result)

    def _chosen(self, say: Say, deliveries: list[Delivery]) -> Delivery:
        """Return the delivery that is meant: of those that go on, if it says so, or of all."""
        live = [delivery for delivery in deliveries if self._goes_on(delivery)] if say.live else []
        return (live or deliveries)[say.delivery % len(live or deliveries)]

    def _goes_on(self, delivery: Delivery) -> bool:
        task = self.model.tasks.get(delivery.task_id)
        return task is not None and task.lease == delivery.lease.partition(".")[0]

    def _lease(self, say: Say, of: Delivery) -> str:
        match say.lease:
            case "foreign":
                return self.deliveries[say.delivery % len(self.deliveries)].lease
            case "forged":
                return "lse_forged." + of.lease.partition(".")[2]
            case "nonsense":
                return of.lease.partition(".")[0]
            case _:
                return of.lease

    @staticmethod
    def _report(say: Say, of: Delivery, lease: str) -> Report:
        fields: dict[str, Any] = {}
        match say.status:
            case "SUCCEEDED":
                fields = {"result": say.text}
            case "INFLIGHT":
                fields = {"progress": say.text, "keepalive": say.keepalive}
            case "FAILED":
                error = WorkerError(message=say.text or "")
                fields = {"error": error, "retryable": say.retryable}
                fields["delay_in_seconds"] = say.delay
            case "RELEASED":
                fields = {"delay_in_seconds": say.delay}
            case _:
                fields = {"delay_in_seconds": say.delay, "payload": say.text}
                fields["to_queue"] = say.target
        return Report(of.task_id, lease, ReportStatus(say.status), **fields)

    def _expected(
        self, say: Say, task_id: str, path: str, lease: str, now: datetime
    ) -> ReportOutcome:
        """Carry out the report on the model and return what its outcome should be."""
        task = self.model.tasks.get(task_id)
        secret = lease.partition(".")[0]
        if say.lease != "nonsense":
            if say.status == "MOVED" and say.target == "nowhere":
                return ReportOutcome.INVALID
            if task is not None and (task.queue, task.lease) == (path, secret):
                self._take_effect(say, task, now)
                return ReportOutcome.OK
            there = task is not None and (task.queue == path or say.status == "MOVED")
            if task is not None and there and task.settled == (secret, _VERBS[say.status]):
                return ReportOutcome.OK
        if task is None or task.queue != path or task.hidden(now):
            return ReportOutcome.NOT_FOUND
        if task.state != "INFLIGHT":
            return ReportOutcome.NOT_INFLIGHT
        return ReportOutcome.STALE_LEASE

    def _take_effect(self, say: Say, task: Known, now: datetime) -> None:
        match say.status:
            case "SUCCEEDED":
                self.model.succeed(task, now, say.text)
            case "INFLIGHT":
                self.model.heartbeat(task, now, say.keepalive, say.text)
            case "FAILED":
                self.model.fail(
                    task, "fail", now, say.text or "", retryable=say.retryable, delay=say.delay
                )
            case "RELEASED":
                self.model.release(task, now, say.delay)
            case _:
                self.model.move(task, say.target, now, say.delay, say.text)

    # -- time, and what it brings --------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.25, 1, 1, 3, 5.5, 12, 31]))
    def pass_time(self, seconds: float) -> None:
        self.clock.forward(seconds)

    @rule()
    def reap(self) -> None:
        now = self.now()

        reaped = self.world.use.reaping.run()

        ends: Counter[str] = Counter()
        for name in self.model.queues:
            overdue = [task for task in self.model.of(name, "INFLIGHT") if task.at <= now]
            ends["healthy"] += sum(not task.lapsed(now) for task in overdue)
            for task in [task for task in overdue if task.lapsed(now)]:
                self.model.reclaim(task, now)
                ends["retried" if task.state == "ENQUEUED" else "buried"] += 1
            for task in [task for task in self.model.of(name, "ENQUEUED") if task.expired(now)]:
                self.model.expire(task, now)
                ends["expired"] += 1
        counted = {name: getattr(reaped, name) for name in ("healthy", "retried", "expired")}
        assert counted == {name: ends[name] for name in counted}
        assert reaped.purged == 0

    # -- operators -----------------------------------------------------------------------------

    @rule(queue=queue_names, states=st.sets(st.sampled_from(State), min_size=1, max_size=2))
    def purge(self, queue: str, states: set[State]) -> None:
        self.now()

        purged = self.world.use.queues.purge(queue, tuple(sorted(states)))

        gone = [task for state in states for task in self.model.of(queue, state)]
        assert purged.finished
        assert purged.deleted == len(gone)
        for task in gone:
            self.model.remove(task, "purged")

    @precondition(lambda self: self.model.tasks)
    @rule(which=any_of_them, waiting_only=st.booleans())
    def delete(self, which: int, *, waiting_only: bool) -> None:
        now = self.now()
        task = list(self.model.tasks.values())[which % len(self.model.tasks)]
        before = copied(task)

        try:
            self.world.use.tasks.delete(task.id, if_not_inflight=waiting_only)
        except NotFound:
            assert before.hidden(now)
        except Inflight:
            assert waiting_only
            assert before.state == "INFLIGHT"
        else:
            assert not before.hidden(now)
            assert not (waiting_only and before.state == "INFLIGHT")
            self.model.remove(task, "deleted")

    @rule(queue=queue_names, until=st.sampled_from([None, 5]))
    def pause(self, queue: str, until: int | None) -> None:
        now = self.now()
        rules = self.model.queues[queue]
        self.world.use.queues.pause(queue, resume_in_seconds=until)
        rules.paused = True
        rules.resume_at = None if until is None else now + timedelta(seconds=until)

    @rule(queue=queue_names)
    def resume(self, queue: str) -> None:
        self.now()
        self.world.use.queues.resume(queue)
        self.model.queues[queue].paused = False

    @rule(shards=st.integers(1, 3))
    def reshard(self, shards: int) -> None:
        now = self.now()
        rules = self.model.queues["wide"]
        rules.paused = False  # as the new settings say
        rules.shards, rules.shards_in_use = shards, max(rules.shards_in_use, shards)
        self.world.use.queues.replace("wide", rules.settings())
        assert not rules.holds_back(now)

    @rule(
        queue=queue_names,
        states=st.lists(st.sampled_from(_STATES), min_size=1, unique=True),
        limit=st.integers(1, 4),
        descending=st.booleans(),
    )
    def turn_pages(self, queue: str, states: list[str], limit: int, *, descending: bool) -> None:
        now = self.now()
        self._listed(queue, now, states, limit, descending=descending)

    # -- promises ------------------------------------------------------------------------------

    @invariant()
    def tasks_are_what_the_model_says(self) -> None:
        stored = {task_id: known(task) for task_id, task in self.stored().items()}
        for task in self.model.tasks.values():
            there = stored.pop(task.id, None)
            assert there is not None, f"lost: {task}"
            there.beaten = task.beaten
            assert there == task
        assert not stored, "gone by the model, but there"

    @invariant()
    def no_task_contradicts_itself(self) -> None:
        for task in self.stored().values():
            lease = (task.lease_id, task.lease_expires_at, task.lease_length)
            if task.state is State.INFLIGHT:
                assert None not in lease
                assert task.scheduled_at <= cast("datetime", task.lease_expires_at)
                assert task.attempts >= 1
            else:
                assert set(lease) == {None}
            if task.state is State.ENQUEUED:
                assert task.scheduled_at == task.due_at
                assert task.expires_at is None or task.due_at < task.expires_at
            if task.state in (State.SUCCEEDED, State.DEAD):
                assert task.scheduled_at == task.finished_at
                assert task.retained_until is not None
            assert (task.dead_reason is not None) == (task.state is State.DEAD)
            retry = self.model.tasks[task.id].retry or self.model.queues[task.queue].retry
            assert 0 <= task.attempts <= len(RETRIES[retry].waits) + 1

    @invariant()
    def index_lists_and_counts_agree(self) -> None:
        if self.calls % self.look_every == 0:
            self._look()

    def _look(self) -> None:
        now, entries = self.clock(), list[Entry]()
        for name, rules in self.model.queues.items():
            self._listed(name, now, [], 250, descending=False)
            for state in State:
                for shard in range(rules.shards_in_use):
                    place = Place(name, state, shard)
                    entries += self.world.store.entries(place, limit=500).entries
        expected = [
            Entry(task.id, task.place, task.scheduled_at, task.expires_at, task.retained_until)
            for task in self.stored().values()
        ]
        assert sorted(entries, key=_by_id) == sorted(expected, key=_by_id)

    def _listed(
        self, queue: str, now: datetime, states: list[str], limit: int, *, descending: bool
    ) -> None:
        wanted = {
            state: self.model.of(queue, state, now) if not states or state in states else []
            for state in _STATES
        }
        where = TaskFilter(states=tuple(states))
        inspect, listed, cursor = self.world.use.inspect, list[Known](), None
        for _ in range(1_000):
            page = inspect.list(
                queue, where, limit=limit, cursor=cursor, descending=descending, payload=True
            )
            assert len(page.tasks) <= limit
            listed += [known(task) for task in page.tasks]
            cursor = page.cursor
            if cursor is None:
                break
        in_order = [
            task
            for state in _STATES
            for task in (reversed(wanted[state]) if descending else wanted[state])
        ]
        assert [task.id for task in listed] == [task.id for task in in_order]
        counted = inspect.count(queue, where)
        assert counted.count == len(listed)
        assert counted.by_state == {State(state): len(wanted[state]) for state in _STATES}

    def teardown(self) -> None:
        """Drain every queue: nothing that was acknowledged may be stuck."""
        if sys.exc_info()[0] is None:  # else a call has failed already: let that be seen
            self._look()
            self._drain()

    def _drain(self) -> None:
        for name, rules in self.model.queues.items():
            self.world.use.queues.resume(name)
            rules.paused = False
        for _ in range(200):
            self.clock.forward(40)
            self.reap_and_succeed()
            if {task.state for task in self.model.tasks.values()} <= {"SUCCEEDED", "DEAD"}:
                break
        else:
            message = "some tasks never end"
            raise AssertionError(message)
        self.tasks_are_what_the_model_says()

    def reap_and_succeed(self) -> None:
        self.reap()
        for name in self.model.queues:
            known_before = len(self.deliveries)
            self.dequeue(name, 5, None)
            now = self.now()
            for delivery in self.deliveries[known_before:]:
                report = Report(delivery.task_id, delivery.lease, ReportStatus.SUCCEEDED)
                (result,) = self._reports.report(name, [report])
                assert result.outcome is ReportOutcome.OK
                self.model.succeed(self.model.tasks[delivery.task_id], now, None)

    @property
    def _reports(self) -> Reports:
        return self.world.use.reports


def _by_id(entry: Entry) -> tuple[str, str]:
    return (entry.task_id, str(entry.place))


def _turn(task: Task) -> tuple[datetime, str]:
    return (task.due_at, task.id)
