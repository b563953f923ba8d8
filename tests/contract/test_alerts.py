"""What every store promises about alerts: told once, shown while they are on, looked at cheaply."""

import json
from typing import Any

import pytest

from headrace.domain.alerts import BEGAN, QUIET_FOR, Alert, AlertEvent
from headrace.domain.errors import InvalidRequest
from headrace.domain.queue_settings import AlertSettings, QueueSettings, Threshold
from headrace.domain.retry import RetryStrategy
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.store.base import Store
from headrace.store.call_scope import metered
from headrace.store.sqlite import SqliteStore
from tests.contract.conftest import World, new_world
from tests.manual_clock import ManualClock
from tests.streamed import SHARD, Streamed

MINUTE = 60.0
QUIET = QUIET_FOR.total_seconds()
ONCE = RetryStrategy(max_retries=0)


class Watched:
    """A service whose timers run when told, with a queue that is told of alerts."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.stream = Streamed(store, clock)
        self.world = new_world(self.stream.store, clock)
        self.use, self.clock = self.world.use, clock
        self.world.queue("ops")

    def work(self, *, settings: dict[str, Any] | None = None, **limits: Any) -> None:
        self.world.queue("work", alerts=AlertSettings("ops", **limits), **(settings or {}))

    def pass_(self, seconds: float = 0.0) -> None:
        """Let time go by, and the recorder and the reaper run."""
        self.clock.forward(seconds)
        self.use.recording.record(SHARD, self.stream.taken())
        self.use.reaping.run()

    def messages(self) -> list[Any]:
        """Return what was told since the last call, values rounded."""
        told = []
        for task in self.world.take("ops", 25):
            self.world.say(task, "SUCCEEDED")
            message = json.loads(task.payload or "")
            message["data"]["value"] = round(message["data"]["value"])
            told.append(message)
        return told

    def on(self) -> list[str]:
        alerts = self.use.stats.of("work").alerts
        assert alerts is not None
        return list(map(str, alerts))


@pytest.fixture
def watched(store: Store, clock: ManualClock) -> Watched:
    return Watched(store, clock)


@pytest.mark.parametrize("settings", [{}, {"groups": GroupSettings(GroupMode.FAIR)}])
def test_a_task_that_waits_for_long_is_told_and_that_it_does_no_more(
    watched: Watched, settings: dict[str, Any]
) -> None:
    watched.work(settings=settings, oldest_ready_seconds=300)
    watched.world.put("work", delay_in_seconds=3)
    watched.pass_(302)
    assert watched.messages() == []
    watched.pass_(60)
    (began,) = watched.messages()
    assert (began["type"], began["timestamp"]) == ("queue.alert.began", began["data"]["since"])
    expected = {"queue": "work", "threshold": "oldest_ready_seconds", "limit": 300, "value": 359}
    assert began["data"] == {**expected, "since": began["data"]["since"]}
    assert watched.on() == ["oldest_ready_seconds"]

    watched.world.say(watched.world.one("work"), "SUCCEEDED")
    watched.pass_()
    watched.pass_(QUIET - 1)
    assert (watched.messages(), watched.on()) == ([], ["oldest_ready_seconds"])
    watched.pass_(1)
    (ended,) = watched.messages()
    assert (ended["type"], ended["data"]) == ("queue.alert.ended", {**began["data"], "value": 0})
    assert watched.on() == []


@pytest.mark.gate
def test_dead_tasks_of_a_minute_are_told(watched: Watched) -> None:
    watched.work(dead_per_minute=2, settings={"retry_strategy": ONCE})
    for number in (1, 2):
        watched.clock.forward(MINUTE)
        watched.world.put("work", *["1"] * (number + 1))
        for task in watched.world.take("work", number):
            watched.world.say(task, "FAILED")
        (cancelled,) = [task.id for task in watched.world.take("work", 9)]
        watched.use.cancelling.cancel(cancelled)  # which is no failure
        watched.pass_()
        watched.pass_(MINUTE)
        assert len(watched.messages()) == number - 1
    assert watched.on() == ["dead_per_minute"]
    for _ in range(8):
        watched.pass_(MINUTE)
    (ended,) = watched.messages()
    assert (ended["data"]["limit"], ended["data"]["value"]) == (2, 0)


@pytest.mark.parametrize("alerts", [False, True])
def test_a_look_costs_a_few_reads_and_writes_nothing_while_nothing_changes(
    store: Store, watched: Watched, *, alerts: bool
) -> None:
    if isinstance(store, SqliteStore):
        pytest.skip("a file counts statements, not units")
    watched.work(oldest_ready_seconds=60, dead_per_minute=1, no_workers_for_seconds=60)
    if not alerts:
        watched.use.queues.replace("work", QueueSettings())
    watched.world.put("work")
    for _ in range(3):
        watched.pass_(MINUTE)
    with metered() as before:
        watched.use.reaping.run()
    settings = watched.use.queues.get("work").settings
    watched.use.queues.replace("work", QueueSettings())
    with metered() as without:
        watched.use.reaping.run()
    watched.use.queues.replace("work", settings)
    assert before.write == without.write == 0
    assert before.read - without.read <= (8 if alerts else 0)


def test_an_alert_whose_id_another_task_holds_is_sent_under_another_id(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.work(oldest_ready_seconds=300)
    epoch = watched.use.queues.get("work").alerts_since
    assert epoch is not None
    event = AlertEvent(BEGAN, Threshold.OLDEST_READY, Alert(1), 300)
    usual = watched.use.derived_ids.task_id(epoch, *event.facts("work", epoch))
    watched.world.queue("other")
    watched.world.put("other", id=usual)
    watched.world.put("work")

    watched.pass_(400)

    assert [message["type"] for message in watched.messages()] == ["queue.alert.began"]
    assert f"Task {usual} in queue other has the id of an alert of queue work" in caplog.text


def test_alerts_go_to_another_queue_that_is_there_and_not_strict(world: World) -> None:
    world.queue("strict", groups=GroupSettings(GroupMode.STRICT))
    for told, fault in (
        (None, "must be named"),
        ("mail", "must be another queue"),
        ("nowhere", "is missing"),
        ("strict", "must not be strict"),
    ):
        with pytest.raises(InvalidRequest, match=fault):
            world.queue("mail", alerts=AlertSettings(queue=told, dead_per_minute=1))
