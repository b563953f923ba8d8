"""`headrace queue`."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli

URL = "https://example.com/tasks"


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    return Cli(headrace_service)


def test_settings_are_options_or_set_by_their_name(cli: Cli) -> None:
    ran = cli(
        *("queue", "create", "mail", "--json", "--description", "letters"),
        *("--lease-seconds", "2m", "--expires", "7d", "--history", "0"),
        *("--max-retries", "3", "--max-inflight", "8", "--rate", "100/10s", "--shards", "4"),
        *("--set", "retry_strategy.kind=linear", "--set", "retry_strategy.base_seconds=1.5s"),
        *("--set", "retry_strategy.jitter=0.2", "--set", "priority.aging_in_seconds=2m"),
        *("--set", "dead_letter_queue_config.max_size=500"),
    )

    made = ran.json
    assert made["description"] == "letters"
    assert made["priority"] == {"aging_in_seconds": 120}
    assert made["keepalive_timeout_in_seconds"] == 120
    assert made["expires_in_seconds"] == 604_800
    assert made["history_retention_in_seconds"] == 0
    assert made["retry_strategy"] == {
        "kind": "linear",
        "max_retries": 3,
        "base_seconds": 1.5,
        "max_delay_seconds": 3600,
        "jitter": 0.2,
        "intervals": [],
    }
    assert made["dequeuing_settings"]["max_inflight_tasks"] == 8
    assert made["dequeuing_settings"]["rate_limiting"] == {
        "max_tokens": 100,
        "interval": 10,
        "interval_unit": "SECONDS",
    }
    assert made["dead_letter_queue_config"] == {
        "enable": True,
        "retention_period_in_seconds": 1_209_600,
        "max_size": 500,
    }
    assert made["shards"] == 4


def test_an_unknown_setting_is_refused_with_the_nearest_name(cli: Cli) -> None:
    ran = cli("queue", "create", "mail", "--set", "shrads=2")

    assert (ran.code, "has no option shrads: did you mean shards?" in ran.err) == (2, True)


def test_an_edit_leaves_the_rest(cli: Cli) -> None:
    cli("queue", "create", "mail", "--rate", "50/s", "--max-inflight", "3", "--max-retries", "1")

    ran = cli("queue", "edit", "mail", "--rate", "none", "--set", "retry_strategy.jitter=0.5")

    assert ran.err == "Queue mail is changed; version 2.\n"
    shown = cli("queue", "show", "mail", "--json").json
    assert shown["dequeuing_settings"]["rate_limiting"] is None
    assert shown["dequeuing_settings"]["max_inflight_tasks"] == 3
    assert shown["retry_strategy"]["max_retries"] == 1
    assert shown["retry_strategy"]["jitter"] == 0.5


def test_what_show_prints_can_be_read_back(cli: Cli, tmp_path: Path) -> None:
    cli("queue", "create", "mail", "--lease-seconds", "77", "--shards", "2")
    kept = tmp_path / "queue.json"
    kept.write_text(cli("queue", "show", "mail", "--json").out)

    assert cli("queue", "create", "copy", "--from-file", str(kept), "--shards", "3").code == 0

    shown = cli("queue", "show", "copy", "--json").json
    assert (shown["keepalive_timeout_in_seconds"], shown["shards"]) == (77, 3)


def filled(cli: Cli) -> Cli:
    cli("queue", "create", "mail")
    cli("enqueue", "mail", "1")
    cli("enqueue", "mail", "2")
    return cli


@pytest.mark.parametrize("words", [("purge", "mail", "--state", "all"), ("delete", "mail")])
def test_what_destroys_is_not_done_unasked(cli: Cli, words: tuple[str, ...]) -> None:
    filled(cli)

    counted = cli("queue", *words, "--dry-run")
    refused = cli("queue", *words)
    mistyped = replace(cli, somebody=True)("queue", *words, input="mial\n")

    assert "ENQUEUED" in counted.out
    assert refused.code == 2
    assert "2 tasks" in refused.error
    assert "--yes" in refused.error
    assert mistyped.code == 1
    assert "nothing was done" in mistyped.err
    assert cli("task", "count", "mail", "--json").json["count"] == 2


def test_whoever_types_the_name_means_it(cli: Cli) -> None:
    filled(cli)

    purged = replace(cli, somebody=True)("queue", "purge", "mail", "--state", "all", input="mail\n")

    assert purged.code == 0
    assert "2 tasks" in purged.err
    assert cli("task", "count", "mail", "--json").json["count"] == 0


def test_groups_are_switched_on_and_off_by_their_option(cli: Cli) -> None:
    made = cli("queue", "create", "mail", "--groups", "fair:acme=4,a=b=0.5", "--json").json
    weights = {"acme": 4.0, "a=b": 0.5}
    usual = {"mode": "fair", "weights": weights, "on_dead": None}
    assert made["groups"] == {**usual, "max_inflight_per_group": 0}
    edited = cli(
        "queue", "edit", "mail", "--set", "groups.max_inflight_per_group=3", "--json"
    ).json["groups"]
    assert edited == {**usual, "max_inflight_per_group": 3}
    assert cli("enqueue", "mail", "1", "--group-key", "acme").code == 0
    (task,) = cli("task", "list", "mail", "--group-key", "acme", "--json").lines
    assert task["group_key"] == "acme"
    assert "'acme' must be a weight" in cli("queue", "edit", "mail", "--groups", "fair:acme").err
    assert cli("queue", "edit", "mail", "--groups", "none", "--json").json["groups"] is None


def test_a_target_is_set_changed_and_removed(cli: Cli) -> None:
    cli("queue", "create", "hooks", "--target-url", URL, "--set", 'target.headers={"A": "b"}')
    edit = ("queue", "edit", "hooks", "--json", "--set")
    edited = cli(*edit, "target.max_concurrency=7").json["target"]
    assert (edited["url"], edited["max_concurrency"], edited["headers"]) == (URL, 7, {"A": "b"})
    assert cli("queue", "edit", "hooks", "--set", "target.lambda=arn").code == 2
    assert cli(*edit, "target=null").json["target"] is None


def test_a_queue_is_notified_of_ends(cli: Cli) -> None:
    cli("queue", "create", "ends")
    made = cli("queue", "create", "mail", "--json", "--on-end", "ends").json["on_end"]
    assert made == {"queue": "ends", "states": ["SUCCEEDED", "DEAD"]}
    edited = cli("queue", "edit", "mail", "--json", "--on-end", "ends:dead").json["on_end"]
    assert edited == {"queue": "ends", "states": ["DEAD"]}
    assert "on_end.queue" in cli("queue", "show", "mail").out
    assert cli("queue", "edit", "mail", "--json", "--on-end", "none").json["on_end"] is None
    for wrong in ("ends:LOST", "mail", "nowhere"):
        assert cli("queue", "edit", "mail", "--on-end", wrong).code != 0


def test_alerts_are_shown_while_they_are_on(cli: Cli, headrace_service: MemoryService) -> None:
    cli("queue", "create", "ops")
    alerts = ("--set", "alerts.queue=ops", "--set", "alerts.oldest_ready_seconds=1m")
    assert cli("queue", "create", "mail", *alerts).code == 0
    headrace_service.client.enqueue("mail", 1)
    headrace_service.forward(61)

    assert "alert oldest ready 1 min" in " ".join(cli("queue", "show", "mail").out.split())
    assert "oldest ready 1 min" in cli("queue", "list").out
    assert cli("queue", "edit", "mail", "--json", "--set", "alerts=null").json["alerts"] is None


def test_the_secret_is_shown_and_rotated(cli: Cli) -> None:
    cli("queue", "create", "hooks", "--target-url", URL)
    first = cli("queue", "secret", "hooks")
    assert first.out.startswith("whsec_")
    rotated = cli("queue", "secret", "hooks", "--rotate")
    assert rotated.out != first.out
    assert first.out.strip() in rotated.err
    assert "is valid until" in rotated.err
    assert cli("queue", "secret", "hooks", "--json").json["secret"] == rotated.out.strip()
