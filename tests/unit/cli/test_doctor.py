"""`headrace doctor`: what it advises, and what it leaves alone."""

import re
import shlex
from datetime import timedelta

import pytest

from headrace.cli.doctor import skew_advice
from headrace.testing import MemoryService
from headrace.testing.clock import START
from tests.unit.cli.cli_runner import Cli, Ran

RETRY = "retry_strategy"


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    return Cli(headrace_service)


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
        (["--lease-seconds", "1"], "leases last 1 s"),
        (
            ["--set", f"{RETRY}.base_seconds=10m", "--set", f"{RETRY}.max_delay_seconds=1m"],
            "max_delay (1 min) < base (10 min)",
        ),
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
        *("queue", "create", "mail", "--lease-seconds", "1", "--max-retries", "0", "--rate", "1/h"),
        *("--set", "dead_letter_queue_config.enable=false", "--history", "0"),
        *("--set", f"{RETRY}.base_seconds=10m", "--set", f"{RETRY}.max_delay_seconds=1m"),
    )

    for command in re.findall(r"`(headrace queue edit .*?)`", cli("doctor", "--json").out):
        assert cli(*shlex.split(command)[1:]).code == 0

    assert cli("doctor").code == 0


# ------------------------------------------------------------------------------------ the backlog


def test_a_wrong_clock_is_reported_with_its_direction() -> None:
    assert skew_advice(START, START + timedelta(seconds=1)).level == "ok"
    assert skew_advice(START, START + timedelta(minutes=2)).seen == "2 min behind the service's"
    assert skew_advice(START + timedelta(hours=1), START).seen == "1 h ahead of the service's"


def test_a_backlog_and_a_pause_are_told(cli: Cli) -> None:
    cli("queue", "create", "mail")
    cli("enqueue", "mail", "1")
    cli.service.forward(300)

    waiting = advice(cli("doctor", "mail", "--json"))
    cli("queue", "pause", "mail")
    paused = advice(cli("doctor", "mail", "--json"))

    assert waiting == ["a task has been ready for 5 min, and no worker is alive"]
    assert paused == ["paused, with 1 task due"]
