"""What goes wrong is one line and an exit code, or one JSON document."""

import json
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.cli.session import CliSession, Exit, Failed, exit_of
from headrace.client.http import refusal
from headrace.domain import errors
from headrace.domain.errors import FieldError, HeadraceError
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli, invoke


def failing(error: BaseException) -> CliSession:
    return CliSession(given_client=Mock(**{"get_task.side_effect": error}), env={})


def show(error: BaseException, *options: str) -> Any:
    return invoke("task", "show", "tsk_1", *options, session=failing(error))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidRequest, 2),
        (errors.PayloadTooLarge, 2),
        (errors.NotFound, 3),
        (errors.Forbidden, 4),
        (errors.QueueExists, 5),
        (errors.VersionMismatch, 5),
        (errors.Inflight, 5),
        (errors.LeaseLost, 5),
        (errors.RateLimited, 6),
        (errors.Unavailable, 6),
        (HeadraceError, 1),
    ],
)
def test_every_error_has_its_exit_code(kind: type[HeadraceError], code: int) -> None:
    ran = show(kind("so it is"))

    assert (ran.code, ran.out, ran.err) == (code, "", "error: so it is\n")
    assert exit_of(kind("")) == code


def test_a_key_that_is_not_known_says_where_it_came_from() -> None:
    ran = show(errors.Unauthenticated("the key is not known"))

    assert (ran.code, ran.err) == (4, "error: the key is not known; see HEADRACE_KEY\n")


def test_over_tables_the_credentials_are_those_of_aws() -> None:
    session = failing(errors.Unauthenticated("AWS takes no call without credentials"))
    session.url = "dynamodb://eu-west-1/headrace-prod"

    ran = invoke("task", "show", "tsk_1", session=session)

    assert ran.code == Exit.NOT_ALLOWED
    assert ran.err.endswith("; see AWS_PROFILE, or the role of this machine\n")


def test_fields_that_the_detail_does_not_name_are_told() -> None:
    message = [FieldError("tags", "at most 10"), FieldError("id", "taken")]

    ran = show(errors.InvalidRequest("2 fields are wrong: tags at most 10", errors=message))

    assert ran.err == "error: 2 fields are wrong: tags at most 10; id taken\n"


def test_trouble_of_the_service_names_the_request_to_ask_for() -> None:
    error = errors.Unavailable("the table is away")
    error.request_id = "req-1"

    assert show(error).err == "error: the table is away; request req-1\n"


def test_with_json_an_error_is_a_document_on_stderr() -> None:
    ran = show(errors.NotFound("no task", errors=[FieldError("id", "unknown")]), "--json")

    assert ran.code == Exit.NOT_FOUND
    assert json.loads(ran.err) == {
        "error": {
            "code": "not_found",
            "detail": "no task; id unknown",
            "errors": [{"field": "id", "message": "unknown"}],
            "request_id": None,
        }
    }


def told(*args: str, session: CliSession) -> tuple[int, dict[str, Any]]:
    """The exit code, and the one error document on stderr."""
    ran = invoke(*args, "--json", session=session)
    assert ran.out == ""
    return ran.code, json.loads(ran.err)["error"]


@pytest.mark.parametrize(
    ("command", "code", "name", "field"),
    [
        (["queue", "show", "missing"], 3, "not_found", None),
        (["queue", "create", "mail"], 5, "queue_exists", None),
        (["queue", "create", "_"], 2, "invalid_request", "name"),
        (["task", "show", "tsk_1"], 3, "not_found", None),
    ],
)
def test_with_json_an_error_has_the_apis_code_request_and_fields(
    command: list[str], code: int, name: str, field: str | None
) -> None:
    with MemoryService() as service:
        service.client.create_queue("mail")
        session = CliSession(given_client=service.client, env={}, now=service.clock)
        ended, error = told(*command, session=session)

    assert (ended, error["code"]) == (code, name)
    assert error["request_id"]
    assert field is None or field in [each["field"] for each in error["errors"]]


def test_a_key_that_may_not_has_the_apis_code_too() -> None:
    with MemoryService() as service:
        key = service.client.create_key("looks", "viewer", ["*"]).secret
        session = CliSession(given_client=service.connect(str(key)), env={})

        code, error = told("queue", "create", "mail", session=session)

    assert (code, error["code"]) == (4, "forbidden")


def test_a_code_that_the_command_does_not_know_is_passed_on() -> None:
    error = refusal(500, b'{"code": "internal_error", "request_id": "req-1"}', where="GET /")

    code, shown = told("task", "show", "tsk_1", session=failing(error))

    assert (code, shown["code"], shown["request_id"]) == (6, "internal_error", "req-1")


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (["queue", "create"], "name"),
        (["task", "list", "mail", "--limit", "many"], "--limit"),
        (["task", "list", "mail", "--nonsense"], None),
        (["nonsense"], None),
    ],
)
def test_a_wrong_command_line_has_a_code_and_the_option_too(
    command: list[str], field: str | None
) -> None:
    code, error = told(*command, session=CliSession(env={}))

    assert (code, error["code"], error["request_id"]) == (2, "invalid_request", None)
    assert [each["field"] for each in error["errors"]] == ([field] if field else [])


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (Failed("nothing was done"), 1, "failed"),
        (Failed("no such key", Exit.NOT_FOUND), 3, "not_found"),
        (KeyError("x"), 1, "failed"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_the_command_itself_finds_wrong_has_a_code_too(
    error: BaseException, code: int, name: str
) -> None:
    ended, shown = told("task", "show", "tsk_1", session=failing(error))

    assert (ended, shown["code"]) == (code, name)


def test_what_nobody_expected_is_one_line_too() -> None:
    ran = show(KeyError("x"))

    assert ran.code == Exit.FAILED
    assert ran.err == "error: unexpected KeyError: 'x'; --debug shows where\n"


def test_debug_shows_where_it_happened() -> None:
    with pytest.raises(KeyError):
        show(KeyError("x"), "--debug")


def test_ctrl_c_ends_with_130() -> None:
    ran = show(KeyboardInterrupt())

    assert ran.code == Exit.INTERRUPTED
    assert ran.err.strip() == "interrupted"


def test_a_text_of_the_service_cannot_drive_the_terminal() -> None:
    assert show(errors.NotFound("no \x1b[2Jtask")).err == "error: no \\x1b[2Jtask\n"


def test_a_wrong_command_line_says_where_help_is() -> None:
    ran = invoke("queue", "create", session=CliSession(env={}))

    assert ran.code == Exit.USAGE
    assert ran.err == ("error: Missing argument 'NAME'.\nTry `headrace queue create --help`.\n")


@pytest.mark.parametrize("env", [{}, {"HEADRACE_KEY": "k"}])
def test_without_a_service_it_says_how_to_start_one(env: dict[str, str]) -> None:
    ran = invoke("queue", "list", session=CliSession(env=env))

    assert ran.code == Exit.USAGE
    assert "HEADRACE_URL" in ran.err
    assert "`headrace run`" in ran.err


def test_without_a_key_it_says_how_to_name_one() -> None:
    ran = invoke("queue", "list", session=CliSession(env={"HEADRACE_URL": "http://x.test"}))

    assert ran.code == Exit.USAGE
    assert "HEADRACE_KEY" in ran.err
    assert "--key-file" in ran.err


@pytest.mark.parametrize("words", [[], ["queue"]])
def test_without_a_command_the_commands_are_shown_and_no_error(words: list[str]) -> None:
    ran = invoke(*words, session=CliSession(env={}))

    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert ran.err.startswith("Usage: headrace")
    assert "error:" not in ran.err
    assert "Try `" not in ran.err


def test_nothing_listens_is_exit_6() -> None:
    env = {"HEADRACE_URL": "http://127.0.0.1:9", "HEADRACE_KEY": "a-key"}

    ran = invoke("doctor", session=CliSession(env=env))

    assert ran.code == Exit.UNAVAILABLE
    assert "http://127.0.0.1:9 gave no answer (connection refused)" in ran.out
    assert "is it running? see HEADRACE_URL" in ran.out


def test_what_gave_no_answer_is_named_by_its_address() -> None:
    env = {"HEADRACE_URL": "http://127.0.0.1:9", "HEADRACE_KEY": "a-key"}
    why = "gave no answer (connection refused): is it running? see"

    ran = invoke("stats", session=CliSession(env=env, retries=0))
    other = invoke("stats", "--url", "http://127.0.0.1:7", session=CliSession(env=env, retries=0))

    assert (ran.code, ran.err) == (6, f"error: http://127.0.0.1:9 {why} HEADRACE_URL\n")
    assert other.err == f"error: http://127.0.0.1:7 {why} --url\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["taks", "list"], "task"), (["task", "lst"], "list"), (["enque", "mail"], "enqueue")],
)
def test_a_command_that_is_none_is_told_which_was_meant(words: list[str], meant: str) -> None:
    ran = invoke(*words, session=CliSession(env={}))

    assert ran.code == Exit.USAGE
    assert ran.error.startswith("error: No such command ")
    assert f"'{meant}'" in ran.error.partition("Did you mean")[2]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_global_options_may_stand_anywhere(headrace_service: MemoryService, place: int) -> None:
    words = ["queue", "list"]
    words.insert(place, "--json")

    assert Cli(headrace_service)(*words).json == []


def test_the_rightmost_of_a_global_option_wins() -> None:
    session = CliSession(given_client=Mock(), env={})

    invoke("--url", "http://a.test", "plan", "--help", session=session)
    assert session.url == "http://a.test"
    invoke("--url", "http://a.test", "key", "--url", "http://b.test", "list", session=session)
    assert session.url == "http://b.test"


def test_the_key_can_come_from_a_file_or_stdin(tmp_path: Any) -> None:
    kept = tmp_path / "key"
    kept.write_text("a-secret\nmore\n")

    assert CliSession(key_file=str(kept), env={"HEADRACE_KEY": "other"}).secret == "a-secret"
    assert CliSession(env={"HEADRACE_KEY": "other"}).secret == "other"
    assert "a-secret" not in repr(CliSession(key="a-secret", env={}))


def test_a_key_file_that_is_not_there_is_named() -> None:
    ran = invoke(
        "queue",
        "list",
        "--url",
        "http://x.test",
        "--key-file",
        "/no/such",
        session=CliSession(env={}),
    )

    assert ran.code == Exit.USAGE
    assert ran.err == "error: --key-file /no/such: No such file or directory\n"
