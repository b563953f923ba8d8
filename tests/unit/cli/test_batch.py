"""`headrace batch`: lists, progress, and what it does to batches and workflows."""

import json

import pytest

from headrace import App, chain
from headrace.cli.session import Exit
from headrace.testing import MemoryService
from tests.unit.cli.cli_runner import Cli

app = App(queue="work")


@app.task
def step(number: int) -> int:
    return number


@pytest.fixture
def cli(headrace_service: MemoryService) -> Cli:
    made = Cli(headrace_service)
    made("queue", "create", "work")
    for id in ("b", "a"):
        headrace_service.client.create_batch(id=id)
    return made


def test_a_batch_is_closed_and_forgotten(cli: Cli) -> None:
    closed = cli("batch", "close", "a", "--total", "0", "--json")

    assert (closed.json["total"], closed.json["finished_at"] is None) == (0, False)
    assert cli("batch", "close", "a", "--total", "3").code == Exit.CONFLICT
    assert cli("batch", "delete", "a").code == Exit.USAGE  # nobody is there to ask
    assert cli("batch", "delete", "a", "--yes").code == 0
    assert cli("batch", "show", "a").code == Exit.NOT_FOUND


def test_a_workflow_is_shown_with_what_waits_and_is_cancelled(
    cli: Cli, headrace_service: MemoryService
) -> None:
    with headrace_service.serving(app):
        run = chain(step.s(1), step.s(2)).start(app.client)

    shown = cli("batch", "show", run.id, "--json").json
    table = cli("batch", "show", run.id).out.splitlines()
    listed = cli("batch", "list", "--json").json
    every = cli("batch", "list", "--parts", "--json").json

    assert shown["batch"]["id"] == run.id
    first, second = shown["steps"]
    assert (first["name"], first["status"], first["after"]) == ("1", "READY", [])
    assert (second["name"], second["made"], second["after"]) == ("2", False, [first["task_id"]])
    assert table[2].split()[0] == run.id
    assert [line.split() for line in table[-2:]] == [
        ["1", "READY", f"{run.id}-0", "work", "-"],
        ["2", "waits", "-", "work", "1"],
    ]
    assert [one["id"] for one in listed] == ["a", "b", run.id]
    assert [one["id"] for one in every] == ["a", "b", run.id, f"{run.id}-2"]
    assert json.loads(cli("batch", "cancel", run.id, "--yes", "--json").out)["cancelled"] == 1
