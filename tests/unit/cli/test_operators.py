"""`headrace schedule`, `key`, `worker`, `audit` and `stats`."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.domain.errors import Unauthenticated
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    made = Cli(headrace_service)
    made("queue", "create", "mail")
    return made


# ------------------------------------------------------------------------------------- schedules


def test_a_schedule_is_put_and_shown(cli: Cli) -> None:
    put = cli(
        *("schedule", "put", "mail", "digest", "--cron", "0 8 * * MON", "--json"),
        *("--missed", "skip", "--on-expiry", "drop", "--dedupe-until", "start"),
        *("--timezone", "Europe/Madrid", "--payload", '{"kind": "digest"}', "--tag", "a=b"),
        *("--expires", "1h", "--lease-seconds", "2m", "--max-retries", "1", "--dedupe-key", "d"),
    )

    assert put.code == 0
    shown = cli("schedule", "show", "mail", "digest", "--json").json
    assert shown == put.json
    assert shown["payload"] == {"kind": "digest"}
    assert shown["expires_in_seconds"] == 3600
    assert shown["retry_strategy"]["max_retries"] == 1
    assert (shown["missed"], shown["on_expiry"]) == ("skip", "drop")
    assert shown["dedupe_until"] == "start"
    assert "Europe/Madrid" in cli("schedule", "show", "mail", "digest").out


def test_a_schedule_runs_by_hand_and_is_deleted_when_that_is_meant(cli: Cli) -> None:
    cli("schedule", "put", "mail", "digest", "--every", "1h", "--payload", '"now"')

    made = cli("schedule", "trigger", "mail", "digest").out.strip()

    assert cli("task", "show", made, "--json").json["payload"] == "now"
    assert "digest" in cli("schedule", "delete", "mail", "digest", "--dry-run").out
    assert cli("schedule", "delete", "mail", "digest").code == 2
    assert replace(cli, somebody=True)("schedule", "delete", "mail", "digest", input="n").code == 1
    assert cli("schedule", "delete", "mail", "digest", "-y").code == 0
    assert cli("schedule", "delete", "mail", "digest", "-y").code == 3


# ------------------------------------------------------------------------------------------ keys


def test_a_secret_stands_alone_on_stdout_and_is_shown_once(cli: Cli) -> None:
    ran = cli("key", "create", "ci", "--role", "producer", "--queue", "mail*,news")

    assert re.fullmatch(r"hr_\S+\n", ran.out)
    assert ran.out.strip() not in ran.err
    assert cli.service.connect(ran.out.strip()).enqueue("mail", 1).outcome == "CREATED"
    (listed,) = cli("key", "list", "--json").json
    assert listed["queues"] == ["mail*", "news"]
    assert ran.out.strip() not in cli("key", "list", "--json").out + cli("key", "list").out
    assert cli("key", "create", "x", "--role", "viewer", "--queue", "*", "-q").err == ""
    made = cli("key", "create", "y", "--role", "viewer", "--queue", "*", "--json").json
    assert made["secret"].startswith("hr_")


def test_a_key_is_rotated_and_its_new_secret_stands_alone_on_stdout(cli: Cli) -> None:
    made = cli("key", "create", "ci", "--role", "producer", "--queue", "*", "--json").json

    ran = cli("key", "rotate", made["id"], "--overlap", "1h")

    assert re.fullmatch(r"hr_\S+\n", ran.out)
    assert f"Key {made['id']} is rotated; the old secret is valid for 1 h more." in ran.err
    for secret in (made["secret"], ran.out.strip()):
        assert cli.service.connect(secret).enqueue("mail", 1).outcome == "CREATED"
    again = cli("key", "rotate", made["id"], "--json").json
    assert again["id"] == made["id"]
    with pytest.raises(Unauthenticated):
        cli.service.connect(ran.out.strip()).enqueue("mail", 1)
    assert cli("key", "rotate", "key_none").code == 3
    assert cli("key", "rotate", made["id"], "--overlap", "2d").code == 2


# ----------------------------------------------------------------------------------------- audit


def test_the_audit_says_who_changed_what(cli: Cli) -> None:
    cli("queue", "pause", "mail")
    cli.service.clock.forward(timedelta(hours=2))
    cli("queue", "resume", "mail")

    def actions(*filters: str) -> list[str]:
        return [entry["action"] for entry in cli("audit", "list", "--json", *filters).lines]

    assert actions() == ["resume", "pause", "create_queue"]
    assert actions("--action", "pause") == ["pause"]
    assert actions("--since", "2026-11-21T09:00:00Z") == ["resume"]
    assert actions("--until", "2026-11-21T09:00:00Z", "--limit", "1") == ["pause"]
    table = cli("audit", "list", "--limit", "2")
    assert "resume" in table.out
    assert "create_queue" not in table.out
    assert "There are more" in table.err


# ----------------------------------------------------------------------------------------- stats


def test_watched_counts_are_a_line_for_a_program_each_time(cli: Cli) -> None:
    words = ("stats", "mail", "--watch", "--interval", "1ms", "--looks", "3")

    assert len(cli(*words, "--json").lines) == 3


# -- headrace api ----------------------------------------------------------------------------------


def test_a_script_enqueues_dequeues_and_reports(headrace_service: MemoryService) -> None:
    cli = Cli(headrace_service)
    cli("queue", "create", "mail")

    cli("api", "POST", "/v1/queues/mail/tasks", '{"tasks": [{"id": "a", "payload": {"n": 1.0}}]}')
    taken = cli("api", "post", "/v1/queues/mail/dequeue", "-", input='{"worker": "script"}')
    [task] = taken.json["tasks"]
    report = f'{{"task_id": "a", "lease_id": "{task["lease"]["id"]}", "status": "SUCCEEDED"}}'
    cli("api", "POST", "/v1/queues/mail/reports", f'{{"reports": [{report}]}}')

    assert '"n": 1.0' in taken.out
    found = cli("api", "GET", "/v1/queues/mail/tasks?state=SUCCEEDED")
    assert [one["id"] for one in found.json["tasks"]] == ["a"]


def test_a_refusal_has_the_exit_code_of_its_kind(headrace_service: MemoryService) -> None:
    cli = Cli(headrace_service)

    assert cli("api", "GET", "/v1/queues/nowhere").code == 3
    assert cli("api", "GET", "v1/queues").code == 2
    assert cli("api", "POST", "/v1/queues", "{no json").code == 2
    assert cli("api", "DELETE", "/v1/tasks/nothing").code == 3
