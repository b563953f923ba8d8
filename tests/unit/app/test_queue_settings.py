"""Queue settings in code: typed, checked where they are declared, sent as the API has them."""

from typing import Any

import pytest

from headrace import App, RetryStrategy, Worker
from headrace.client.app.sync import AppSync, failure_of
from headrace.domain.errors import InvalidRequest
from headrace.domain.queue_settings import (
    DeadLetterConfig,
    DequeuingSettings,
    PrioritySettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff
from headrace.domain.task import State
from headrace.domain.task_groups import GroupMode, GroupSettings
from headrace.testing import MemoryService
from headrace.wire.queues import AlertsShown, OnEndShown


def test_every_setting_of_a_queue_can_be_declared_and_the_service_takes_it() -> None:
    same: Any = {
        "description": "mail",
        "keepalive_timeout_in_seconds": 60,
        "expires_in_seconds": 0,
        "dequeuing_settings": DequeuingSettings(5, RateLimiting(10, 1)),
        "dead_letter_queue_config": DeadLetterConfig(enable=False, max_size=4),
        "history_retention_in_seconds": 60,
        "shards": 3,
        "priority": PrioritySettings(60),
    }
    app = App()
    app.queue(
        "mail",
        **same,
        retry_strategy=RetryStrategy(kind=Backoff.INTERVALS, intervals=(1, 2.5, 60)),
        target={"url": "https://example.com/", "headers": {"A": "b"}},
        on_end={"queue": "ends", "states": ["DEAD"]},
        alerts={"queue": "ends", "dead_per_minute": 5},
    )
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        made = service.client.get_queue("mail")

    assert {name: getattr(made, name) for name in same} == same
    assert made.retry_strategy.intervals == (1, 2.5, 60)
    assert made.target is not None
    assert (made.target.url, made.target.headers) == ("https://example.com/", {"A": "b"})
    assert made.on_end == OnEndShown(queue="ends", states=[State.DEAD])
    assert made.alerts == AlertsShown(queue="ends", dead_per_minute=5)


def test_groups_can_be_declared_and_a_wrong_setting_of_them_is_named() -> None:
    app = App()
    app.queue("mail", groups={"mode": "fair", "weights": {"acme": 4}})
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        made = service.client.get_queue("mail")
    assert made.groups == GroupSettings(GroupMode.FAIR, {"acme": 4})

    wrong: list[tuple[Any, str]] = [
        ({}, "mode is required"),
        ({"mode": "random"}, "mode must be one of fair, strict"),
        ("fair", "must be a dict"),
    ]
    for groups, why in wrong:
        with pytest.raises(InvalidRequest, match=rf"groups.*{why}"):
            App().queue("mail", groups=groups)


def test_a_type_checker_finds_a_setting_that_is_wrong() -> None:
    """The comments here are checked: mypy complains of one that is not needed."""
    app = App()
    app.queue("mail", shards=2, retry_strategy={"max_retries": 3, "kind": "fixed"})
    app.queue("mail", dequeuing_settings={"rate_limiting": {"max_tokens": 5}})
    with pytest.raises(TypeError):
        app.queue("mail", shard=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest):
        app.queue("mail", shards="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        app.queue("mail", retry_strategy={"max_retrys": 3})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        app.queue("mail", retry_strategy={"kind": "sometimes"})  # type: ignore[arg-type]


def test_settings_that_are_declared_in_several_places_come_together() -> None:
    app = App()
    app.queue("mail", retry_strategy={"max_retries": 3}, shards=2)
    app.queue("mail", retry_strategy={"base_seconds": 5}, shards=4)
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        made = service.client.get_queue("mail")

    assert (made.shards, made.retry_strategy) == (4, RetryStrategy(max_retries=3, base_seconds=5))


ALERTS: Any = {"queue": "ops", "oldest_ready_seconds": 300}
ENDS: Any = {"queue": "ends", "states": ["DEAD"]}


def referring() -> tuple[App, Any]:
    """Return an app whose queue refers to others, one of which refers to a third."""
    app = App()
    app.queue("mail", alerts=ALERTS, on_end=ENDS)
    app.queue("ops", on_end=ENDS)

    @app.task(queue="mail")
    def send(to: str) -> None: ...

    return app, send


def by_enqueue(service: MemoryService, app: App, send: Any) -> None:
    send.enqueue(to="ada")


def by_kit(service: MemoryService, app: App, send: Any) -> None:
    service.run(app)


def by_worker(service: MemoryService, app: App, send: Any) -> None:
    Worker(app, client=service.client).run(burst=True)


def by_sync(service: MemoryService, app: App, send: Any) -> None:
    sync = AppSync(service.client, app.declares())
    assert failure_of(sync.apply(sync.plan().steps)) is None


@pytest.mark.parametrize("way", [by_enqueue, by_kit, by_worker, by_sync])
def test_queues_that_alerts_and_ends_go_to_are_made_first(way: Any) -> None:
    app, send = referring()
    with MemoryService() as service, service.serving(app):
        way(service, app, send)
        queues = {queue.name: queue for queue in service.client.list_queues()}

    assert set(queues) == {"ends", "mail", "ops"}
    assert queues["mail"].alerts is not None
    assert queues["ops"].on_end is not None


def test_a_queue_whose_settings_the_service_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App(queue="mail")
    app.queue("mail", on_end={"queue": "hooks"})
    app.queue("hooks", target={"url": "http://hooks.test:8000"})
    with (
        MemoryService() as service,
        service.serving(app),
        pytest.raises(InvalidRequest, match=r"^queue hooks: target\.url must begin with https"),
    ):
        app.task(lambda: None).enqueue()

    monkeypatch.setenv("HEADRACE_PUSH_HOSTS", "hooks.test")
    with MemoryService() as service, service.serving(app):
        assert app.task(lambda: None).enqueue().outcome == "CREATED"
