"""Least privilege for programs that use the tables themselves: producers, workers, operators.

Each program works through its URL with the SDK while the policy of the stack is in force.  Its
calls of AWS are compared with the policy in both directions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest
from msgspec import structs

from headrace import App, Client, NewTask, Report, Worker
from headrace.client.calls import service, work
from headrace.client.calls.tasks import cancel_task
from headrace.client.sending import SpawnedTask
from headrace.domain.errors import Forbidden
from headrace.domain.push import Target
from headrace.domain.queue_settings import DeadLetterConfig, DequeuingSettings, RateLimiting
from headrace.domain.retry import RetryStrategy
from headrace.domain.task_groups import GroupMode, GroupSettings, OnDead
from headrace.domain.worker import WorkerHeartbeat
from headrace.local.tables import DynamoDBClient
from headrace.store.dynamo import DynamoStore
from infra.template import Template
from tests.aws import URL, Account
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.unit.infra.permitted import Use, allowed_by

pytestmark = pytest.mark.gate

ONCE = RetryStrategy(max_retries=0)


@dataclass
class Past:
    """What others did before, and what the program under test does now."""

    world: World
    recent: World
    client: Client

    def forward(self, seconds: float) -> None:
        self.world.clock.forward(seconds)


def rules(**more: Any) -> dict[str, Any]:
    """Return settings that bring every rule of a queue into play."""
    limited = DequeuingSettings(max_inflight_tasks=50, rate_limiting=RateLimiting(100, 1))
    given = {"dequeuing_settings": limited, "shards": 2, "history_retention_in_seconds": 60}
    return given | {"dead_letter_queue_config": DeadLetterConfig(max_size=1)} | more


def a_producer(past: Past) -> None:
    before, client = past.world, past.client
    before.queue("mail", **rules())
    (gone,) = before.put("mail", "{}", dedupe_key="left", expires_at=before.clock() + timedelta(10))
    before.put("mail", "{}", dedupe_key="over", expires_at=before.clock() + timedelta(seconds=10))
    before.put("mail", "{}", dedupe_key="lapsed", retry=ONCE)
    before.take("mail", 9)

    new = client.enqueue("mail", {"to": "ada"}, id="hello", delay_in_seconds=60)
    assert client.enqueue("mail", {"to": "ada"}, id="hello").outcome == "EXISTING"
    client.enqueue_many("mail", [NewTask(payload=number) for number in range(30)])
    for key in ("left", "over", "lapsed", "new", "new"):
        client.enqueue("mail", {"to": "eve"}, dedupe_key=key, overwrite_on_duplicate=["payload"])
    _takes_ids_of_the_finished(past)
    client.get_task(str(new.id))
    client.get_task(gone)
    past.world.queue("fair", groups=GroupSettings(GroupMode.FAIR))
    client.enqueue("fair", 1, group_key="acme")
    _cancels_in_a_strict_order(past)
    _batches(client)


def _cancels_in_a_strict_order(past: Past) -> None:
    past.world.queue("strict", groups=GroupSettings(GroupMode.STRICT, on_dead=OnDead.HALT))
    task = past.client.enqueue("strict", 1, group_key="acme")
    asked = structs.replace(cancel_task(str(task.id)), key="cancelled")
    past.client.send(asked)
    past.client.send(structs.replace(asked, attempt=2))  # its answer was lost


def _looks_at_a_pushed_task(past: Past) -> None:
    past.world.queue("pushed", target=Target(url="https://example.org/"))
    (task_id,) = past.world.put("pushed")
    past.client.explain_task(task_id)


def _batches(client: Client) -> None:
    told = SpawnedTask(queue="mail", payload=1)
    client.create_batch(id="none", total=0, on_ended=told)
    with client.batch(on_ended=told) as batch:
        batch.enqueue("mail", 1)
    client.get_batch(batch.id)
    client.batch_results(batch.id)
    list(client.list_batches())
    client.delete_batch(batch.id)


def _takes_ids_of_the_finished(past: Past) -> None:
    """Enqueue under the ids of tasks that are past their retention, or were never kept."""
    for world, history in ((past.world, 60), (past.recent, 0)):
        queue = world.queue(f"kept-{history}", history_retention_in_seconds=history)
        ids = world.put(queue, "{}", "{}")
        for task in world.take(queue, 2):
            world.say(task, "SUCCEEDED")
        for key, task_id in zip((None, "its-own"), ids, strict=True):
            past.client.enqueue(queue, {}, id=task_id, dedupe_key=key)


def a_worker(past: Past) -> None:
    before, client = past.world, past.client
    before.queue("mail", **rules())
    before.queue("other")
    unkept = DeadLetterConfig(enable=False)
    before.queue("unkept", dead_letter_queue_config=unkept, history_retention_in_seconds=0)
    for queue in ("mail", "unkept"):
        before.put(queue, *["{}"] * 6)
        before.put(queue, "{}", dedupe_key="lapsed", retry=ONCE)
        before.put(queue, "{}", dedupe_key="lapses too", retry=ONCE)
        before.take(queue, 8)
        before.put(queue, "{}", expires_at=before.clock() + timedelta(seconds=10))
        before.put(queue, "{}", dedupe_key="over", expires_at=before.clock() + timedelta(seconds=9))
    lapsed = before.use.leases.open("stage", keepalive=20).id
    before.put("mail", "{}", "{}")
    before.take("mail", 2, lease_id=lapsed)

    client.put_worker(
        "ada:1",
        queues=["mail", "other"],
        concurrency=4,
        running=[],
        version="1",
        started_at=datetime.now(UTC),
    )
    client.enqueue("mail", 1, dedupe_key="mine")
    for queue in ("mail", "unkept"):
        client.enqueue_many(queue, [NewTask(payload=number) for number in range(12)])
    taken = []
    for _ in range(4):
        taken += client.dequeue("mail", worker="ada:1", batch_size=25).tasks
        taken += client.dequeue(queues=["mail", "unkept"], order="due", batch_size=25).tasks
        taken += client.dequeue("unkept", batch_size=25).tasks
    asked = structs.replace(work.dequeue("mail"), key="once")
    taken += client.send(asked).tasks
    client.send(structs.replace(asked, attempt=2))  # its answer was lost
    by_queue: dict[str, list[Any]] = {"mail": [], "unkept": []}
    for task in taken:
        by_queue[task.queue].append(task)
    for queue, tasks in by_queue.items():
        spawn = [
            SpawnedTask(queue="other", payload=1),
            SpawnedTask(queue=queue, payload=1, dedupe_key="spawned"),
        ]
        client.report(queue, [Report.on(tasks[0], "INFLIGHT", progress=1)])
        spawn += [SpawnedTask(queue=queue, payload=1)] * 25
        for _ in range(2):
            client.report(queue, [Report.on(tasks[0], "SUCCEEDED", result=1, spawn=spawn)])
        client.report(queue, [Report.on(tasks[1], "MOVED", to_queue="other")])
        client.report(queue, [Report.on(task, "RELEASED") for task in tasks[2:4]])
        client.report(queue, [Report.on(task, "FAILED") for task in tasks[4:5]])
        client.report(queue, [Report.on(task, "FAILED", retryable=False) for task in tasks[5:9]])
        client.report(queue, [Report.on(task, "SUCCEEDED") for task in tasks[9:]])
    group = client.open_lease("ours", keepalive_timeout_in_seconds=60).id
    client.enqueue_many("other", [NewTask(payload=number) for number in range(3)])
    held = client.dequeue("other", batch_size=2, lease_id=group).tasks
    client.extend_lease(group)
    client.report("other", [Report(task_id=held[0].id, lease_id=group, status="SUCCEEDED")])
    client.close_lease(group)
    client.get_task(held[0].id)
    _takes_ids_of_the_finished(past)
    before.queue("fair", groups=GroupSettings(GroupMode.FAIR, max_inflight_per_group=1))
    client.enqueue("fair", 1, group_key="acme")
    client.dequeue("fair")
    _cancels_in_a_strict_order(past)
    _batches(client)
    _an_app(client)


def _an_app(client: Client) -> None:
    app = App(client)

    @app.task(queue="other", max_retries=1)
    def note(number: int) -> None:
        """Do nothing."""

    for number in range(3):
        note.enqueue(number)
    Worker(app).run(burst=True)


def _searches_by_an_index(past: Past) -> None:
    past.world.queue("indexed", indexed_fields=("tag:a",))
    past.forward(120)
    use = past.world.use
    for job in use.jobs.pending():
        use.jobs.step(job, lambda: True)
    assert list(past.client.list_tasks("indexed", tags={"a": "1"})) == []
    assert "indexed" in {queue.name for queue in past.client.list_queues()}


def _acts_on_many(client: Client) -> None:
    run = client.begin_action("run", ["mail"], all=True, reason="the provider is back")
    list(client.list_actions())
    for steer in (client.get_action, client.pause_action, client.resume_action):
        steer(run.id)
    client.cancel_action(run.id)
    list(client.list_audit())


def an_operator(past: Past) -> None:
    before, client = past.world, past.client
    before.queue("mail", **rules())
    ids = before.put("mail", *["{}"] * 9)
    before.queue("other")
    before.queue("fair", groups=GroupSettings(GroupMode.FAIR, max_inflight_per_group=1))
    _looks_at_a_pushed_task(past)
    before.put("mail", "{}", dedupe_key="kept")
    for task in before.take("mail", 4):
        before.say(task, "FAILED", retryable=False)
    delayed = before.put("mail", *["{}"] * 6, delay_in_seconds=7200)
    before.put("mail", "{}", dedupe_key="held", delay_in_seconds=7200)

    _searches_by_an_index(past)
    client.enqueue("fair", 1, group_key="acme")
    client.get_group("fair", "acme")
    client.get_stats("mail", exact=True)
    client.recount_queue("mail")
    list(client.list_tasks("mail", payload=True))
    client.count_tasks("mail", tags={"a": "b"})
    client.count_tasks("mail", query="version:1")
    for task_id in ids:
        client.explain_task(task_id)
    client.enqueue("mail", 1)
    client.enqueue("mail", 1, dedupe_key="mine")
    client.run_tasks("mail", ids=delayed[:1])
    client.move_tasks("mail", "other", ids=delayed[1:2])
    client.move_tasks("mail", "other", state="scheduled")
    client.restart_tasks("mail", state="dead")
    deleted = client.delete_task(delayed[2], undo_in_seconds=60)
    assert deleted is not None
    client.undo(deleted.id)
    client.delete_tasks("other", all=True)
    client.delete_tasks("mail", ids=ids[:2])
    client.put_schedule("mail", "daily", every_seconds=60, dedupe_key="daily")
    client.put_schedule("mail", "daily", every_seconds=60, dedupe_key="daily", paused=True)
    client.get_schedule("mail", "daily")
    client.run_schedule("mail", "daily")
    client.delete_schedule("mail", "daily")
    _batches(client)
    heartbeat = WorkerHeartbeat("ada:1", ("mail",), datetime.now(UTC))
    past.recent.use.workers.alive(heartbeat)
    client.quiet_worker("ada:1")
    client.stop_worker("ada:1")
    list(client.list_workers())
    _acts_on_many(client)
    purge = service.call("POST", "/v1/queues/mail/purge", body={"states": ["ENQUEUED"]})
    for _ in range(2):  # the first answer was lost
        client.send(structs.replace(purge, key="once"))
    client.purge_queue("mail", ["ENQUEUED", "INFLIGHT", "SUCCEEDED", "DEAD"])


def an_admin(past: Past) -> None:
    client = past.client
    past.world.queue("mail", **rules())
    past.world.put("mail", *["{}"] * 3)
    client.create_queue("third", shards=3)
    client.edit_queue("mail", shards=3, dequeuing_settings={"max_inflight_tasks": 9})
    client.pause_queue("mail", resume_in_seconds=60)
    client.resume_queue("mail")
    client.create_queue("indexed", indexed_fields=["tag:a"])
    client.delete_queue("mail")
    client.delete_queue("third")


STORIES: dict[str, Callable[[Past], None]] = {
    "ProducerPolicy": a_producer,
    "WorkerPolicy": a_worker,
    "OperatorPolicy": an_operator,
}


@pytest.fixture
def past(aws: Account, dynamodb: DynamoDBClient) -> Past:
    store = DynamoStore(dynamodb, tasks_table=aws.tables.tasks, control_table=aws.tables.control)
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))
    world = new_world(store, clock)
    world.use.derived_ids.secret.value()  # the scheduler has run
    return Past(world, new_world(store, ManualClock(datetime.now(UTC))), Client(URL))


def statements(template: Template, policy: str) -> list[dict[str, Any]]:
    """Return the statements of *policy*, with the conditional statement about the key."""
    document = template["Resources"][policy]["Properties"]["PolicyDocument"]
    return [one["Fn::If"][1] if "Fn::If" in one else one for one in document["Statement"]]


@pytest.mark.parametrize("policy", STORIES)
def test_a_policy_allows_what_its_programs_do_and_nothing_more(
    past: Past, aws: Account, template: Template, policy: str
) -> None:
    may = aws.policy = allowed_by([{"Statement": statements(template, policy)}])
    STORIES[policy](past)

    used = {each: {use for use in aws.seen if each.covers(use)} for each in may}
    unused = {
        (name, each.resource)
        for each, uses in used.items()
        for name in each.actions - {use.action for use in uses}
    }
    assert unused == set()
    kinds = {(each.resource, kind) for each in may for kind in each.leading}
    seen = {
        (each.resource, kind)
        for each, uses in used.items()
        for kind in each.leading
        if any(fnmatchcase(use.leading, kind) for use in uses)
    }
    assert kinds - seen == set()


@pytest.mark.parametrize("policy", STORIES)
def test_no_policy_reaches_keys_or_sessions_or_scans(template: Template, policy: str) -> None:
    may = allowed_by([{"Statement": statements(template, policy)}])
    control = [each for each in may if each.resource == "control"]

    for kind in ("key", "key_name", "session", "attempts"):
        assert not [
            each
            for each in control
            for one in each.actions
            if each.covers(Use(one, "control", kind))
        ]
    assert not [each for each in may if "Scan" in each.actions]


def test_an_admin_beside_the_operators_rights_changes_queues(
    past: Past, aws: Account, template: Template
) -> None:
    may = allowed_by([{"Statement": statements(template, "AdminPolicy")}])
    aws.policy = [*may, *allowed_by([{"Statement": statements(template, "OperatorPolicy")}])]

    an_admin(past)

    for one in may:
        assert {use.action for use in aws.seen if one.covers(use)} == one.actions


def test_an_operator_writes_no_queue_and_changes_no_audit_entry(template: Template) -> None:
    may = allowed_by([{"Statement": statements(template, "OperatorPolicy")}])

    for action, kind in (
        *((action, "queue") for action in ("PutItem", "UpdateItem", "DeleteItem")),
        *((action, "audit") for action in ("UpdateItem", "DeleteItem")),
    ):
        assert not [each for each in may if each.covers(Use(action, "control", kind))]


def test_a_producer_may_not_do_the_work_of_a_worker(
    past: Past, aws: Account, template: Template
) -> None:
    past.world.queue("mail")
    past.world.put("mail")
    aws.policy = allowed_by([{"Statement": statements(template, "ProducerPolicy")}])

    with pytest.raises(Forbidden, match=r"not authorized to perform: dynamodb:Query"):
        past.client.dequeue("mail")
    with pytest.raises(Forbidden, match=r"not authorized to perform: dynamodb:"):
        past.client.create_queue("other")
