"""`headrace dequeue` and `headrace report`: a worker of commands."""

import json
from typing import Any

import pytest

from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran


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


def test_a_program_gets_the_tasks_a_line_each_with_their_leases(cli: Cli) -> None:
    ran = cli("dequeue", "mail", "--count", "25", "--json", "--worker", "w-1")

    assert [(task["id"], task["payload"]) for task in ran.lines] == [
        (name, {"to": name}) for name in ("a", "b", "c")
    ]
    assert {task["worker"] for task in ran.lines} == {"w-1"}
    leases = [task["lease"] for task in ran.lines]
    assert len({lease["id"] for lease in leases}) == 3
    assert leases[0]["expires_at"].startswith("2026-11-21T08:00:30")


# ---------------------------------------------------------------------------------------- report


def test_a_success_keeps_its_result(cli: Cli) -> None:
    ran = report(cli, "succeeded", "--result", '{"sent": 1}')

    assert (ran.code, ran.out, ran.err) == (0, "", "Task a is SUCCEEDED.\n")
    assert shown(cli)["result"] == {"sent": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("done",), "'STATUS': 'done' is not one of 'succeeded', 'inflight', "),
        (("failed", "--result", "1"), "--result goes with SUCCEEDED"),
        (("moved",), "MOVED needs --to QUEUE"),
    ],
)
def test_a_report_that_makes_no_sense_changes_nothing(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    ran = report(cli, *words)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert shown(cli)["state"] == "INFLIGHT"
