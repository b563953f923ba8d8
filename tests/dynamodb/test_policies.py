"""Least privilege: the policy of a function allows exactly what its code does to the tables.

The use cases of each function run over the real engine with a client that notes its calls.  The
calls are compared with the policy in template.yaml, in both directions.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.domain.access import Role
from headrace.domain.batch import BatchEvent, Callback
from headrace.domain.filters import EVERY_TASK, TaskFilter
from headrace.domain.operate import BulkAction
from headrace.domain.plan import TaskSpec
from headrace.domain.push import Target
from headrace.domain.push_messages import TargetAnswer
from headrace.domain.queue_settings import (
    AlertSettings,
    DeadLetterConfig,
    DequeuingSettings,
    OnEnd,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import RetryStrategy
from headrace.domain.schedule import ScheduleSettings
from headrace.domain.task import SHOWN_STATES
from headrace.domain.task_groups import GroupMode, GroupSettings, OnDead
from headrace.domain.transitions import batch_deltas
from headrace.domain.worker import Command, WorkerHeartbeat
from headrace.local.tables import DynamoDBClient, TableNames
from headrace.ops.operators.keys import BOOTSTRAP
from headrace.ops.shared.audit import AuditFilter
from headrace.ops.tasks.deferred_spawns import DeferredChild, lot_prefix, lots_of
from headrace.runtime.wiring import build
from headrace.store.call_scope import acting
from headrace.store.dynamo import DynamoStore
from headrace.store.records import schedules as schedule_records
from headrace.store.records.jobs import JobKind, QueueJob, deletion_of
from infra.template import Template
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed
from tests.unit.infra.permitted import WatchedClient, allowed

pytestmark = pytest.mark.gate

EVERYTHING = SHOWN_STATES
LIMITED = GroupSettings(GroupMode.FAIR, max_inflight_per_group=1)
UNSEEN = {
    "SchedulerFunction": {
        ("PartiQLDelete", "tasks"): "a tick whose id a task past its retention still has"
    },
    "DispatcherFunction": {
        ("PartiQLDelete", "tasks"): "dead ones over max_size, where a dequeue helps the reaper",
        ("DeleteItem", "tasks"): "workers' reports may do more than answers of a target do",
        ("PutItem", "tasks"): "reports of workers spawn tasks",
    },
}
"""What a policy allows and these stories do not show, with the reason."""


class Stories:
    """A service that notes the calls of one function during its story."""

    def __init__(self, client: DynamoDBClient, tables: TableNames) -> None:
        self.watched = WatchedClient(client, tables)
        self.clock = ManualClock()
        self.worlds = (self._world(client, tables), self._world(self.watched, tables))

    def _world(self, client: Any, tables: TableNames) -> World:
        store = DynamoStore(
            client,
            tasks_table=tables.tasks,
            control_table=tables.control,
        )
        return new_world(store, self.clock)

    @property
    def before(self) -> World:
        """The service as other programs use it; its calls are not noted."""
        return self.worlds[0]

    @property
    def here(self) -> World:
        """The service as the function uses it."""
        return self.worlds[1]


@pytest.fixture
def stories(dynamodb: DynamoDBClient, tables: TableNames) -> Stories:
    return Stories(dynamodb, tables)


def settings(**more: Any) -> dict[str, Any]:
    """Return settings that bring every rule of a queue into play."""
    limited = DequeuingSettings(max_inflight_tasks=50, rate_limiting=RateLimiting(100, 1))
    given = {"dequeuing_settings": limited, "shards": 2, "history_retention_in_seconds": 60}
    return given | {"dead_letter_queue_config": DeadLetterConfig(max_size=1)} | more


def the_api(of: Stories) -> None:
    world, use = of.here, of.here.use
    made = use.keys.create(BOOTSTRAP, "sensors", Role.WORKER, ("*",))
    with acting(use.keys.verify(made.secret)):
        queue, other = world.queue("mail", **settings()), world.queue("other")
        _tasks_live(world, queue, other)
        _groups(world, queue)
        fair = world.queue("fair", groups=LIMITED)
        world.put(fair, "1", "2", group_key="acme")
        world.take(fair, 2)
        _operators(world, queue, other)
        _schedules(world, queue)
        heartbeat = WorkerHeartbeat("ada:1", ("mail",), world.clock())
        use.workers.alive(heartbeat)
        use.workers.ask("ada:1", Command.STOP)
        use.workers.list()
        use.stats.of(queue)
        use.recounting.step(queue)
        use.audit.list(AuditFilter())
        use.task_batches.create({}, batch_id="b", total=0)
        use.queues.purge(queue, EVERYTHING)
        use.queues.delete(queue)
    use.keys.list(BOOTSTRAP)
    use.keys.revoke(BOOTSTRAP, made.key.id)


def _tasks_live(world: World, queue: str, other: str) -> None:
    use = world.use
    world.put(queue, "1", "2", dedupe_key="once")
    world.put(queue, "3", dedupe_key="once", overwrite=frozenset({"payload"}))
    world.put(queue, *["{}"] * 9)
    first, *tasks = world.take(queue, 9)
    world.say(first, "INFLIGHT", progress="1")
    spawn = ((queue, TaskSpec("{}")), (other, TaskSpec("{}", dedupe_key="a")))
    world.say(first, "SUCCEEDED", spawn=spawn)
    for task, status in zip(tasks, ("SUCCEEDED", "FAILED", "RELEASED"), strict=False):
        world.say(task, status)
    world.say(tasks[3], "MOVED", to_queue=other)
    for task in tasks[4:6]:
        world.say(task, "FAILED", retryable=False)
    world.clock.forward(31)  # the remaining leases lapse
    world.take(queue, 9)
    delayed, unwanted = world.put(queue, "{}", "{}", delay_in_seconds=3600)
    use.explain.reasons(use.tasks.get(delayed))
    use.inspect.list(queue)
    use.inspect.count(queue)
    use.inspect.count(queue, TaskFilter(error="x"))
    use.tasks.delete(unwanted)


def _groups(world: World, queue: str) -> None:
    use = world.use
    group = use.leases.open("stage", keepalive=60).id
    world.put(queue, "{}", "{}")
    held = world.take(queue, 2, lease_id=group)
    use.leases.extend(group)
    world.say(held[0], "SUCCEEDED", lease=group)
    use.leases.close(group)


def _operators(world: World, queue: str, other: str) -> None:
    use = world.use
    use.queues.list()
    use.queues.replace(queue, QueueSettings(**settings(shards=3)))
    use.queues.pause(queue)
    use.queues.resume(queue)
    ids = world.put(queue, *["{}"] * 3, delay_in_seconds=60)
    use.bulk.by_ids(queue, BulkAction.RUN, ids)
    use.bulk.by_filter(queue, BulkAction.MOVE, EVERY_TASK, to_queue=other)
    use.bulk.by_filter(other, BulkAction.DELETE, EVERY_TASK)
    use.bulk.by_filter(queue, BulkAction.RESTART, TaskFilter(states=("DEAD", "SUCCEEDED")))


def _schedules(world: World, queue: str) -> None:
    use = world.use
    daily = ScheduleSettings(every_seconds=60, dedupe_key="daily")
    use.schedules.put(queue, "daily", daily)
    use.schedules.put(queue, "daily", replace(daily, paused=True))
    use.schedules.get(queue, "daily")
    use.schedules.of_queue(use.queues.get(queue))
    use.schedules.run(queue, "daily")
    use.schedules.delete(queue, "daily")


def _confirms(world: World, queue: str) -> None:
    use = world.use
    found = use.actions.look(BulkAction.RESTART, [queue], TaskFilter(states=("DEAD",)))
    use.action_work.run()
    found = use.actions.get(found.id, dry_run=True)
    use.actions.samples(found)
    run = use.actions.confirm(found, most=1, reason="the server is back")
    use.actions.pause(run.id)
    use.actions.resume(run.id)
    use.actions.cancel(run.id)
    use.action_work.resume(run.mark())
    whole = use.actions.begin_all(BulkAction.RESTART, [queue], TaskFilter(states=("DEAD",)))
    use.actions.list()
    use.action_work.run()
    assert use.actions.get(whole.id).changed == found.found


def the_console(of: Stories) -> None:
    before, world, use = of.before, of.here, of.here.use
    queue, other = before.queue("mail", **settings()), before.queue("other")
    ids = before.put(queue, *["{}"] * 9)
    before.put(queue, "{}", dedupe_key="kept")
    for task in before.take(queue, 10):
        before.say(task, "FAILED", retryable=False)
    fair = before.queue("fair", groups=LIMITED)
    before.put(fair, group_key="acme")
    before.say(before.one(fair), "FAILED", retryable=False)
    use.bulk.by_filter(fair, BulkAction.RESTART, TaskFilter(states=("DEAD",)))
    session = use.sessions.sign_in("test", source="192.0.2.1")
    before.clock.forward(60)
    use.sessions.resume(session.key_id, session.nonce, active=True)
    use.sessions.sign_out(session)
    made = use.keys.create(BOOTSTRAP, "ada", Role.OPERATOR, ("*",))
    use.keys.get(BOOTSTRAP, made.key.id)
    use.keys.known(made.key.id)
    use.keys.list(BOOTSTRAP)
    use.keys.revoke(BOOTSTRAP, made.key.id)
    world.queue("third")
    use.queues.replace(queue, QueueSettings(**settings(shards=3)))
    use.queues.pause(queue)
    use.queues.resume(queue)
    use.stats.of(queue)
    use.stats.of(fair)
    before.queue("watched", alerts=AlertSettings("third", dead_per_minute=1))
    use.stats.overview([use.queues.get(queue), use.queues.get("watched")])
    use.flows.last_day()
    use.inspect.list(queue)
    use.explain.reasons(use.tasks.get(ids[-1]))
    use.tasks.enqueue(queue, [TaskSpec("{}"), TaskSpec("{}", dedupe_key="once")])
    delayed = before.put(queue, *["{}"] * 2, delay_in_seconds=60)
    use.bulk.by_ids(queue, BulkAction.RUN, delayed)
    use.bulk.by_ids(queue, BulkAction.MOVE, delayed, to_queue=other)
    use.bulk.by_ids(other, BulkAction.DELETE, delayed)
    _confirms(world, queue)
    _schedules(world, queue)
    use.schedules.list()
    use.recounting.step(queue)
    use.audit.list(AuditFilter())
    use.queues.purge(queue, EVERYTHING)
    use.queues.delete(queue)


def the_authorizer(of: Stories) -> None:
    made = of.before.use.keys.create(BOOTSTRAP, "sensors", Role.WORKER, ("*",))
    of.here.use.keys.verify(made.secret, note_use=False)


def the_reaper(of: Stories) -> None:
    before, use = of.before, of.here.use
    queue = before.queue("mail", **settings())
    before.put(queue, *["{}"] * 4)
    before.put(queue, "{}", dedupe_key="once")
    before.put(queue, "{}", expires_at=before.clock() + timedelta(seconds=10))
    before.put(queue, "{}", delay_in_seconds=5)
    unkept = before.queue("unkept", dead_letter_queue_config=DeadLetterConfig(enable=False))
    never = RetryStrategy(max_retries=0)
    before.put(unkept, "{}", dedupe_key="b", delay_in_seconds=1, retry=never)
    before.put(queue, "{}", dedupe_key="c", delay_in_seconds=1, retry=never)
    before.put(unkept, "{}", dedupe_key="a", expires_at=before.clock() + timedelta(seconds=10))
    group = before.use.leases.open("stage", keepalive=20).id
    before.take(queue, 2, lease_id=group)
    of.clock.forward(2)
    before.take(queue, 9)
    before.take(unkept)
    of.clock.forward(40)
    use.reaping.run(time_left=lambda: 0)  # leaves a record, which the next drops
    use.reaping.run()
    for _ in range(3):
        for task in before.take(queue, 3):
            before.say(task, "FAILED", retryable=False)
        of.clock.forward(60)
        use.reaping.run()
    # Settings were changed, and what that began has ended.
    limits = DequeuingSettings(max_inflight_tasks=3)
    before.use.queues.replace(unkept, QueueSettings(dequeuing_settings=limits, shards=3))
    before.use.queues.replace(unkept, QueueSettings(dequeuing_settings=limits, shards=1))
    of.clock.forward(150)
    use.reaping.run()
    assert before.use.queues.get(unkept).shards_in_use == 1
    before.put(before.queue("indexed", indexed_fields=("tag:a",)), tags={"a": "1"})
    of.clock.forward(120)
    use.reaping.run()
    assert use.jobs.pending() == []
    # A report was cut off before its many children were created.
    parent = before.put(before.queue("parents"))[0]
    lot = DeferredChild(0, queue, "child", of.clock(), TaskSpec("{}", dedupe_key="e"))
    (lock,) = lots_of(lot_prefix(parent, "lease"), frozenset(), [lot])
    before.store.set_key_lock(lock)
    use.reaping.run()
    # The API began to delete a queue, and its time was over.
    before.put(queue, *["{}"] * 3)
    before.put(queue, "{}", dedupe_key="d")
    left = QueueJob(
        name=deletion_of(queue),
        kind=JobKind.DELETE_QUEUE,
        queue=queue,
        as_of=of.clock(),
        states=EVERYTHING,
        shards=2,
    )
    before.store.drop_record("queue", queue)
    before.store.put_record(left.record(), replaces=None)
    of.clock.forward(60)
    use.reaping.run()
    _actions(of)
    _alerts(of)
    _left_by_a_recorder(of)
    use.counters.post_left()
    assert len(before.take("told")) == 1


def _actions(of: Stories) -> None:
    before, use = of.before, of.here.use
    queue, other = before.queue("acted-on"), before.queue("elsewhere")
    fair = before.queue("acted-fair", groups=LIMITED)
    strict = before.queue(
        "acted-strict", groups=GroupSettings(GroupMode.STRICT, on_dead=OnDead.HALT)
    )
    before.put(strict, "{}", group_key="acme")
    before.say(before.one(strict), "FAILED", retryable=False)
    before.use.actions.begin_all(BulkAction.RESTART, [strict], TaskFilter(states=("DEAD",)))
    for action, to in (("cancel", None), ("restart", None), ("move", other), ("delete", None)):
        where = TaskFilter(states=("DEAD",) if action == "restart" else ())
        before.put(queue, "{}", "{}")
        before.put(queue, "{}", dedupe_key=f"for-{action}")
        before.put(fair, "{}", group_key="acme")
        before.use.actions.begin_all(
            BulkAction(action), [queue, fair], where, to_queue=to, undo_in_seconds=60
        )
        of.clock.forward(1)
        assert use.actions.any_unfinished()
        use.action_work.run()
        assert not use.actions.any_unfinished()


def _alerts(of: Stories) -> None:
    before, use = of.before, of.here.use
    before.queue("ops")
    alerts = AlertSettings("ops", 60, dead_per_minute=1, no_workers_for_seconds=60)
    before.queue("watched", alerts=alerts)
    before.use.workers.alive(WorkerHeartbeat("ada:1", ("mail",), before.clock()))
    before.put("watched")
    of.clock.forward(60)
    use.reaping.run()
    assert len(before.take("ops")) == 1
    assert before.use.stats.of("watched").alerts


def _left_by_a_recorder(of: Stories) -> None:
    """Leave members counted in a buffer whose recorder has ended, the last of a batch."""
    store = of.before.store
    stream = Streamed(store, of.clock)
    world = new_world(stream.store, of.clock)
    world.queue("told")
    queue = world.queue("counted")
    on = {BatchEvent.ENDED: Callback("told", TaskSpec("{}"))}
    world.use.task_batches.create(on, batch_id="b", total=1)
    world.put(queue, batches=("b",))
    world.say(world.one(queue), "SUCCEEDED")
    counters = build(world.use.settings, store, now=of.clock).counters
    buffer = counters.buffer(7)
    for write in stream.taken():
        for batch_id, delta in batch_deltas(write):
            buffer.add_to_batch(batch_id, delta, watch_from=1, failure_known=True)
    assert counters.write(buffer)


def the_scheduler(of: Stories) -> None:
    before, use = of.before, of.here.use
    for queue, key in (("mail", None), ("news", "once")):
        before.queue(queue)
        before.use.schedules.put(queue, "often", ScheduleSettings(every_seconds=20, dedupe_key=key))
    for _ in range(3):
        of.clock.forward(60)
        use.ticking.run()
    # The API changed one and deleted the other, and died before it brought the rest up to it.
    record = before.store.record(schedule_records.KIND, schedule_records.key("mail", "often"))
    assert record is not None
    old = schedule_records.from_record(record)
    new = replace(old, edition="another", version=old.version + 1)
    before.store.put_record(schedule_records.to_record(new), replaces=old.version)
    before.store.drop_record(schedule_records.KIND, schedule_records.key("news", "often"))
    of.clock.forward(60)
    use.ticking.run()


def the_recorder(of: Stories) -> None:
    store = of.before.store
    stream = Streamed(store, of.clock)
    world = new_world(stream.store, of.clock)
    queue = world.queue("mail", history_retention_in_seconds=60)
    world.put(queue, *["{}"] * 3)
    world.say(world.one(queue), "SUCCEEDED")
    of.here.use.recording.record(SHARD, stream.taken())
    world.put(queue)
    world.use.recounting.patience = -1
    opened = world.use.recounting.step(queue)
    of.here.use.recording.record(SHARD, stream.taken())
    while opened.cursor is not None:
        opened = world.use.recounting.step(queue, opened.cursor)
    world.put(queue)
    of.here.use.recording.record(SHARD, stream.taken())
    world.queue("told")
    told = world.queue("tells", on_end=OnEnd("told"), history_retention_in_seconds=0)
    world.put(told)
    world.say(world.one(told), "SUCCEEDED")
    of.here.use.recording.record(SHARD, stream.taken())
    world.queue("fairly", groups=GroupSettings(GroupMode.FAIR))
    told = world.queue("tells-fairly", on_end=OnEnd("fairly"))
    world.put(told)
    world.say(world.one(told), "SUCCEEDED")
    of.here.use.recording.record(SHARD, stream.taken())
    on = {event: Callback("told", TaskSpec("{}")) for event in BatchEvent}
    world.use.task_batches.create(on, batch_id="b", total=1)
    world.put(queue, batches=("b",))
    for task in world.take(queue, 9):
        world.say(task, "SUCCEEDED")
    of.here.use.recording.record(SHARD, stream.taken())
    assert len(world.take("told", 9)) == 3
    world.use.task_batches.create({}, batch_id="stalls", total=2)
    (failing,) = world.put(queue, batches=("stalls",))
    world.say(world.one(queue), "FAILED", retryable=False)
    of.here.use.recording.record(SHARD, stream.taken())
    world.use.bulk.by_ids(queue, BulkAction.RESTART, [failing])
    of.here.use.recording.record(SHARD, stream.taken())
    world.put(world.queue("indexed", indexed_fields=("tag:a",)), tags={"a": "1"})
    of.clock.forward(31)
    of.here.use.recording.record(SHARD, stream.taken())


def the_dispatcher(of: Stories) -> None:
    target = Target(url="https://a.example/")
    before, world = of.before, of.here
    for name, more in (
        ("hooks", {}),
        ("fair", {"groups": LIMITED}),
    ):
        before.queue(name, **settings(target=target, **more))
    before.queue("bare", history_retention_in_seconds=0, target=target)
    before.put("hooks", *["1"] * 4)
    before.put("hooks", dedupe_key="once")
    before.put("fair", "1", "2", group_key="acme")
    before.put("bare")
    use = world.use
    use.push.deliveries.service.sleep, use.push.deliveries.arrivals = of.clock.forward, None
    start = of.clock()
    use.monotonic = lambda: of.clock().timestamp() - start.timestamp()
    due = list(use.push_targets.for_timer())
    assert use.push_targets.backing_off(queue for queue, _ in due) == 0
    assert due
    answers = itertools.cycle([TargetAnswer(200), TargetAnswer(422), TargetAnswer(500)])
    for name in ("hooks", "fair", "bare"):
        run = use.push.begin(name)
        assert run is not None
        of.clock.forward(1)
        run.secrets()
        tasks = run.fetch()
        assert tasks
        run.settle([(task, answer, 0.1) for task, answer in zip(tasks, answers, strict=False)])
        of.clock.forward(21)
        run.renew()
        before.put(name, "2")
        of.clock.forward(1)
        assert run.fetch()
        run.close()


STORIES: dict[str, Callable[[Stories], None]] = {
    "ApiFunction": the_api,
    "ConsoleFunction": the_console,
    "AuthorizerFunction": the_authorizer,
    "ReaperFunction": the_reaper,
    "SchedulerFunction": the_scheduler,
    "RecorderFunction": the_recorder,
    "DispatcherFunction": the_dispatcher,
}


@pytest.mark.parametrize("function", STORIES)
def test_a_function_may_do_what_its_code_does_and_nothing_more(
    stories: Stories, template: Template, function: str
) -> None:
    STORIES[function](stories)
    seen, may = stories.watched.seen, allowed(template, function)

    assert [use for use in sorted(seen) if not any(each.covers(use) for each in may)] == []
    done = {(use.action, use.resource) for use in seen}
    unused = {(name, each.resource) for each in may for name in each.actions} - done
    assert unused == UNSEEN.get(function, {}).keys()
