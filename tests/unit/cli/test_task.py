"""`headrace task`, in every state of what it looks at and changes.

Long, because it is a test for each of its many subcommands and options.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from headrace.client.sending import Failure, Report
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    made = Cli(headrace_service)
    made("queue", "create", "mail", "--max-retries", "1")
    return made


def put(cli: Cli, *ids: str, **fields: Any) -> None:
    for id in ids:
        cli.service.client.enqueue("mail", {"to": id}, id=id, **fields)
    cli.service.clock.forward(0.001)


def end(cli: Cli, status: Any, **fields: Any) -> str:
    """Take one task and report on it."""
    (task,) = cli.service.client.dequeue("mail", worker="w-1").tasks
    report = Report(task_id=task.id, lease_id=task.lease.id, status=status, **fields)
    cli.service.client.report("mail", [report])
    return task.id


def test_show_tells_a_tasks_whole_story(cli: Cli) -> None:
    put(cli, "a", tags={"team": "sales"}, dedupe_key="k")
    why = Failure(type="TimeoutError", message="no answer\x1b[2J", detail="Traceback …\nlast line")
    end(cli, "FAILED", error=why, retryable=False)

    shown = cli("task", "show", "a").out

    assert "DEAD (rejected)" in shown
    assert "1 of 2" in shown
    assert "team=sales" in shown
    assert "failed at 2026-11-21 08:00:00Z by w-1: TimeoutError: no answer\\x1b[2J" in shown
    assert '"to": "a"' in shown
    assert shown.endswith("last line\n")
    assert cli("task", "show", "a", "--json", "--no-payload").json["payload"] is None


def test_a_list_has_the_first_and_says_that_there_are_more(cli: Cli) -> None:
    put(cli, *(f"t-{n:02}" for n in range(60)))

    table = cli("task", "list", "mail")

    assert table.out.count("READY") == 50
    assert "There are more" in table.err
    assert cli("task", "list", "mail", "--limit", "3").out.count("READY") == 3
    assert cli("task", "list", "mail", "--limit", "60").err == ""
    assert len(cli("task", "list", "mail", "--json").lines) == 60
    assert len(cli("task", "list", "mail", "--json", "--limit", "7").lines) == 7


def test_filters_are_the_apis_own(cli: Cli) -> None:
    put(cli, "a", tags={"team": "sales"})
    put(cli, "b", delay_in_seconds=60)
    put(cli, "c")
    first = end(cli, "FAILED", error=Failure(message="Timed OUT"), retryable=False)

    def ids(*filters: str) -> list[str]:
        return [task["id"] for task in cli("task", "list", "mail", "--json", *filters).lines]

    assert first == "a"
    assert ids("--state", "dead") == ["a"]
    assert ids("--state", "ready,scheduled") == ["c", "b"]
    assert ids("--state", "READY", "--state", "failed") == ["c", "a"]
    assert ids("--error", "timed out") == ["a"]
    assert ids("--tag", "team=sales") == ["a"]
    assert ids("--worker", "w-1") == ["a"]
    assert ids("--min-attempts", "1") == ["a"]
    assert ids("--scheduled-after", "2026-11-21T08:00:30Z") == ["b"]
    assert ids("--scheduled-before", "2026-11-21T08:00:30Z", "--state", "pending") == ["c"]
    assert ids("--order", "desc", "--state", "pending") == ["b", "c"]
    assert cli("task", "count", "mail", "--state", "pending", "--json").json["count"] == 2
    assert "total" in cli("task", "count", "mail").out


# ------------------------------------------------------------------------------ changing by hand


def test_tasks_are_deleted_by_id_wherever_they_are(cli: Cli) -> None:
    put(cli, "a", "b")
    cli("queue", "create", "news")
    cli("enqueue", "news", "1", "--id", "c")

    ran = cli("task", "delete", "a", "c")

    assert ran.code == 0
    said, *undos = ran.err.splitlines()
    assert said == "2 tasks deleted."
    assert cli("task", "show", "c").code == 3
    assert len(undos) == 2, "one for each queue"
    for line in undos:
        (words,) = re.findall(r"^Until 2026-11-22 08:00:00Z `headrace (undo und_\w+)` brings", line)
        assert cli(*words.split()).err == "1 task restored.\n"
        again = cli(*words.split())
        left = "No other task was left to restore: this undo was done before."
        assert (again.code, again.err.splitlines()) == (0, ["0 tasks restored.", left])
    assert cli("task", "delete", "a", "c", "--undo-for", "0").err == "2 tasks deleted.\n"
    assert cli("task", "count", "mail", "--json").json["count"] == 1


def test_a_filter_means_exactly_those_tasks(cli: Cli) -> None:
    put(cli, "a", "b", tags={"team": "sales"})
    put(cli, "c")
    chosen = ("--queue", "mail", "--tag", "team=sales")

    dry = cli("task", "delete", *chosen, "--dry-run")
    unasked = cli("task", "delete", *chosen)
    refused = replace(cli, somebody=True)("task", "delete", *chosen, input="n\n")

    assert (dry.code, dry.err) == (0, "2 tasks would be deleted.\n")
    assert unasked.code == 2
    assert "(tags team=sales) will be deleted; for 1 d an undo can bring them back." in unasked.err
    assert refused.code == 1
    assert cli("task", "count", "mail", "--json").json["count"] == 3
    assert replace(cli, somebody=True)("task", "delete", *chosen, input="y\n").code == 0
    assert [task["id"] for task in cli("task", "list", "mail", "--json").lines] == ["c"]
    assert (
        cli("task", "delete", "--queue", "mail", "--all", "--yes", "--undo-for", "0").err
        == "1 task deleted.\n"
    )


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "no tasks are named: give ids, or --queue"),
        (("a", "--state", "DEAD"), "give ids or filters, not both"),
    ],
)
def test_no_tasks_are_meant_by_accident(cli: Cli, words: tuple[str, ...], answer: str) -> None:
    for verb in (("delete", "--yes"), ("trigger",), ("restart",), ("move", "--to", "news")):
        ran = cli("task", *verb, *words)

        assert ran.code == 2
        assert answer in ran.err


# ------------------------------------------------------------------------------------------ tail


def test_wait_prints_the_result_of_a_task_that_succeeded(cli: Cli) -> None:
    put(cli, "a", "b")
    end(cli, "SUCCEEDED", result={"sent": 1})
    end(cli, "SUCCEEDED")

    done = cli("task", "wait", "a")

    assert (done.code, done.out, done.err) == (0, '{\n  "sent": 1\n}\n', "")
    assert cli("task", "wait", "b").out == ""
    assert cli("task", "wait", "a", "--json").json["state"] == "SUCCEEDED"


def test_wait_ends_with_8_when_time_is_over_and_with_3_for_what_is_not_there(cli: Cli) -> None:
    put(cli, "a")

    over = cli("task", "wait", "a", "--for", "1m")

    assert over.code == 8
    assert over.err == "error: task a has not ended within 60 s: it is ENQUEUED\n"
    assert cli("task", "wait", "a", "--for", "1s", "--json").code == 8
    assert cli("task", "wait", "nope").code == 3
