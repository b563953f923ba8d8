"""The reference says what the code has."""

import re
from typing import get_args, get_type_hints

import headrace
from headrace import Observer
from headrace.client.app.options import CallOptions, TaskOptions
from headrace.client.worker.settings import WorkerOptions
from headrace.domain.task import DeadReason
from headrace.ops.tasks.explain import ReasonCode
from headrace.wire.tasks import Enqueued, Reported
from infra import reference


def page(name: str) -> str:
    return (reference.FOLDER / f"{name}.md").read_text()


def first_cells(text: str) -> set[str]:
    """Return the code in the first cell of each row."""
    rows = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|.*\n(?!\|---)", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def section(name: str, heading: str) -> str:
    return page(name).partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_tables_of_the_reference_are_current() -> None:
    for path, text in reference.committed():
        assert path.read_text() == text, f"{path.name}: run python -m infra.reference"


def test_every_variable_of_the_environment_is_explained() -> None:
    read = {
        name
        for folder in ("functions", "console", "infra", "examples")
        for path in (reference.ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bHEADRACE_[A-Z_]*[A-Z]\b", path.read_text())
    }
    read |= set(re.findall(r"\bHEADRACE_\w+", (reference.ROOT / "template.yaml").read_text()))

    assert read - {"HEADRACE_COMPLETE", "HEADRACE__TYPE"} == {
        name for name in first_cells(page("environment")) if name.startswith("HEADRACE_")
    }


def test_every_outcome_and_reason_is_explained() -> None:
    for heading, words in (
        ("Outcomes of an enqueue", get_args(get_type_hints(Enqueued)["outcome"])),
        ("Outcomes of a report", get_args(get_type_hints(Reported)["outcome"])),
        ("Why a task is dead", tuple(DeadReason)),
        ("Why a task is not running", tuple(ReasonCode)),
    ):
        assert first_cells(section("errors", heading)) == set(words), heading


def test_every_option_is_explained() -> None:
    declared = set(TaskOptions.__annotations__)
    called = {*CallOptions.__annotations__, "dedupe_key"}
    rows = re.findall(r"^\| `(\w+)` \| (●?) *\| (●?) *\|", page("task-options"), re.MULTILINE)

    assert {name for name, mark, _ in rows if mark} == declared
    assert {name for name, _, mark in rows if mark} == called
    parameters = {*get_type_hints(WorkerOptions), "observers", "log_format"}
    assert first_cells(page("worker-options")) == parameters


def test_every_name_of_the_package_is_explained() -> None:
    text = "".join(path.read_text() for path in reference.FOLDER.rglob("*.md"))
    names = {name for name in dir(headrace) if not name.startswith("__")}

    assert {one for one in names if not re.search(rf"[.`]{one}\b", text)} == set()


def test_every_call_of_an_observer_is_explained() -> None:
    named = first_cells(section("events-and-metrics", "Calls of an observer"))

    assert {name for name in vars(Observer) if not name.startswith("_")} == {
        name.partition("(")[0] for name in named
    }


def test_the_site_lists_every_operation_and_command() -> None:
    files, parts = reference.built()

    for name, anchor in re.findall(r"\]\((openapi\.html)#(\w+)\)", parts["operations"]):
        assert f'id="{anchor}"' in files[name]
    for name, anchor in re.findall(r"\]\((cli/\w+\.md)#([\w-]+)\)", parts["commands"]):
        headings = re.findall(r"^## (.*)$", files[name], re.MULTILINE)
        anchors = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
        assert anchor in anchors, f"{name}#{anchor}"
