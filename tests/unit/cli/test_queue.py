"""`headrace queue`."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    return Cli(headrace_service)


def test_every_setting_has_an_option(cli: Cli) -> None:
    ran = cli(
        *("queue", "create", "mail", "--json", "--description", "letters"),
        *("--keepalive", "2m", "--expires", "7d", "--history", "0"),
        *("--max-retries", "3", "--backoff", "linear", "--base", "1.5s", "--max-delay", "1h"),
        *("--jitter", "0.2", "--max-inflight", "8", "--rate", "100/10s"),
        *("--dead-retention", "1d", "--dead-max-size", "500", "--shards", "4"),
        *("--aging", "2m"),
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
        "retention_period_in_seconds": 86_400,
        "max_size": 500,
    }
    assert made["shards"] == 4


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
    cli("queue", "create", "mail", "--keepalive", "77", "--shards", "2")
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
    edited = cli("queue", "edit", "mail", "--group-limit", "3", "--json").json["groups"]
    assert edited == {**usual, "max_inflight_per_group": 3}
    assert cli("enqueue", "mail", "1", "--group", "acme").code == 0
    (task,) = cli("task", "list", "mail", "--group", "acme", "--json").lines
    assert task["group_key"] == "acme"
    assert "'acme' is no weight" in cli("queue", "edit", "mail", "--groups", "fair:acme").err
    assert cli("queue", "edit", "mail", "--groups", "none", "--json").json["groups"] is None
