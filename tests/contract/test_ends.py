"""What every store promises about webhooks on end: each end is told once, and none of theirs."""

import json
from typing import Any

import pytest

from headrace.domain.access import Principal, Role
from headrace.domain.queue_settings import DeadLetterConfig, OnEnd, QueueSettings
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import State, Task
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.http.tasks import task_answer
from headrace.ops.delivery.reports import WorkerError
from headrace.store.base import Store
from headrace.store.call_scope import acting
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


def test_the_end_of_a_webhook_is_told_to_nobody(told: Told) -> None:
    """Two queues tell one another of ends: one webhook and no more."""
    told.work()
    told.use.queues.replace("told", QueueSettings(on_end=OnEnd("work")))
    told.finish()
    told.record()
    (webhook,) = told.webhooks()
    told.world.say(webhook, "SUCCEEDED")
    told.record()

    assert webhook.reports_end_of is not None
    assert list(told.world.take("work", 25)) == []
    told.world.put("told")
    told.world.say(told.world.one("told"), "SUCCEEDED")  # one of its own is told
    told.record()
    assert len(told.world.take("work", 25)) == 1


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
    assert event.reports_end_of == task.id
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
