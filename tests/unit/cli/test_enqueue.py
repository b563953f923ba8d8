"""`headrace enqueue`: one task, or a file of any number."""

import json
import re
from typing import Any

import httpx2 as httpx
import pytest

from headrace import App
from headrace.domain import limits
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    made = Cli(headrace_service)
    made("queue", "create", "mail")
    return made


def payloads(cli: Cli) -> list[Any]:
    listed = cli("task", "list", "mail", "--payload", "--json")
    return [task["payload"] for task in listed.lines]


def test_one_task_prints_its_id_and_nothing_else(cli: Cli) -> None:
    ran = cli("enqueue", "mail", '{"to": "ada"}')

    assert (ran.code, ran.err) == (0, "")
    assert cli("task", "show", ran.out.strip(), "--json").json["payload"] == {"to": "ada"}


def test_every_field_of_a_task_has_an_option(cli: Cli) -> None:
    ran = cli(
        *("enqueue", "mail", "1", "--json", "--id", "order-1", "--dedupe-key", "k"),
        *("--delay", "10m", "--lease-seconds", "90s", "--max-retries", "2"),
        *("--expires-at", "2026-12-01T00:00:00Z", "--tag", "team=sales", "--tag", "x=a=b"),
    )

    made = ran.json
    task = made["task"]
    assert (made["outcome"], made["id"]) == ("CREATED", "order-1")
    assert task["scheduled_at"].startswith("2026-11-21T08:10:00")
    assert task["expires_at"].startswith("2026-12-01T00:00:00")
    assert task["keepalive_timeout_in_seconds"] == 90
    assert task["max_retries"] == 2
    assert task["dedupe_key"] == "k"
    assert task["tags"] == {"team": "sales", "x": "a=b"}


def test_a_call_of_a_function_is_the_payload_that_an_app_makes(cli: Cli) -> None:
    cli("enqueue", "mail", "--task", "mail.send", '{"to": "ada"}', "--id", "a")
    cli("enqueue", "mail", "--task", "mail.digest")
    app = App(queue="mail")

    @app.task(name="mail.send")
    def send(to: str) -> str:
        return f"sent to {to}"

    assert payloads(cli) == [
        {"task": "mail.send", "args": {"to": "ada"}},
        {"task": "mail.digest", "args": {}},
    ]
    cli.service.run(app)
    assert cli.service.client.get_task("a").result == "sent to ada"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a PAYLOAD, - for stdin, --payload-file, or --file"),
        (("--task", "mail.send", "[1]"), "must be the arguments by name"),
        (("hello",), "JSON text needs double quotes"),
        (
            ("1", "--delay", "1", "--scheduled-at", "+1h"),
            "give only one of --delay, --scheduled-at",
        ),
        (
            ("1", "--unique-for", "1h", "--dedupe-key", "k", "--id", "i"),
            "give only one of --id, --unique-for",
        ),
        (
            ("1", "--scheduled-at", "tomorrow"),
            "must be an instant, for example 2026-11-21T08:00:00Z",
        ),
        (("1", "--id", "a b"), "id"),
    ],
)
def test_what_makes_no_sense_is_said(cli: Cli, words: tuple[str, ...], message: str) -> None:
    ran = cli("enqueue", "mail", *words)

    assert ran.code == 2
    assert message in ran.err
    assert payloads(cli) == []


# ----------------------------------------------------------------------------------------- files


def ndjson(*values: Any) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


def from_stdin(cli: Cli, text: str | bytes, *words: str) -> Ran:
    return cli("enqueue", "mail", "--file", "-", *words, input=text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"paylod": 5}', "paylod is no field of a task"),
        (
            json.dumps({"payload": "x" * limits.PAYLOAD_BYTES}),
            "payload must be at most 262144 bytes",
        ),
        ("nope", "not JSON"),
    ],
)
def test_a_line_that_is_no_task_costs_the_others_nothing(cli: Cli, line: str, message: str) -> None:
    text = f'{{"payload": 1}}\n{line}\n{{"payload": 3}}\n'

    stopped = from_stdin(cli, text, "--tasks")

    assert stopped.code == 1
    assert stopped.error.startswith("line 2: ")
    assert message in stopped.error
    assert payloads(cli) == [1]
    assert from_stdin(cli, text, "--tasks", "--skip-bad", "--from-line", "2").code == 1
    assert payloads(cli) == [1, 3]


def test_a_dry_run_checks_every_line_and_sends_none(cli: Cli) -> None:
    big = json.dumps("x" * limits.PAYLOAD_BYTES)

    ran = from_stdin(cli, f"1\nnope\n{big}\n4\n", "--dry-run", "--skip-bad")

    assert ran.code == 1
    assert "line 2: not JSON" in ran.err
    assert "line 3: payload must be at most" in ran.err
    assert "Nothing was sent: 2 fine, 2 BAD." in ran.err
    assert payloads(cli) == []


def test_trouble_in_the_middle_says_how_far_it_came(cli: Cli) -> None:
    calls = 0

    def away(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += request.method == "POST"
        if calls > 1:
            return httpx.Response(403, json={"code": "forbidden", "detail": "not any more"})
        return cli.service.transport.handle_request(request)

    cut_off = Cli(cli.service, cli.service.connect(transport=httpx.MockTransport(away)))

    ran = cut_off("enqueue", "mail", "--file", "-", input=ndjson(*range(60)))

    assert ran.code == 4
    assert "Up to line 25: 25 CREATED, and perhaps a few more." in ran.err
    found = re.search(r"--run (\S+) to continue", ran.err)
    assert found is not None
    ran = cli("enqueue", "mail", "--file", "-", "--run", found[1], input=ndjson(*range(60)))
    assert "35 CREATED, 25 EXISTING" in ran.err
    assert cli.service.client.count_tasks("mail").count == 60
