"""`headrace action`, and `--background`, which begins one."""

import re

import pytest

from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    cli = Cli(headrace_service)
    assert cli("queue", "create", "mail").code == 0
    for number in range(3):
        cli("enqueue", "mail", "{}", "--id", f"t{number}", "--delay", "1h")
    return cli


def test_the_service_does_it_in_the_background(cli: Cli) -> None:
    begun = cli(
        *("task", "delete", "--queue", "mail", "--all", "--yes", "--background"),
        *("--reason", "test data"),
    )

    (action_id,) = re.findall(r"act_\w+", begun.err)
    assert (begun.code, begun.out) == (0, "")
    listed = cli("action", "list", "--queue", "mail").out
    assert "looking for its tasks" in listed
    assert "test data" in listed
    cli.service.tick()
    shown = cli("action", "show", action_id)
    assert shown.code == 0
    for name, value in (("status", "done"), ("changed", "3"), ("reason", "test data")):
        assert re.search(rf"^{name} +{value}$", shown.out, re.MULTILINE), shown.out
    (undo,) = re.findall(r"headrace undo (\S+)", shown.out)
    assert cli("undo", undo).err.startswith("3 tasks restored.")


def test_an_action_is_paused_resumed_and_cancelled(cli: Cli) -> None:
    made = cli("task", "trigger", "--queue", "mail", "--all", "--background", "--json").json
    assert made["status"] == "LOOKING"

    assert cli("action", "pause", made["id"]).err == f"Action {made['id']} is paused.\n"
    cli.service.tick()
    assert cli("action", "show", made["id"], "--json").json["status"] == "PAUSED"
    assert cli("action", "resume", made["id"], "--json").json["status"] == "LOOKING"
    assert cli("action", "cancel", made["id"]).code == 2, "nobody was asked"
    assert cli("action", "cancel", made["id"], "--yes").code == 0
    assert cli("action", "resume", made["id"]).code == 5
    (line,) = cli("action", "list", "--json").out.splitlines()
    assert made["id"] in line
