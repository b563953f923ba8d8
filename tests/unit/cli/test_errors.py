"""What goes wrong is one line and an exit code, or one JSON document."""

import json
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from headrace.cli.session import CliSession, Exit
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, Ran, invoke

SERVICE = {"HEADRACE_URL": "https://queue.test", "HEADRACE_KEY": "a-key"}
SHOW = ("task", "show", "tsk_1")


def answered(status: int, code: str, *options: str, **more: Any) -> Ran:
    """Run a command whose call is refused."""
    body = {"status": status, "code": code, "detail": "so it is", **more}
    transport = httpx.MockTransport(lambda _: httpx.Response(status, json=body))
    return invoke(*SHOW, *options, session=CliSession(env=SERVICE, transport=transport, retries=0))


def raised(error: BaseException, *options: str) -> Ran:
    """Run a command that raises *error* while it calls the service."""

    def answer(_: httpx.Request) -> httpx.Response:
        raise error

    session = CliSession(env=SERVICE, transport=httpx.MockTransport(answer), retries=0)
    return invoke(*SHOW, *options, session=session)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "invalid_request", 2),
        (413, "payload_too_large", 2),
        (404, "not_found", 3),
        (403, "forbidden", 4),
        (409, "version_mismatch", 5),
        (429, "rate_limited", 6),
        (503, "unavailable", 6),
        (500, "internal_error", 6),
    ],
)
def test_every_error_has_its_exit_code(status: int, code: str, expected: int) -> None:
    ran = answered(status, code)
    as_json = answered(status, code, "--json", request_id="req-1")

    assert (ran.code, ran.out) == (expected, "")
    assert ran.error.startswith("error: ")
    error = json.loads(as_json.err)["error"]
    assert (as_json.code, as_json.out) == (expected, "")
    assert (error["code"], error["request_id"]) == (code, "req-1")


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (["queue", "create"], "name"),
        (["task", "list", "mail", "--limit", "many"], "--limit"),
        (["nonsense"], None),
    ],
)
def test_a_wrong_command_line_names_the_option(command: list[str], field: str | None) -> None:
    ran = invoke(*command, "--json", session=CliSession(env={}))

    error = json.loads(ran.err)["error"]
    assert (ran.code, error["code"], error["request_id"]) == (2, "invalid_request", None)
    assert [each["field"] for each in error["errors"]] == ([field] if field else [])


def test_an_unexpected_error_is_one_line_unless_debug_is_on() -> None:
    ran = raised(KeyError("x"))

    assert ran.code == Exit.FAILED
    assert ran.err == "error: unexpected KeyError: 'x'; --debug shows the traceback\n"
    with pytest.raises(KeyError):
        raised(KeyError("x"), "--debug")


@pytest.mark.parametrize(
    ("env", "words", "named"),
    [
        ({"HEADRACE_KEY": "k"}, (), ["HEADRACE_URL", "`headrace run`"]),
        ({"HEADRACE_URL": "http://x.test"}, (), ["HEADRACE_KEY", "--key-file"]),
        (
            {"HEADRACE_URL": "http://x.test"},
            ("--key-file", "/no/such"),
            ["--key-file /no/such: No such file or directory"],
        ),
    ],
)
def test_what_is_missing_says_how_to_name_it(
    env: dict[str, str], words: tuple[str, ...], named: list[str]
) -> None:
    ran = invoke("queue", "list", *words, session=CliSession(env=env))

    assert ran.code == Exit.USAGE
    assert all(name in ran.err for name in named)


def test_a_service_that_does_not_answer_is_named_by_its_address() -> None:
    env = {"HEADRACE_URL": "http://127.0.0.1:9", "HEADRACE_KEY": "a-key"}
    why = "gave no answer (connection refused): is it running? see"

    ran = invoke("stats", session=CliSession(env=env, retries=0))
    other = invoke("stats", "--url", "http://127.0.0.1:7", session=CliSession(env=env, retries=0))

    assert (ran.code, ran.err) == (6, f"error: http://127.0.0.1:9 {why} HEADRACE_URL\n")
    assert other.err == f"error: http://127.0.0.1:7 {why} --url\n"


@pytest.mark.parametrize(("words", "meant"), [(["taks"], "task"), (["task", "lst"], "list")])
def test_a_mistyped_command_is_told_which_was_meant(words: list[str], meant: str) -> None:
    ran = invoke(*words, session=CliSession(env={}))

    assert ran.code == Exit.USAGE
    assert f"'{meant}'" in ran.error.partition("Did you mean")[2]


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--at", "scheduled-at"), ("--countdown", "delay"), ("--dely", "delay"), ("--key-", "key")],
)
def test_an_option_of_another_name_is_told_which_was_meant(option: str, meant: str) -> None:
    ran = invoke("enqueue", "mail", "1", option, "x", session=CliSession(env={}))

    assert ran.code == Exit.USAGE
    assert f"No such option '{option}'. Did you mean --{meant}" in ran.error


def test_global_options_may_stand_anywhere_and_the_rightmost_wins(
    headrace_service: MemoryService,
) -> None:
    for place in range(3):
        words = ["queue", "list"]
        words.insert(place, "--json")
        assert Cli(headrace_service)(*words).json == []
    session = CliSession(given_client=headrace_service.client, env={})

    invoke("--url", "http://a.test", "key", "--url", "http://b.test", "list", session=session)

    assert session.url == "http://b.test"


def test_the_key_can_come_from_a_file(tmp_path: Path) -> None:
    kept = tmp_path / "key"
    kept.write_text("a-secret\nmore\n")
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["Authorization"])
        return httpx.Response(200, json={"queues": [], "cursor": None})

    session = CliSession(
        key_file=str(kept), env=SERVICE, transport=httpx.MockTransport(answer), retries=0
    )
    invoke("queue", "list", session=session)

    assert sent == ["Bearer a-secret"]
    assert "a-secret" not in repr(session)


def test_a_missing_queue_is_refused_with_the_nearest_name(headrace_service: MemoryService) -> None:
    cli = Cli(headrace_service)
    cli("queue", "create", "mail")

    ran = cli("enqueue", "mial", "{}")

    assert ran.code == 3
    assert "there is no queue mial: did you mean mail?" in ran.error
