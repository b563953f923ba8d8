"""`headrace dequeue` and `headrace report`: a worker of commands."""

import json
from typing import Any, get_args

import pytest

from headrace.cli.deliveries import ONLY_WITH
from headrace.cli.session import CliSession
from headrace.client.sending import Status
from headrace.http import report_bodies
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran, invoke

NOTHING = "Nothing to take: no task is due, or the queue is paused or at a limit.\n"


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    made = Cli(headrace_service)
    made("queue", "create", "mail", "--max-retries", "1")
    for name in ("a", "b", "c"):
        made("enqueue", "mail", json.dumps({"to": name}), "--id", name)
    return made


def take(cli: Cli, *words: str) -> Any:
    """Dequeue one task, as a program reads it."""
    (task,) = cli("dequeue", "mail", "--json", *words).lines
    return task


def report(cli: Cli, status: str, *words: str, task: Any = None, **more: Any) -> Ran:
    held = task or take(cli)
    return cli("report", "mail", held["id"], status, "--lease", held["lease"]["id"], *words, **more)


def shown(cli: Cli, id: str = "a") -> Any:
    return cli("task", "show", id, "--json").json


# --------------------------------------------------------------------------------------- dequeue


def test_a_person_sees_each_task_with_its_attempt_lease_and_payload(cli: Cli) -> None:
    ran = cli("dequeue", "mail", "--count", "2")

    head, _, first, second = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert head.split() == ["Task", "Attempt", "Lease", "Until", "Payload"]
    assert first.startswith("a     1 of 2   lse_")
    assert first.endswith('2026-11-21 08:00:30Z  {"to":"a"}')
    assert second.startswith("b ")


def test_a_program_gets_the_tasks_a_line_each_with_their_leases(cli: Cli) -> None:
    ran = cli("dequeue", "mail", "--count", "25", "--json", "--worker", "w-1")

    assert [(task["id"], task["payload"]) for task in ran.lines] == [
        (name, {"to": name}) for name in ("a", "b", "c")
    ]
    assert {task["worker"] for task in ran.lines} == {"w-1"}
    leases = [task["lease"] for task in ran.lines]
    assert len({lease["id"] for lease in leases}) == 3
    assert leases[0]["expires_at"].startswith("2026-11-21T08:00:30")


def test_several_queues_are_one_call(cli: Cli) -> None:
    cli("queue", "create", "urgent")
    cli("enqueue", "urgent", "1", "--id", "u")

    first = cli("dequeue", "urgent", "mail", "--count", "2", "--json").lines
    rest = cli("dequeue", "urgent", "mail", "--count", "2", "--order", "due")

    assert [(task["queue"], task["id"]) for task in first] == [("urgent", "u"), ("mail", "a")]
    head, _, *rows = rest.out.splitlines()
    assert head.split() == ["Queue", "Task", "Attempt", "Lease", "Until", "Payload"]
    assert [row.split()[:2] for row in rows] == [["mail", "b"], ["mail", "c"]]


def test_a_queue_that_is_missing_among_several_is_named(cli: Cli) -> None:
    ran = cli("dequeue", "mail", "nope")

    assert ran.code == 3
    assert "nope" in ran.err
    assert len(cli("dequeue", "mail", "--count", "25", "--json").lines) == 3


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_nothing_due_is_no_failure(cli: Cli, words: tuple[str, ...]) -> None:
    cli("queue", "create", "empty")

    ran = cli("dequeue", "empty", *words)

    assert (ran.code, ran.out, ran.err) == (0, "", NOTHING)
    assert cli("dequeue", "empty", "--quiet", *words).err == ""


def test_a_lease_lasts_as_long_as_was_said(cli: Cli) -> None:
    assert take(cli, "--keepalive", "5m")["lease"]["expires_at"].startswith("2026-11-21T08:05:00")


def test_tasks_may_be_taken_under_a_group_lease(cli: Cli) -> None:
    group = cli.service.client.open_lease().id

    held = take(cli, "--lease", group)

    assert held["lease"]["id"] == group
    assert report(cli, "succeeded", task=held).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--count", "26"), "26 is not in the range 1<=x<=25"),
        (("--wait", "21s"), "wait_seconds must be at most 20"),
        (("--wait", "20s", "--timeout", "20"), "--wait must be shorter than --timeout"),
        (("--wait", "soon"), "no length of time"),
        (("--keepalive", "13h"), "keepalive_timeout_in_seconds must be at most"),
    ],
)
def test_a_dequeue_that_makes_no_sense_takes_nothing(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    ran = cli("dequeue", "mail", *words)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert shown(cli)["attempts"] == 0


def test_a_queue_that_is_missing_is_exit_3(cli: Cli) -> None:
    ran = cli("dequeue", "nope")

    assert (ran.code, ran.err) == (
        3,
        "error: there is no queue nope: make it with `headrace queue create nope`\n",
    )


def test_a_group_lease_that_has_ended_is_exit_5(cli: Cli) -> None:
    group = cli.service.client.open_lease(keepalive_timeout_in_seconds=1).id
    cli.service.clock.forward(2)

    assert cli("dequeue", "mail", "--lease", group).code == 5


# ---------------------------------------------------------------------------------------- report


def test_a_success_keeps_its_result(cli: Cli) -> None:
    ran = report(cli, "succeeded", "--result", '{"sent": 1}')

    assert (ran.code, ran.out, ran.err) == (0, "", "Task a is SUCCEEDED.\n")
    assert shown(cli)["result"] == {"sent": 1}


def test_a_result_may_come_from_stdin(cli: Cli) -> None:
    assert report(cli, "succeeded", "--result", "-", input="[1,\n2]").code == 0
    assert shown(cli)["result"] == [1, 2]


def test_a_heartbeat_says_how_long_the_lease_lasts_now(cli: Cli) -> None:
    held = take(cli)
    cli.service.clock.forward(10)

    ran = report(cli, "INFLIGHT", "--progress", "0.4", "--keepalive", "60s", task=held)

    assert ran.err == "Task a is INFLIGHT, leased until 2026-11-21 08:01:10Z.\n"
    assert shown(cli)["progress"] == 0.4


def test_a_failure_is_tried_again_when_it_says(cli: Cli) -> None:
    why = ("--error", "no answer", "--error-type", "Timeout")

    ran = report(cli, "Failed", *why, "--delay", "10m")

    assert ran.err == "Task a is ENQUEUED, due 2026-11-21 08:10:00Z.\n"
    (error,) = shown(cli)["errors"]
    assert (error["type"], error["message"]) == ("Timeout", "no answer")


def test_a_failure_that_no_retry_mends_ends_the_task(cli: Cli) -> None:
    assert report(cli, "failed", "--not-retryable").err == "Task a is DEAD.\n"
    assert shown(cli)["dead_reason"] == "rejected"


def test_what_is_given_back_has_used_no_attempt(cli: Cli) -> None:
    assert report(cli, "released", "--delay", "0").code == 0
    assert (shown(cli)["state"], shown(cli)["attempts"]) == ("ENQUEUED", 0)


def test_a_move_takes_a_new_payload_and_tags_along(cli: Cli) -> None:
    cli("queue", "create", "later")

    ran = report(cli, "moved", "--to", "later", "--payload", "7", "--tag", "team=sales")

    assert ran.code == 0
    moved = shown(cli)
    assert (moved["queue"], moved["payload"], moved["tags"]) == ("later", 7, {"team": "sales"})


def test_what_a_queue_keeps_nothing_of_is_gone(cli: Cli) -> None:
    cli("queue", "edit", "mail", "--history", "0")
    cli.service.clock.forward(11)

    ran = report(cli, "succeeded")

    assert (ran.code, ran.err) == (0, "Task a is gone: its queue keeps nothing of it.\n")


def test_a_program_gets_the_result_as_the_api_gives_it(cli: Cli) -> None:
    message = report(cli, "inflight", "--json", "--quiet")

    assert message.err == ""
    assert (message.json["outcome"], message.json["state"]) == ("OK", "INFLIGHT")
    assert message.json["lease"]["expires_at"].startswith("2026-11-21T08:00:30")


def test_the_lease_may_stand_in_the_environment(cli: Cli) -> None:
    held = take(cli)
    env = {"HEADRACE_LEASE": held["lease"]["id"]}
    session = CliSession(given_client=cli.service.client, env=env)

    assert invoke("report", "mail", "a", "succeeded", session=session).code == 0
    assert shown(cli)["state"] == "SUCCEEDED"


def test_the_lease_of_a_task_is_not_taken_for_that_of_a_group(cli: Cli) -> None:
    env = {"HEADRACE_LEASE": take(cli)["lease"]["id"]}
    session = CliSession(given_client=cli.service.client, env=env)

    assert invoke("dequeue", "mail", session=session).code == 0


def test_a_report_that_changes_nothing_has_a_code_and_a_line(cli: Cli) -> None:
    held = take(cli)
    stale = {**held, "lease": take(cli)["lease"]}
    nowhere = {**held, "id": "nope"}

    lost = report(cli, "succeeded", task=stale)
    missing = report(cli, "succeeded", task=nowhere)
    astray = report(cli, "moved", "--to", "nope", task=held)
    report(cli, "released", task=held)
    waiting = report(cli, "succeeded", task=held)

    assert (lost.code, lost.err) == (5, "error: STALE_LEASE: the task is under another lease\n")
    assert (missing.code, missing.err) == (3, "error: NOT_FOUND: no such task in this queue\n")
    assert (astray.code, astray.err) == (
        1,
        "error: INVALID: to_queue: there is no queue nope\n",
    )
    assert (waiting.code, waiting.err) == (
        5,
        "error: STALE_LEASE: another report has settled this lease\n",
    )


def test_a_program_sees_why_a_report_changed_nothing(cli: Cli) -> None:
    lost = report(cli, "succeeded", "--json", task={**take(cli), "lease": take(cli)["lease"]})

    assert lost.code == 5
    assert lost.json["outcome"] == "STALE_LEASE"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("done",), "'STATUS': 'done' is not one of 'succeeded', 'inflight', "),
        (("failed", "--result", "1"), "--result goes with SUCCEEDED"),
        (("succeeded", "--error", "no"), "--error goes with FAILED"),
        (("succeeded", "--not-retryable"), "--not-retryable goes with FAILED"),
        (("succeeded", "--delay", "0"), "--delay goes with FAILED, RELEASED or MOVED"),
        (("released", "--tag", "a=b"), "--tag goes with MOVED"),
        (("moved",), "MOVED needs --to QUEUE"),
        (("succeeded", "--result", "{"), "--result: not JSON"),
        (("failed", "--delay", "soon"), "no length of time"),
        (("inflight", "--keepalive", "13h"), "keepalive_timeout_in_seconds must be at most"),
    ],
)
def test_a_report_that_makes_no_sense_changes_nothing(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    ran = report(cli, *words)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert shown(cli)["state"] == "INFLIGHT"


def test_without_a_lease_it_says_how_to_name_one(cli: Cli) -> None:
    ran = cli("report", "mail", "a", "succeeded")

    assert (ran.code, ran.error) == (2, "error: say which --lease, or set HEADRACE_LEASE")


def test_options_go_with_the_statuses_that_the_service_takes_them_with() -> None:
    fields = {
        "keepalive": "keepalive_timeout_in_seconds",
        "not_retryable": "retryable",
        "delay": "delay_in_seconds",
        "to": "to_queue",
        "error_type": "error",
    }
    taken = {
        name: tuple(map(str, statuses))
        for name, statuses in report_bodies._ONLY_WITH.items()  # noqa: SLF001 (no other way to ask)
    }

    assert {fields.get(name, name): statuses for name, statuses in ONLY_WITH.items()} == {
        name: statuses for name, statuses in taken.items() if name != "spawn"
    }
    assert {status for statuses in ONLY_WITH.values() for status in statuses} <= {*get_args(Status)}
