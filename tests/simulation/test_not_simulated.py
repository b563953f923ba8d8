"""Faults that the simulation cannot find, each with a short story that does.

Every story is told twice: by the product as it is, and with its fault planted.  The comment above
each group says why the simulation does not find them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any, cast

import pytest

from headrace.domain.access import Role
from headrace.domain.batch import BatchDelta, TaskBatch, owed_for
from headrace.domain.change import Change
from headrace.domain.errors import KeyExists, Unavailable
from headrace.domain.filters import TaskFilter
from headrace.domain.lifecycle import Action, rule
from headrace.domain.operate import BulkAction
from headrace.domain.patch import Patch, Patched, When
from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.domain.push_messages import TargetAnswer
from headrace.domain.queue_settings import (
    AlertSettings,
    DequeuingSettings,
    IntervalUnit,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.repeat import KeyedRequest
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.domain.task import State
from headrace.domain.task_groups import GroupMode, GroupSettings, OnDead
from headrace.ops.delivery.idempotency import DeliveryBatch
from headrace.ops.delivery.push import PushRun
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.runtime.wiring import Settings, build
from headrace.store.base import EntryPage, Store
from headrace.store.objects import MemoryObjects
from headrace.store.records import keys as key_records
from headrace.store.records.jobs import CLAIMED_FOR
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, new_world
from tests.every_task import everything
from tests.manual_clock import ManualClock
from tests.simulation.planted import planted
from tests.streamed import SHARD, Streamed

Story = Callable[[], None]
STORIES: list[tuple[str, Story]] = []


def finds(*faults: str) -> Callable[[Story], Story]:
    """Say which planted faults the decorated story finds."""

    def keep(story: Story) -> Story:
        STORIES.extend((fault, story) for fault in faults)
        return story

    return keep


class Between(SqliteStore):
    """A store that lets others act once, just before records are written."""

    meanwhile: Callable[[], object] | None = None

    def put_records(self, writes: Any, *, tasks: Any = ()) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().put_records(writes, tasks=tasks)


def world_over(store: SqliteStore) -> World:
    return new_world(cast("Store", store), ManualClock())


# -- the simulation polls for the end of a task: events would wake real threads --------------------


@finds(
    "a wait forgets a wake-up between its look and its pause",
    "a wait subscribes only after its look",
)
def a_task_ends_between_the_look_and_the_pause() -> None:
    class Overtaken(SqliteStore):
        cancels = False

        def read(self, *ids: Any, **how: Any) -> Any:
            found = super().read(*ids, **how)
            if self.cancels:
                self.cancels = False
                world.use.cancelling.cancel(task_id)
            return found

    store = Overtaken()
    world = world_over(store)
    (task_id,) = world.put(world.queue())

    class Pause(Event):
        def wait(self, timeout: float | None = None) -> bool:
            del timeout
            assert self.is_set(), "the wait was not told of the end"
            return True

    waiting = world.use.waiting
    waiting.task_ends, waiting.new_event = world.store.task_ends, Pause
    store.cancels = True
    assert waiting.wait(task_id, seconds=20).state is State.DEAD


@finds("a wait pauses longer and longer", "a wait pauses beyond its timeout")
def a_wait_looks_every_few_seconds_until_its_timeout() -> None:
    world = world_over(SqliteStore())
    (task_id,) = world.put(world.queue())
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        world.clock.forward(seconds)

    world.use.sleep, world.use.waiting.task_ends = sleep, None
    world.use.waiting.wait(task_id, seconds=60.5)

    assert max(pauses) <= 5
    assert sum(pauses) == pytest.approx(60.5)


@finds("a wait that ends forgets the others for its task", "a wait is never forgotten")
def one_of_two_waits_ends() -> None:
    ends, woken = SqliteStore().task_ends, list[str]()
    with ends.notify_on_end("task", lambda: woken.append("stays")):
        with ends.notify_on_end("task", lambda: woken.append("ends")):
            pass
        ends.ended(["task"])
    assert woken == ["stays"]


# -- the simulation keeps no payloads outside of the table -----------------------------------------


@finds("payloads of a write that failed are dropped at once")
def the_answer_to_an_enqueue_is_lost() -> None:
    class Forgetful(SqliteStore):
        def commit(self, changes: Sequence[Change], **how: Any) -> Any:
            super().commit(changes, **how)
            raise Unavailable("the answer was lost")

    clock, objects = ManualClock(), MemoryObjects()
    settings = Settings(admin_key="test", payload_offload_bytes=10)
    store = cast("Store", Forgetful())
    use = build(settings, store, now=clock, objects=objects)
    use.queues.create("mail", QueueSettings())
    payload = '"' + "x" * 100 + '"'
    with suppress(Unavailable):
        use.tasks.enqueue("mail", [TaskSpec(payload, id="task")])
    (task,) = use.texts.filled([use.tasks.get("task")], ("payload",))
    assert task.payload == payload


@finds(
    "the recorder drops a payload that an undo may bring back",
    "a payload that an undo may bring back is an orphan",
)
def a_task_with_a_large_payload_is_deleted_and_restored() -> None:
    clock = ManualClock()
    stream = Streamed(cast("Store", SqliteStore()), clock)
    settings = Settings(admin_key="test", payload_offload_bytes=10)
    use = build(settings, stream.store, now=clock, objects=MemoryObjects(clock))
    world = World(stream.store, clock, use)
    payload = '"' + "x" * 100 + '"'
    (task_id,) = world.put(world.queue(expires_in_seconds=0), payload)
    clock.forward(90_000)  # older than what a sweep leaves alone
    undo = use.tasks.delete(task_id, undo_in_seconds=600)
    assert undo is not None
    use.recording.record(SHARD, stream.taken())
    use.reaping.run()
    use.undos.undo(undo.id)
    assert [task.payload for task in world.take("mail")] == [payload], "the payload is lost"


@finds("a small text leaves the reference to a large one")
def a_small_progress_follows_a_large_one() -> None:
    clock, store = ManualClock(), cast("Store", SqliteStore())
    settings = Settings(admin_key="test", payload_offload_bytes=10)
    use = build(settings, store, now=clock, objects=MemoryObjects(clock))
    world = World(store, clock, use)
    world.put(world.queue())
    task = world.one("mail")
    for progress in ('"' + "x" * 100 + '"', '"y"'):
        world.say(task, "INFLIGHT", progress=progress)
    (shown,) = use.texts.filled([use.tasks.get(task.id)], ("progress",))
    assert (shown.progress, shown.progress_ref) == ('"y"', None)


# -- the simulation has no alerts, keys and search: they meet nothing else in it ------------------


@finds(
    "the state of alerts is written unseen, with random ids",
    "the state of alerts is written before their tasks",
)
def two_timers_see_an_alert_and_one_of_them_dies() -> None:
    store = Between()
    world = world_over(store)
    world.queue("ops")
    world.put(world.queue("work", alerts=AlertSettings("ops", oldest_ready_seconds=60)))
    world.clock.forward(61)

    def look() -> None:
        with suppress(Unavailable):
            new_world(world.store, world.clock).use.alerts.begin_pass().check("work")

    store.meanwhile = look
    look()
    look()

    assert len(world.take("ops", 9)) == 1


@finds("alerts of an earlier queue of the same name count")
def a_queue_with_an_alert_is_deleted_and_made_again() -> None:
    world = world_over(SqliteStore())
    use, alerts = world.use, AlertSettings("ops", oldest_ready_seconds=60)
    world.queue("ops")
    for _ in range(2):
        world.put(world.queue("work", alerts=alerts))
        world.clock.forward(61)
        use.alerts.begin_pass().check("work")
        use.queues.delete("work")
        world.clock.forward(61)

    assert len(world.take("ops", 9)) == 2


@finds("the name of a key is read and then written")
def two_keys_of_one_name_are_made_at_once() -> None:
    _make_two(Between())


@finds("the name of a key is read and then written")
def two_keys_are_made_of_a_name_that_is_free_again() -> None:
    store = Between()
    keys = world_over(store).use.keys
    first = keys.create(BOOTSTRAP, "sensors", Role.PRODUCER).key
    store.drop_record(key_records.KIND, first.id)  # a revocation that was cut off
    _make_two(store)


@finds("a name is given up whichever key has it")
def a_key_of_the_same_name_is_made_during_a_revocation() -> None:
    class Slow(SqliteStore):
        meanwhile: Callable[[], object] | None = None

        def drop_record(self, kind: str, name: str, **how: Any) -> bool:
            gone = super().drop_record(kind, name, **how)
            act, self.meanwhile = self.meanwhile, None
            if act is not None and kind == key_records.KIND:
                act()
            return gone

    store = Slow()
    keys, others = world_over(store).use.keys, world_over(store).use.keys
    first = keys.create(BOOTSTRAP, "sensors", Role.PRODUCER).key
    others.now = lambda: keys.now() + timedelta(seconds=1)
    store.meanwhile = lambda: others.create(BOOTSTRAP, "sensors", Role.VIEWER)
    keys.revoke(BOOTSTRAP, first.id)
    with pytest.raises(KeyExists):
        keys.create(BOOTSTRAP, "sensors", Role.WORKER)


def _make_two(store: Between) -> None:
    keys, others = world_over(store).use.keys, world_over(store).use.keys
    store.meanwhile = lambda: others.create(BOOTSTRAP, "sensors", Role.VIEWER)
    with pytest.raises(KeyExists):
        keys.create(BOOTSTRAP, "sensors", Role.WORKER)


@finds("the index of values forgets a task that waits again")
def tasks_are_released_while_their_index_is_built() -> None:
    for steps in range(6):
        assert not _missed(steps), f"after {steps} steps of building"


def _missed(steps: int) -> set[str]:
    """Release tasks after so many steps of building an index; return those not found by it."""
    clock = ManualClock()
    stream = Streamed(cast("Store", SqliteStore()), clock)
    world = new_world(stream.store, clock)
    at_once = RetryStrategy(Backoff.FIXED, base_seconds=0, jitter=0)
    queue = world.queue(retry_strategy=at_once, keepalive_timeout_in_seconds=600)
    use = world.use

    indexing, jobs = use.indexing, use.jobs
    indexing.page = 2

    def build(pages: int) -> None:
        for job in jobs.pending():
            for _ in range(pages):
                if jobs.step(job, lambda: False) is None:
                    break
                clock.forward(0.005)

    for _ in range(3):
        world.put(queue, tags={"tenant": "a"})
    leased = world.take(queue, 2)
    use.recording.record(SHARD, stream.taken())
    settings = QueueSettings(
        retry_strategy=at_once, keepalive_timeout_in_seconds=600, indexed_fields=("tag:tenant",)
    )
    use.queues.replace(queue, settings)
    clock.forward(95)
    build(steps)
    for task in leased:
        world.say(task, "RELEASED")
    use.recording.record(SHARD, stream.taken())
    build(20)
    found = use.inspect.list(queue, TaskFilter(tags={"tenant": "a"}))
    assert found.by_creation
    return {task.id for task in use.inspect.list(queue).tasks} - {one.id for one in found.tasks}


# -- the simulation's log comes in one shard, in order ---------------------------------------------


@finds(
    "a batch counts children instead of naming them",
    "a batch ends when no member is live",
    "a batch ends when as many have ended as were made",
)
def a_grandchild_is_seen_before_its_parent() -> None:
    now = ManualClock()()
    batch = TaskBatch("batch", 1, "", (), created_at=now, expires_at=now)
    deltas = [
        BatchDelta(direct=1, created=1, live=1, last_at=1),
        BatchDelta(owed=owed_for(["child"]), live=-1, succeeded=1, last_at=2),
        BatchDelta(owed=-owed_for(["grandchild"]), created=1, live=1, last_at=3),
        BatchDelta(live=-1, succeeded=1, last_at=4),
    ]
    for number, delta in enumerate(deltas, 1):
        batch = batch.with_delta(delta, buffer="0", version=number, at=now)
        assert not batch.complete, "the child was not seen yet"


# -- these need a failure at one certain write ----------------------------------------------------


class Failing(SqliteStore):
    """A store whose next commit never arrives, or loses its answer."""

    fails = ""

    def commit(self, changes: Sequence[Change], **how: Any) -> Any:
        fails, self.fails = self.fails, ""
        if fails == "away":
            raise Unavailable("away")
        outcomes = super().commit(changes, **how)
        if fails == "lost":
            raise Unavailable("the answer was lost")
        return outcomes

    def requests(self) -> int:
        """Return how many tasks are in flight."""
        return sum(task.state is State.INFLIGHT for task in everything(cast("Store", self)))


def dispatcher(store: Failing) -> PushRun:
    world = world_over(store)
    world.put(world.queue(target=Target("https://a.example/", max_concurrency=2)), *"123456")
    world.clock.forward(0.001)
    world.use.monotonic = lambda: world.clock().timestamp()
    run = world.use.push.begin("mail")
    assert run is not None
    return run


@finds("a dispatcher that ends keeps its tasks")
def a_dispatcher_ends() -> None:
    store = Failing()
    run = dispatcher(store)
    assert len(run.fetch()) == 2
    run.close()
    assert store.requests() == 0


@finds("a report that waits makes room for another request")
def a_dispatcher_cannot_report() -> None:
    store = Failing()
    run = dispatcher(store)
    task, _ = run.fetch()
    store.fails = "away"
    run.settle([(task, TargetAnswer(200), 0.1)])
    run.fetch()
    assert store.requests() <= 2


@finds("tasks leased without an answer are not given back")
def the_answer_to_a_dispatcher_is_lost() -> None:
    store = Failing()
    run = dispatcher(store)
    store.fails = "lost"
    with suppress(Unavailable):
        run.fetch()
    run.renew()
    run.fetch()
    assert store.requests() <= 2


@finds("freeing a slot twice frees another slot")
def a_report_is_repeated_under_a_limit() -> None:
    world = world_over(SqliteStore())
    queue = world.queue(dequeuing_settings=DequeuingSettings(max_inflight_tasks=2))
    world.put(queue, *"1234")
    task, _ = world.take(queue, 2)
    for _ in range(2):
        world.say(task, "SUCCEEDED")
    assert len(world.take(queue, 9)) == 1


class Watched(SqliteStore):
    """A store where something happens once, before or after the n-th write of a record or task."""

    def __init__(self, place: int, happens: Callable[[], None]) -> None:
        super().__init__()
        self.place, self.happens = place, happens
        self.watches = False

    def _step(self) -> None:
        self.place -= self.watches
        if self.watches and self.place == 0:
            self.happens()

    def commit(self, changes: Sequence[Change], **how: Any) -> Any:
        self._step()
        outcomes = super().commit(changes, **how)
        self._step()
        return outcomes

    def put_record(self, record: Any, **how: Any) -> bool:
        self._step()
        put = super().put_record(record, **how)
        self._step()
        return put


class Killed(BaseException):
    """The process is gone."""


@finds(
    "an action takes a part over without its earlier times",
    "an action acts before it notes its part",
)
def a_worker_of_an_action_is_killed_at_any_write() -> None:
    for place in range(1, 20):
        _act_with(place, killed=True)


@finds("an action counts a part that another worker took over")
def a_worker_of_an_action_is_overtaken_at_any_write() -> None:
    for place in range(1, 20):
        _act_with(place, killed=False)


def _act_with(place: int, *, killed: bool) -> None:
    """Restart dead tasks; at a write the worker dies, or sleeps while another does one part."""

    def happens() -> None:
        if killed:
            raise Killed
        clock.forward(CLAIMED_FOR.total_seconds() + 1)
        work(1)

    store, clock = Watched(place, happens), ManualClock()
    world = new_world(cast("Store", store), clock)
    queue = world.queue()
    world.put(queue, *"123456")
    for task in world.take(queue, 6):
        world.say(task, "FAILED", retryable=False)
        clock.forward(0.001)
    where = TaskFilter(states=(State.DEAD,))
    world.use.action_work.part = 2
    found = world.use.actions.look(BulkAction.RESTART, [queue], where)
    world.use.action_work.run()
    found = world.use.actions.get(found.id, dry_run=True)
    run = world.use.actions.confirm(found, reason="the server is back")

    def now() -> datetime:
        clock.forward(0.000001)
        return clock()

    def work(parts: int) -> None:
        left = iter(range(parts, 0, -1))
        use = build(world.use.settings, world.store, now=now)
        use.action_work.part = 2
        use.action_work.run(time_left=lambda: next(left, 0))

    store.watches = True
    with suppress(Killed):
        work(100)
    store.watches = False
    for _ in range(3):
        clock.forward(CLAIMED_FOR.total_seconds() + 1)
        work(100)

    versions = [task.version for task in everything(world.store)]
    assert len(set(versions)) == 1, "a task was restarted twice"
    assert world.use.actions.get(run.id).changed == 6


# -- these need several rare events in one order ---------------------------------------------------


class Staged(SqliteStore):
    """A store whose index hides tasks, whose stale reads miss some, and where others act once."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[str] = set()
        self.missing: set[str] = set()
        self.before_delivery: Callable[[], object] | None = None
        self.after_place: Callable[[], object] | None = None

    def entries(self, *place: Any, **how: Any) -> EntryPage:
        page = super().entries(*place, **how)
        shown = tuple(one for one in page.entries if one.task_id not in self.hidden)
        return replace(page, entries=shown)

    def read(self, task_ids: Any, *, payload: bool = True, consistent: bool = True) -> Any:
        wanted = [one for one in task_ids if consistent or one not in self.missing]
        return super().read(wanted, payload=payload, consistent=consistent)

    def commit(self, changes: Sequence[Change], **how: Any) -> Any:
        if any(change.rule.action is Action.DEQUEUE for change in changes):
            act, self.before_delivery = self.before_delivery, None
            if act is not None:
                act()
        return super().commit(changes, **how)

    def patch(self, patch: Patch, **how: Any) -> Patched:
        patched = super().patch(patch, **how)
        if "tail" in patch.put:
            act, self.after_place = self.after_place, None
            if act is not None:
                act()
        return patched


class Group:
    """A queue of which one task of a group may be in flight, and two processes that deliver.

    Without a *mode* there are no groups, and one task of the queue may be in flight.
    """

    def __init__(self, mode: GroupMode | None) -> None:
        self.store = Staged()
        self.one = world_over(self.store)
        self.other = new_world(self.one.store, self.one.clock)
        self.key = None if mode is None else "a"
        strict = mode is GroupMode.STRICT
        groups = (
            None
            if mode is None
            else GroupSettings(
                mode,
                max_inflight_per_group=0 if strict else 1,
                on_dead=OnDead.CONTINUE if strict else None,
            )
        )
        self.queue = self.one.queue(
            groups=groups,
            dequeuing_settings=DequeuingSettings(max_inflight_tasks=1 if mode is None else 0),
            retry_strategy=RetryStrategy(Backoff.FIXED, base_seconds=0, jitter=0),
            expires_in_seconds=0,
        )

    def put(self) -> str:
        (task_id,) = self.one.put(self.queue, group_key=self.key)
        self.one.clock.forward(0.001)
        return task_id

    def take(self, world: World) -> list[str]:
        return [task.id for task in world.take(self.queue, 5)]

    def check(self) -> None:
        states = [task.state for task in everything(self.one.store)]
        assert states.count(State.INFLIGHT) <= 1, "two are in flight"


@finds("a slot is free while its task waits")
def a_reservation_is_met_before_its_delivery() -> None:
    group = Group(None)
    first, _ = group.put(), group.put()

    def meanwhile() -> None:
        group.store.hidden = {first}
        group.take(group.other)

    group.store.before_delivery = meanwhile
    group.take(group.one)
    group.check()


@finds("a lost race frees its slot without a look")
def a_reservation_is_completed_by_another_process() -> None:
    group = Group(None)
    first, _ = group.put(), group.put()

    def meanwhile() -> None:
        group.one.clock.forward(4)
        assert group.take(group.other) == [first]

    group.store.before_delivery = meanwhile
    group.take(group.one)
    group.take(group.other)
    group.check()


@finds("a slot of a group is free while its task waits")
def a_slot_is_met_before_its_delivery() -> None:
    group = Group(GroupMode.FAIR)
    first, _ = group.put(), group.put()

    def meanwhile() -> None:
        group.store.hidden = {first}
        group.take(group.other)

    group.store.before_delivery = meanwhile
    group.take(group.one)
    group.check()


@finds(
    "an undo keeps the due time under a limit",
    "a delivery in a group does not check the due time",
)
def a_task_is_deleted_and_restored_before_a_late_delivery() -> None:
    group = Group(GroupMode.FAIR)
    first, _ = group.put(), group.put()

    def meanwhile() -> None:
        undo = group.other.use.tasks.delete(first, undo_in_seconds=600)
        assert undo is not None
        group.take(group.other)
        group.other.use.undos.undo(undo.id)

    group.store.before_delivery = meanwhile
    group.take(group.one)
    group.check()


@finds("the holder of a slot of a group is read stale")
def a_holder_is_missing_in_a_stale_read() -> None:
    group = Group(GroupMode.FAIR)
    first, _ = group.put(), group.put()
    assert group.take(group.one) == [first]
    group.store.missing = {first}
    group.take(group.other)
    group.check()


@finds("a slot of a group that a dead process took is not completed")
def a_process_dies_between_its_slot_and_its_delivery() -> None:
    group = Group(GroupMode.FAIR)
    first, _ = group.put(), group.put()

    def die() -> None:
        raise Killed

    group.store.before_delivery = die
    with suppress(Killed):
        group.take(group.one)
    group.store.hidden = {first}
    taken = list[str]()
    for _ in range(4):
        taken += group.take(group.other)
        group.one.clock.forward(1)
    assert taken == [first]


@finds("a strict group believes reads that may be stale")
def the_task_in_flight_is_missing_in_a_stale_read() -> None:
    group = Group(GroupMode.STRICT)
    first, _ = group.put(), group.put()
    assert group.take(group.one) == [first]
    group.store.missing = {first}
    group.take(group.other)
    group.check()


@finds("a task that ended undelivered counts as delivered")
def a_task_is_cancelled_behind_one_that_the_index_hides() -> None:
    group = Group(GroupMode.STRICT)
    first, second, _ = group.put(), group.put(), group.put()
    group.other.use.cancelling.cancel(second)
    group.store.hidden = {first}
    assert group.take(group.one) == [], "a task overtakes one that was acknowledged before it"


@finds("a producer inserts however long ago it took its place")
def a_producer_stands_still_between_its_place_and_its_task() -> None:
    group = Group(GroupMode.STRICT)

    def meanwhile() -> None:
        group.other.put(group.queue, group_key="a")
        group.one.clock.forward(11)
        (task,) = group.other.take(group.queue, 1)
        group.other.say(task, "SUCCEEDED")

    group.store.after_place = meanwhile
    late, _ = group.put(), group.put()
    group.store.hidden = {late}
    assert group.take(group.one) == [], "a task overtakes one that was acknowledged before it"


@finds("a new rate limit keeps the tokens of the old one")
def a_rate_is_changed_when_all_its_tokens_are_used() -> None:
    world = world_over(SqliteStore())

    def limited(tokens: int) -> DequeuingSettings:
        return DequeuingSettings(rate_limiting=RateLimiting(tokens, 1, IntervalUnit.MINUTES))

    queue = world.queue(dequeuing_settings=limited(3))
    world.put(queue, *"123456")
    assert len(world.take(queue, 9)) == 3
    world.use.queues.replace(queue, QueueSettings(dequeuing_settings=limited(2)))
    world.clock.forward(1)
    assert not new_world(world.store, world.clock).take(queue, 9)


@finds("an idle group saves its turns", "delivered turns are not noted")
def a_group_comes_back_in_the_middle_of_the_line_of_another() -> None:
    store = SqliteStore()
    world = world_over(store)
    queue = world.queue(groups=GroupSettings(GroupMode.FAIR), expires_in_seconds=0)

    def come(process: World, group: str, number: int) -> None:
        process.put(queue, *map(str, range(number)), group_key=group)
        world.clock.forward(2)

    come(world, "quiet", 1)
    come(world, "noisy", 30)
    for _ in range(10):
        world.take(queue, 2)
        world.clock.forward(2)
    come(new_world(world.store, world.clock), "quiet", 12)

    assert [task.group_key for task in world.take(queue, 8)].count("noisy") >= 3


# -- two tries of one call at the same time: the simulation seldom has both lease ----------------


def repeated(world: World, attempt: int | None = None) -> DeliveryBatch:
    """Return one more try of a dequeue call."""
    request = KeyedRequest("key_0123456789abcdef0123", "k", "take")
    return DeliveryBatch(world.use, request, timedelta(seconds=10), attempt=attempt)


@finds(
    "a dequeue leases though its note was refused",
    "a repeated dequeue without tasks does not stop the first try",
)
def a_first_try_goes_on_after_its_repeat_was_answered_with_nothing() -> None:
    world = world_over(SqliteStore())
    queue = world.queue()
    first, second, third = (repeated(world, attempt) for attempt in (1, 2, 3))
    assert not world.use.deliveries.dequeue(queue, batch=second).tasks
    world.put(queue, "1")
    with pytest.raises(Unavailable):
        world.take(queue, batch=first)
    assert not world.take(queue, batch=third)
    assert len(world.take(queue)) == 1


@finds("a dequeue does not note a later look at the same tasks")
def a_first_try_looks_again_at_a_task_that_fell_due_since() -> None:
    world = world_over(SqliteStore())
    queue = world.queue()
    ids, call, early = world.put(queue, "1", "2"), repeated(world), world.clock()
    world.clock.forward(1)
    for task_id in ids:
        world.use.tasks.delete(task_id)
    world.use.tasks.enqueue(queue, [TaskSpec("1", id=ids[0])])
    world.clock.forward(1)
    row = rule(Action.DEQUEUE, State.ENQUEUED, State.INFLIGHT)
    refused = [Change(row, one, when=(When("lease_id", "=", "another"),)) for one in ids]
    call.commit(refused, now=early)
    call.commit(refused, now=world.clock())
    with pytest.raises(Unavailable, match="still being worked on"):
        world.take(queue, batch=repeated(world))


@pytest.mark.parametrize("story", dict.fromkeys(story for _, story in STORIES))
def test_the_product_passes(story: Story) -> None:
    story()


@pytest.mark.parametrize(("fault", "story"), STORIES, ids=[fault for fault, _ in STORIES])
def test_a_planted_fault_is_found(fault: str, story: Story) -> None:
    with planted(fault), pytest.raises((AssertionError, pytest.fail.Exception)):
        story()
