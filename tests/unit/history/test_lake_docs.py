"""docs/lake.md says what the code says."""

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.retry import RetryStrategy
from headrace.domain.task import Place, Priority, State, Task
from headrace.domain.write import TaskWrite
from headrace.history import changelog
from headrace.history.proof import FINDINGS
from headrace.history.proof_checks import conditions
from headrace.history.transitions import transition
from headrace.spark.lake.schemas import CHANGES, DAY, TABLES, Table, markdown
from tests.manual_clock import ManualClock

ROOT = Path(__file__).parents[3]
DOCS = (ROOT / "docs" / "lake.md").read_text()


def test_the_docs_have_every_table_as_it_is_declared() -> None:
    assert markdown() in DOCS


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_tables_key_and_order_are_columns_of_it(table: Table) -> None:
    names = [column.name for column in table.columns]

    assert len(set(names)) == len(names)
    assert {*table.key, *table.order, DAY} <= set(names)


def test_the_docs_name_every_finding_of_the_proof() -> None:
    kinds = {*conditions(second="1")}

    named = set(re.findall(r"^\| `([a-z_]+)` \|", DOCS.partition("## Tables")[0], re.MULTILINE))
    assert named == kinds | {"overdue", "reused_lease", "lost"}
    for kind, says in FINDINGS.items():
        assert f"| `{kind}` | {says}" in DOCS
    assert named == set(FINDINGS)


def test_a_raw_line_has_no_field_that_the_table_of_changes_lacks() -> None:
    now = ManualClock()()
    fields: dict[str, Any] = {
        "created_at": now,
        "enqueued_at": now,
        "started_at": now,
        "finished_at": now,
        "expires_at": now,
        "lease_expires_at": now,
        "lease_id": "lse_1",
        "settled_lease_id": "lse_1",
        "worker": "w",
        "payload": "1",
        "result": "2",
        "group_key": "g",
        "priority": Priority.LOW,
        "retry": RetryStrategy(),
        "keepalive": 5,
    }
    place = Place("q", State.INFLIGHT, 0)
    old = Task("t", place, now, now, **fields)
    new = Task("t", place, now, now, **{**fields, "payload": "3"}, last_move="move")
    write = TaskWrite.of(1, old, new, at=now)
    line = changelog.line(write, transition(write), shard="s", payload=True)

    columns = {column.name for column in CHANGES.columns}
    assert set(line) - columns == {"format"}
    errors = {"error_kind", "error_type", "error_message", "dead_reason", "lease_group"}
    assert columns - set(line) == {DAY, *errors}
