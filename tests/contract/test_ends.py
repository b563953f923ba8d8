"""What every store promises about webhooks on end: each end is told once, and none of theirs."""

import json
from typing import Any

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.errors import InvalidRequest
from headrace.domain.fairness import GroupMode, GroupSettings
from headrace.domain.on_end import OnEnd
from headrace.domain.operate import BulkAction
from headrace.domain.queue import DeadLetterConfig, QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import State, Task
from headrace.http.task_answers import task_answer
from headrace.ops.delivery.reports import WorkerError
from headrace.ops.operators.keys import acting
from headrace.store.base import Store
from headrace.store.call_scope import metered, restricted_to
from headrace.store.sqlite import SqliteStore
from headrace.wire.base import to_json
from tests.contract.conftest import new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

BARE: dict[str, Any] = {
    "history_retention_in_seconds": 0,
    "dead_letter_queue_config": DeadLetterConfig(enable=False),
}
ONCE = RetryStrategy(max_retries=0)


class Told:
    """A service whose log a recorder reads when told, with a queue that is told of ends."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.stream = Streamed(store, clock)
        self.world = new_world(self.stream.store, clock)
        self.use, self.clock = self.world.use, clock
        self.world.queue("told")

    def work(self, *states: State, **settings: Any) -> None:
        on_end = OnEnd("told", states or (State.SUCCEEDED, State.DEAD))
        settings = {"retry_strategy": ONCE, **settings}
        self.world.queue("work", on_end=on_end, **settings)

    def record(self) -> None:
        self.use.recording.record(SHARD, self.stream.taken())

    def finish(self, status: str = "SUCCEEDED", **fields: Any) -> Task:
        (one,) = self.world.put("work", '{"secret": 1}', tags={"tenant": "acme"})
        task = self.world.one("work")
        assert task.id == one
        self.world.say(task, status, **fields)
        return task

    def webhooks(self) -> list[Task]:
        return list(self.world.take("told", 25))

    def messages(self) -> list[Any]:
        self.record()
        return [json.loads(task.payload or "") for task in self.webhooks()]


@pytest.fixture
def told(store: Store, clock: ManualClock) -> Told:
    return Told(store, clock)


@pytest.mark.gate
def test_an_end_is_told_with_the_task_as_the_api_shows_it(told: Told) -> None:
    told.work()
    task = told.finish(result='{"rows": 3}')

    (message,) = told.messages()

    ended = told.world.see(task.id)
    shown = to_json(task_answer(ended, now=told.clock(), max_retries=lambda _: 0, payload=False))
    assert message["type"] == "task.succeeded"
    assert message["timestamp"] == json.loads(shown)["finished_at"]
    assert message["data"] == json.loads(shown)
    assert "payload" not in message["data"]
    assert message["data"]["result"] == {"rows": 3}


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_an_end_that_nobody_keeps_is_told_in_full(told: Told, status: str) -> None:
    told.work(**BARE)
    fields: dict[str, Any] = {"result": "7"}
    if status == "FAILED":
        fields = {"error": WorkerError("Boom", "it broke")}
    told.finish(status, **fields)

    (message,) = told.messages()

    data = message["data"]
    assert (data["queue"], data["tags"], data["attempts"]) == ("work", {"tenant": "acme"}, 1)
    if status == "SUCCEEDED":
        assert (data["state"], data["result"]) == ("SUCCEEDED", 7)
    else:
        assert (data["state"], data["dead_reason"]) == ("DEAD", "exhausted")
        assert [error["message"] for error in data["errors"]] == ["it broke"]


def test_every_way_to_die_is_told(told: Told) -> None:
    told.work(expires_in_seconds=60)
    told.finish("FAILED", retryable=False)
    (cancelled,) = told.world.put("work")
    told.use.cancelling.cancel(cancelled)
    (lapsed,) = told.world.put("work")
    assert told.world.one("work", keepalive=1).id == lapsed
    told.clock.forward(2)
    told.use.reaping.run()
    told.world.put("work")
    told.clock.forward(61)
    told.use.reaping.run()

    reasons = [message["data"]["dead_reason"] for message in told.messages()]

    assert sorted(reasons) == ["cancelled", "exhausted", "expired", "rejected"]


def test_only_ends_are_told_and_only_those_that_were_asked_for(told: Told) -> None:
    told.work(State.DEAD, retry_strategy=RetryStrategy(max_retries=1, base_seconds=1, jitter=0))
    told.world.put("work", "1", "2")
    first, second = told.world.take("work", 2)
    told.world.say(first, "SUCCEEDED")
    told.world.say(second, "FAILED")
    told.record()
    told.use.tasks.delete(first.id)
    assert told.messages() == []

    told.clock.forward(2)
    told.world.say(told.world.one("work"), "FAILED")
    (message,) = told.messages()
    assert (message["type"], message["data"]["id"]) == ("task.dead", second.id)


def test_what_ends_again_is_told_again_by_another_id(told: Told) -> None:
    told.work()
    task = told.finish("FAILED")
    told.record()
    told.use.bulk.by_ids("work", BulkAction.RESTART, [task.id])
    told.world.say(told.world.one("work"), "SUCCEEDED")
    told.record()

    webhooks = told.webhooks()

    types = [json.loads(task.payload or "")["type"] for task in webhooks]
    assert types == ["task.dead", "task.succeeded"]
    assert len({task.id for task in webhooks}) == 2


def test_the_end_of_a_webhook_is_told_to_nobody(told: Told) -> None:
    """Two queues tell one another of ends: one webhook and no more."""
    told.work()
    told.use.queues.replace("told", QueueSettings(on_end=OnEnd("work")))
    told.finish()
    told.record()
    (webhook,) = told.webhooks()
    told.world.say(webhook, "SUCCEEDED")
    told.record()

    assert webhook.tells_of is not None
    assert list(told.world.take("work", 25)) == []
    told.world.put("told")
    told.world.say(told.world.one("told"), "SUCCEEDED")  # one of its own is told
    told.record()
    assert len(told.world.take("work", 25)) == 1


def test_a_queue_that_cannot_be_told_is_refused(told: Told) -> None:
    for queue, fault in (("work", "another queue"), ("nowhere", "no queue nowhere")):
        with pytest.raises(InvalidRequest, match=fault) as refused:
            told.world.queue("work", on_end=OnEnd(queue))
        assert refused.value.errors[0].field == "on_end.queue"
    with pytest.raises(InvalidRequest, match="named"):
        told.world.queue("work", on_end=OnEnd(None))
    with restricted_to(lambda name: name == "work"), pytest.raises(InvalidRequest, match="missing"):
        told.world.queue("work", on_end=OnEnd("told"))


def test_who_may_not_know_the_queue_that_is_told_keeps_it(told: Told) -> None:
    told.work()
    with restricted_to(lambda name: name == "work"):
        changed = told.use.queues.replace("work", QueueSettings(on_end=OnEnd(None, (State.DEAD,))))
    assert changed.settings.on_end == OnEnd("told", (State.DEAD,))
    assert told.use.queues.get("work").settings.on_end == OnEnd("told", (State.DEAD,))


@pytest.mark.parametrize("ends", [0, 10])
def test_a_webhook_costs_two_units_and_without_it_an_end_costs_none(
    store: Store, told: Told, ends: int
) -> None:
    if ends:
        told.work()
    else:
        told.world.queue("work")
    for _ in range(10):
        told.finish()
        told.clock.forward(0.01)
    writes = told.stream.taken()
    told.use.recording.record(SHARD, writes[:-1])  # what a recorder reads at first
    for _ in range(10):
        told.finish()
        told.clock.forward(0.01)
    later = [*writes[-1:], *told.stream.taken()]
    with metered() as meter:
        told.use.recording.record(SHARD, later)
    webhooks = told.world.take("told", 25)
    assert len(webhooks) == (20 if ends else 0)
    sizes = {len(task.payload or "") for task in webhooks}
    assert max(sizes, default=0) < 1024
    made = 11 if ends else 0  # one of them is of the first ten
    if not isinstance(store, SqliteStore):
        return  # memory counts no units, and the engine none of statements
    books = 1.0  # the buffer
    assert 2 * made <= meter.write <= 2 * made + books
    assert meter.read <= made  # as whoever makes the log reads what it has written


def fair_told(told: Told, **groups: Any) -> None:
    told.use.queues.replace("told", QueueSettings(groups=GroupSettings(GroupMode.FAIR, **groups)))


def finish_all(told: Told, *keys: str | None) -> None:
    for key in keys:
        told.world.put("work", group_key=key)
    for task in told.world.take("work", 25):
        told.world.say(task, "SUCCEEDED")
        told.clock.forward(0.001)


def test_webhooks_take_the_turns_of_their_tasks_groups(told: Told) -> None:
    told.work(groups=GroupSettings(GroupMode.FAIR))
    fair_told(told)
    finish_all(told, "acme", "acme", "acme", "acme")
    told.record()
    finish_all(told, "beta", None)
    told.record()

    webhooks = told.webhooks()

    keys = [webhook.group_key for webhook in webhooks]
    assert set(keys[:3]) == {"acme", "beta", None}
    assert keys[3:] == ["acme"] * 3
    assert all(webhook.turn is not None for webhook in webhooks)


def test_an_event_whose_id_another_task_holds_is_made_once_under_another_id(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.work()
    task = told.finish()
    ended = told.world.see(task.id)
    assert ended.finished_at is not None
    usual = told.use.derived_ids.task_id(ended.finished_at, "end", task.id, ended.version, 0)
    told.world.queue("other")
    told.world.put("other", id=usual)
    told.world.say(told.world.one("other"), "SUCCEEDED")

    told.record()

    (event,) = told.webhooks()
    assert event.tells_of == task.id
    assert event.id != usual
    assert f"has the id {usual}" in caplog.text


def test_an_event_names_no_queue_outside_the_key_that_set_on_end(told: Told) -> None:
    for name in ("acme.in", "acme.out", "secret"):
        told.world.queue(name)
    told.world.put("acme.in")
    told.world.say(told.world.one("acme.in"), "MOVED", to_queue="secret")
    told.world.say(told.world.one("secret"), "MOVED", to_queue="acme.out")
    admin = Principal("key_1", "acme", Role.ADMIN, ("acme.*", "told"))
    with acting(admin):
        told.use.queues.replace("acme.out", QueueSettings(on_end=OnEnd("told")))
    # Other settings change nothing of whose on_end it is.
    settings = QueueSettings(on_end=OnEnd("told"), description="by another admin")
    told.use.queues.replace("acme.out", settings)
    told.world.say(told.world.one("acme.out"), "SUCCEEDED")

    (message,) = told.messages()

    assert message["data"]["queue"] == "acme.out"
    assert [hop["queue"] for hop in message["data"]["trail"]] == ["acme.in", None]
