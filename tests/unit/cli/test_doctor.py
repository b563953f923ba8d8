"""`headrace doctor`: what it advises, and what it leaves alone."""

import re
import shlex
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headrace.cli.doctor import horizon, index_advice, queue_advice, skew_advice, version_advice
from headrace.domain.retry import Backoff, RetryStrategy
from headrace.testing import MemoryService
from headrace.testing.conditions import START
from headrace.wire.queues import Queue, Stats
from headrace.wire.service import WorkerSeen
from tests.unit.cli.cli_runner import Cli, Ran


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    return Cli(headrace_service)


@pytest.fixture
def mail(headrace_service: MemoryService) -> Queue:
    headrace_service.client.create_queue("mail")
    return headrace_service.client.get_queue("mail")


def advice(ran: Ran) -> list[str]:
    return [one["seen"] for one in ran.json if one["level"] != "ok"]


def test_a_service_with_nothing_wrong_is_exit_0(cli: Cli) -> None:
    cli("queue", "create", "mail")

    ran = cli("doctor", "--json")

    assert ran.code == 0
    assert {one["subject"] for one in ran.json} == {
        "service",
        "clock",
        "version",
        "key",
        "queue mail",
    }
    assert "settings and backlog are fine" in cli("doctor").out


@pytest.mark.parametrize("role", ["admin", "operator", "viewer", "producer", "worker"])
def test_it_knows_the_role_of_the_key(cli: Cli, role: str) -> None:
    ran = cli.as_role(role)("doctor", "--json")

    assert f"is known: {role}" in [one["seen"] for one in ran.json]
    assert ran.code == 0


def test_a_key_that_is_not_known_is_exit_4(cli: Cli) -> None:
    ran = Cli(cli.service, cli.service.connect("some-other-key"))("doctor", "--json")

    assert ran.code == 4
    assert ran.json[-1]["subject"] == "key"


def test_a_queue_that_is_missing_is_exit_3(cli: Cli) -> None:
    cli("queue", "create", "mail")

    ran = cli("doctor", "nope", "mail", "--json")

    assert ran.code == 3
    missing, there = ran.json[-2:]
    assert (missing["subject"], missing["level"]) == ("queue nope", "failed")
    assert missing["advice"] == "`headrace queue create nope`"
    assert (there["subject"], there["level"]) == ("queue mail", "ok")


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        (["--keepalive", "1"], "keepalive is 1 s"),
        (["--keepalive", "2"], "keepalive is 2 s"),
        (["--max-retries", "0"], "max_retries is 0"),
        (["--no-dead-letter"], "the dead-letter queue is off"),
        (["--dead-retention", "0"], "dead tasks are kept for 0 s"),
        (["--history", "0"], "history is 0"),
        (["--base", "10m", "--max-delay", "1m"], "max_delay (1 min) < base (10 min)"),
        (["--rate", "1/h"], "the rate limit is one task in 1 h"),
        (["--expires", "5m"], "tasks expire after 5 min, their retries take up to 11.4 min"),
    ],
)
def test_a_setting_that_will_hurt_is_told_with_the_command_that_mends_it(
    cli: Cli, settings: list[str], seen: str
) -> None:
    cli("queue", "create", "mail", *settings)

    ran = cli("doctor", "mail", "--json")

    assert ran.code == 1
    assert advice(ran) == [seen]
    assert all(one["advice"] for one in ran.json if one["level"] == "advice")
    assert seen in cli("doctor").out


def test_what_it_proposes_ends_the_advice(cli: Cli) -> None:
    cli(
        *("queue", "create", "mail", "--keepalive", "1", "--max-retries", "0", "--rate", "1/h"),
        *("--no-dead-letter", "--history", "0", "--base", "10m", "--max-delay", "1m"),
    )

    for command in re.findall(r"`(headrace queue edit .*?)`", cli("doctor", "--json").out):
        assert cli(*shlex.split(command)[1:]).code == 0

    assert cli("doctor").code == 0


@pytest.mark.parametrize(
    "settings",
    [
        ["--rate", "1/s"],
        ["--keepalive", "5"],
        ["--intervals", "1,2,3", "--max-delay", "1h"],
        ["--expires", "0"],
        ["--expires", "1h"],
    ],
)
def test_what_is_fine_is_left_alone(cli: Cli, settings: list[str]) -> None:
    cli("queue", "create", "mail", *settings)

    assert cli("doctor", "mail").code == 0


# ------------------------------------------------------------------------------------ the backlog


def seen_in(queue: Queue, workers: list[WorkerSeen] | None = None, **stats: Any) -> list[str]:
    assert queue.stats is not None
    now = msgspec.structs.replace(queue.stats, **stats)
    found = queue_advice(msgspec.structs.replace(queue, stats=now), workers, START)
    return [one.seen for one in found if one.level == "advice"]


def worker(command: str | None = None, **fields: Any) -> WorkerSeen:
    return WorkerSeen(
        **{
            "name": "w",
            "queues": ["mail"],
            "concurrency": 1,
            "running": [],
            "version": "",
            "started_at": START,
            "seen_at": START,
            "command": command,
            **fields,
        }
    )


def counts(queue: Queue, **fields: int) -> Any:
    assert isinstance(queue.stats, Stats)
    return msgspec.structs.replace(queue.stats.counts, **fields)


def test_a_backlog_without_workers_is_told(mail: Queue) -> None:
    old = {"age_of_oldest_ready_seconds": 300.0}

    assert seen_in(mail, [], **old) == ["a task has been ready for 5 min, and no worker is alive"]
    assert seen_in(mail, [worker(queues=["news"])], **old) == seen_in(mail, [], **old)
    gone = worker(seen_at=START - timedelta(seconds=76))
    quiet_for_a_while = worker(seen_at=START - timedelta(seconds=74))
    assert seen_in(mail, [quiet_for_a_while, gone], **old)[0].endswith("with 1 worker alive")
    assert seen_in(mail, [gone], **old) == seen_in(mail, [], **old)
    assert seen_in(mail, [worker()], **old) == [
        "a task has been ready for 5 min, with 1 worker alive"
    ]
    assert seen_in(mail, [worker("stop")], **old) == [
        "a task has been ready for 5 min, and every worker is asked to end"
    ]
    assert seen_in(mail, None, **old) == ["a task has been ready for 5 min"]
    assert seen_in(mail, [], age_of_oldest_ready_seconds=30.0) == []


def test_a_pause_with_tasks_waiting_is_told(mail: Queue) -> None:
    paused = msgspec.structs.replace(
        mail, dequeuing_settings=type(mail.dequeuing_settings)(dequeuing_paused=True)
    )

    assert seen_in(paused, [], counts=counts(mail, ready=3)) == ["paused, with 3 tasks due"]
    assert seen_in(paused, []) == []


def test_a_rate_near_what_the_shards_carry_is_told(mail: Queue) -> None:
    assert mail.stats is not None
    rates = msgspec.structs.replace(mail.stats.rates, enqueued_per_second=400.0)

    assert seen_in(mail, [], rates=rates) == ["400 tasks/s on 1 shard, good for 500"]
    assert seen_in(msgspec.structs.replace(mail, shards=2), [], rates=rates) == []


def test_retries_take_their_longest_waits_together() -> None:
    strategy = RetryStrategy(Backoff.FIXED, max_retries=3, base_seconds=10, jitter=0.5)

    assert horizon(strategy) == 45


def test_a_wrong_clock_is_reported_with_its_direction() -> None:
    assert skew_advice(START, START + timedelta(seconds=1)).level == "ok"
    assert skew_advice(START, START + timedelta(minutes=2)).seen == "2 min behind the service's"
    assert skew_advice(START + timedelta(hours=1), START).seen == "1 h ahead of the service's"


def test_two_versions_are_told() -> None:
    assert version_advice("1.0", "1.0").level == "ok"
    assert version_advice("1.0", "1.1").seen == "1.0 here, 1.1 there"


@pytest.mark.parametrize(
    ("parameters", "level"),
    [({}, "advice"), ({"KeepIndex": "true"}, "advice"), ({"KeepIndex": "false"}, "ok")],
    ids=["a stack older than the parameter", "an index that was kept", "a whole one"],
)
def test_an_older_index_is_named(parameters: dict[str, str], level: str) -> None:
    found = index_advice(parameters)

    assert (found.subject, found.level) == ("index", level)
    assert ("new stack" in found.advice) == (level == "advice")
