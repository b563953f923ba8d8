"""`headrace queue`: targets as options, and the secret that signs what they get."""

import pytest

from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli

URL = "https://example.com/tasks"


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    return Cli(headrace_service)


def test_one_option_changes_no_other_and_no_target_ends_it(cli: Cli) -> None:
    cli("queue", "create", "hooks", "--target-url", URL, "--target-header", "A=b")
    edited = cli("queue", "edit", "hooks", "--json", "--target-concurrency", "7").json["target"]
    assert (edited["url"], edited["max_concurrency"], edited["headers"]) == (URL, 7, {"A": "b"})
    both = cli("queue", "edit", "hooks", "--target-url", URL, "--target-lambda", "arn")
    assert both.code == 2
    assert cli("queue", "edit", "hooks", "--json", "--no-target").json["target"] is None


def test_who_is_told_of_ends_is_an_option_too(cli: Cli) -> None:
    cli("queue", "create", "ends")
    made = cli("queue", "create", "mail", "--json", "--on-end", "ends").json["on_end"]
    assert made == {"queue": "ends", "states": ["SUCCEEDED", "DEAD"]}
    edited = cli("queue", "edit", "mail", "--json", "--on-end", "ends:dead").json["on_end"]
    assert edited == {"queue": "ends", "states": ["DEAD"]}
    assert "on_end.queue" in cli("queue", "show", "mail").out
    assert cli("queue", "edit", "mail", "--json", "--on-end", "none").json["on_end"] is None
    for wrong in ("ends:LOST", "mail", "nowhere"):
        assert cli("queue", "edit", "mail", "--on-end", wrong).code != 0


def test_alerts_are_an_option_and_shown_while_they_are_on(
    cli: Cli, headrace_service: MemoryService
) -> None:
    cli("queue", "create", "ops")
    every = "ops:oldest=5m,dead=10,silent=2m"
    made = cli("queue", "create", "mail", "--json", "--alert", every).json["alerts"]
    assert made == {
        "queue": "ops",
        "oldest_ready_seconds": 300,
        "dead_per_minute": 10,
        "no_workers_for_seconds": 120,
    }
    edited = cli("queue", "edit", "mail", "--json", "--alert", "ops:oldest=60").json["alerts"]
    assert edited == {**dict.fromkeys(made), "queue": "ops", "oldest_ready_seconds": 60}
    headrace_service.client.enqueue("mail", 1)
    headrace_service.forward(61)
    stats = headrace_service.client.get_queue("mail").stats
    assert stats is not None
    assert stats.alerts
    assert "alert oldest ready 1 min" in " ".join(cli("queue", "show", "mail").out.split())
    assert cli("queue", "edit", "mail", "--json", "--alert", "none").json["alerts"] is None
    assert "QUEUE:oldest" in cli("queue", "edit", "mail", "--alert", "oldest=1").err


def test_the_secret_is_shown_and_rotated(cli: Cli) -> None:
    cli("queue", "create", "hooks", "--target-url", URL)
    first = cli("queue", "secret", "hooks")
    assert first.out.startswith("whsec_")
    rotated = cli("queue", "secret", "hooks", "--rotate")
    assert rotated.out != first.out
    assert first.out.strip() in rotated.err
    assert "signs too until" in rotated.err
    assert cli("queue", "secret", "hooks", "--json").json["secret"] == rotated.out.strip()
