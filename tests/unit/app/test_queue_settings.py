"""Queue settings in code: typed, checked where they are declared, sent as the API has them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import App, RetryStrategy
from headrace.domain.errors import InvalidRequest
from headrace.domain.fairness import GroupMode, GroupSettings, OnDead
from headrace.domain.queue import (
    DeadLetterConfig,
    DequeuingSettings,
    PrioritySettings,
    QueueSettings,
    RateLimiting,
)
from headrace.domain.retry import Backoff
from headrace.domain.task import State
from headrace.testing import MemoryService
from headrace.wire.queues import AlertsShown, OnEndShown, TargetShown

ROOT = Path(__file__).parents[3]

TYPED = """
from headrace import App, Client, RetryStrategy

app = App()
app.queue("mail", shards=2, retry_strategy={"max_retries": 3, "kind": "fixed"})
app.queue("mail", retry_strategy=RetryStrategy(max_retries=3), description="mail")
app.queue("mail", dequeuing_settings={"rate_limiting": {"max_tokens": 5}})
app.queue("mail", shard=2)
app.queue("mail", shards="2")
app.queue("mail", retry_strategy={"max_retrys": 3})
app.queue("mail", retry_strategy={"kind": "sometimes"})
app.queue("mail", dequeuing_settings={"rate_limiting": {"interval": 5}})
Client().create_queue("mail", shard=2)
Client().edit_queue("mail", shard=2)
"""


@pytest.mark.slow
def test_mypy_finds_a_setting_that_is_none(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(TYPED)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    ).stdout
    wrong = [line.split(": ", 2) for line in found.splitlines() if "error" in line]

    assert [place.partition(":")[2] for place, *_ in wrong[:-1]] == [
        str(number) for number in range(8, 15)
    ], found  # line by line, all that have something wrong
    assert 'Unexpected keyword argument "shard" for "queue" of "App"' in wrong[0][2]


@pytest.mark.parametrize(
    ("settings", "field", "why"),
    [
        ({"shards": 100}, "shards", "must be a whole number from 1 to 64, not 100"),
        (
            {"priority": {"aging_in_seconds": 0}},
            "priority",
            "aging_in_seconds must be a",
        ),
        (
            {"alerts": {"queue": "a", "no_workers_for_seconds": 1}},
            "alerts",
            "no_workers_for_seconds must be a number from 60",
        ),
        ({"target": {"url": "a", "headers": {"Host": "b"}}}, "target", "headers Host is set by"),
        ({"retry_strategy": {"jitter": 2}}, "retry_strategy.jitter", "from 0 to 1, not 2"),
        (
            {"dequeuing_settings": {"rate_limiting": {"interval": 5}}},
            "dequeuing_settings.rate_limiting",
            "must be None or have max_tokens",
        ),
        (
            {"dead_letter_queue_config": {"enable": 1}},
            "dead_letter_queue_config.enable",
            "must be True or False",
        ),
    ],
)
def test_a_value_out_of_its_limits_is_refused_where_it_is_declared(
    settings: dict[str, Any], field: str, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=rf"^queue mail: {field} .*{why}") as caught:
        App().queue("mail", **settings)
    assert [one.field for one in caught.value.errors] == [field]


def test_every_setting_of_a_queue_can_be_declared_and_the_service_takes_it() -> None:
    app = App()
    app.queue(
        "mail",
        description="mail",
        keepalive_timeout_in_seconds=60,
        expires_in_seconds=0,
        retry_strategy=RetryStrategy(kind=Backoff.INTERVALS, intervals=(1, 2.5, 60)),
        dequeuing_settings=DequeuingSettings(5, RateLimiting(10, 1)),
        dead_letter_queue_config=DeadLetterConfig(enable=False, max_size=4),
        history_retention_in_seconds=60,
        shards=3,
        priority=PrioritySettings(60),
        target={"url": "https://example.com/", "headers": {"A": "b"}},
        on_end={"queue": "ends", "states": ["DEAD"]},
        alerts={"queue": "ends", "dead_per_minute": 5},
    )
    with MemoryService() as service, service.serving(app):
        service.client.create_queue("ends")
        app.ensure_queues()
        made = service.client.get_queue("mail")

    assert {name: getattr(made, name) for name in QueueSettings.__slots__} == {
        "description": "mail",
        "keepalive_timeout_in_seconds": 60,
        "expires_in_seconds": 0,
        "retry_strategy": RetryStrategy(
            kind=Backoff.INTERVALS, max_retries=3, intervals=(1, 2.5, 60)
        ),
        "dequeuing_settings": DequeuingSettings(5, RateLimiting(10, 1)),
        "dead_letter_queue_config": DeadLetterConfig(enable=False, max_size=4),
        "history_retention_in_seconds": 60,
        "shards": 3,
        "priority": PrioritySettings(60),
        "groups": None,
        "target": TargetShown(
            url="https://example.com/",
            function=None,
            timeout_in_seconds=30,
            max_concurrency=10,
            headers={"A": "b"},
        ),
        "on_end": OnEndShown(queue="ends", states=[State.DEAD]),
        "alerts": AlertsShown(queue="ends", dead_per_minute=5),
        "indexed_fields": [],
    }


def test_groups_can_be_declared_and_a_wrong_setting_of_them_is_named() -> None:
    app = App()
    app.queue("mail", groups={"mode": "fair", "weights": {"acme": 4}})
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        made = service.client.get_queue("mail")
    assert made.groups == GroupSettings(GroupMode.FAIR, {"acme": 4})

    app.queue("line", groups={"mode": "strict"})
    app.queue("halting", groups={"mode": "strict", "on_dead": "halt"})
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        app.ensure_queues()  # nothing differs
        line, halting = (service.client.get_queue(name) for name in ("line", "halting"))
    assert line.groups == GroupSettings(GroupMode.STRICT, on_dead=OnDead.CONTINUE)
    assert halting.groups == GroupSettings(GroupMode.STRICT, on_dead=OnDead.HALT)

    wrong: list[tuple[Any, str]] = [
        ({}, "must be None or have mode"),
        ({"mode": "first"}, "mode must be one of"),
        ({"mode": "strict", "on_dead": "stop"}, "on_dead must be one of"),
        ({"mode": "fair", "weights": {"a": 0}}, "weights.a must be a number from 0.01"),
        ({"mode": "fair", "weights": {"": 1}}, "must not be empty"),
        ({"mode": "fair", "max_inflight_per_group": 101}, "max_inflight_per_group must be"),
        ({"mode": "fair", "on_dead": "halt"}, "on_dead must be left out unless mode is strict"),
    ]
    for groups, why in wrong:
        with pytest.raises(InvalidRequest, match=rf"groups .*{why}"):
            App().queue("mail", groups=groups)


def test_settings_that_are_declared_in_several_places_come_together() -> None:
    app = App()
    app.queue("mail", retry_strategy={"max_retries": 3}, shards=2)
    app.queue("mail", retry_strategy={"base_seconds": 5}, shards=4)
    with MemoryService() as service, service.serving(app):
        app.ensure_queues()
        made = service.client.get_queue("mail")

    assert (made.shards, made.retry_strategy) == (4, RetryStrategy(max_retries=3, base_seconds=5))
