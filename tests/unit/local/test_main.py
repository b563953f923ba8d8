"""The service in a terminal: what it takes besides its environment."""

import pytest

from headrace.local import PortUnusable, SettingInvalid
from headrace.local.__main__ import CANNOT_START, main, refusal
from headrace.local.environment import settings_from
from headrace.local.server import listen


@pytest.mark.parametrize("arguments", [["--port", "8081"], ["8081"], ["--say"]])
def test_an_argument_that_it_does_not_know_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == CANNOT_START
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "at", "open_to_others"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("::1", "[::1]", False),
        ("0.0.0.0", "127.0.0.1", True),  # noqa: S104  a host to judge, not to bind
        ("laptop.lan", "laptop.lan", True),
    ],
)
def test_a_host_says_whether_other_machines_may_reach_the_service(
    host: str, at: str, *, open_to_others: bool
) -> None:
    settings = settings_from({"HEADRACE_HOST": host})

    assert (settings.at, settings.open_to_others) == (at, open_to_others)


@pytest.mark.parametrize("host", ["a b", "http://x", "a/b", "[::1]"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(SettingInvalid, match="HEADRACE_HOST must be a name or an address"):
        settings_from({"HEADRACE_HOST": host})


@pytest.mark.parametrize("path", ["tools", "/a b", "/a//b", "//evil.example", "/console/x", "/v1"])
def test_a_root_path_must_be_a_path_that_the_service_does_not_have(path: str) -> None:
    with pytest.raises(SettingInvalid, match="HEADRACE_ROOT_PATH must be a path such as"):
        settings_from({"HEADRACE_ROOT_PATH": path})


def test_an_address_of_another_machine_is_named_with_what_to_set() -> None:
    with pytest.raises(PortUnusable, match="set HEADRACE_HOST to an address of this machine") as at:
        listen("192.0.2.1", 0)

    assert "say --host with an address" in refusal(at.value, say_options=True)
