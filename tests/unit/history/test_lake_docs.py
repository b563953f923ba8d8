"""docs/lake.md says what the code says."""

import re
from pathlib import Path

import pytest

from headrace.history.proof import FINDINGS, conditions
from headrace.spark.lake.schemas import DAY, TABLES, Table, markdown

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
