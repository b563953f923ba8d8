"""The pages about AWS say what the template has and what the formulas give."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from benchmarks import bill
from infra import PROJECT_ROOT
from infra.template import Template

DOCS: Final = PROJECT_ROOT / "docs"
COSTS: Final = (DOCS / "explanation" / "costs.md").read_text()
RESTORE: Final = (DOCS / "how-to" / "restore.md").read_text()
ROW: Final = re.compile(r"^\| ([^|]+) \|[^|]*\|[^|]*\| \**([0-9.]+)\** \|$", re.MULTILINE)


def a_million(batch: int = 25, payload: int = 424) -> bill.Bill:
    rate = 1e6 / bill.MONTH_SECONDS
    return bill.bill(bill.Load(rate, payload, history_seconds=86_400, batch=batch))


def over_tables(batch: int) -> float:
    """Return the cost of a million tasks for programs that use the tables themselves."""
    return bill.bill(a_million(batch).load, over_tables=True).usd


def test_the_cost_of_a_million_tasks_is_what_the_formulas_give() -> None:
    table = COSTS[COSTS.index("| | for a million tasks") :]
    shown = {name.strip(): usd for name, usd in ROW.findall(table)}
    bill = a_million()
    names = {
        "DynamoDB writes": "write units",
        "DynamoDB reads": "read units",
        "DynamoDB storage": "storage",
        "API Gateway calls": "API Gateway",
        "Lambda calls": "Lambda calls",
        "Lambda GB-seconds": "Lambda time",
    }

    assert f"{bill.usd:.2f}" == shown["total"]
    for line in bill.lines:
        assert f"{line.usd:.2f}" == shown[names[line.name]], line.name


@pytest.mark.parametrize(
    ("before", "usd"),
    [
        ("One task in each call instead of 25 makes it ", a_million(batch=1).usd),
        (
            "adds a write unit to each of the three writes: ",
            a_million(payload=424 + 1024).usd - a_million().usd - 0.0085,  # it is stored, too
        ),
        ("use the tables directly, a million tasks cost ", over_tables(batch=25)),
        ("A worker that waits adds ", bill.idle_worker_usd()),
    ],
)
def test_so_are_the_sums_in_its_sentences(before: str, usd: float) -> None:
    found = re.search(re.escape(before) + r"([0-9.]+[0-9])", COSTS)

    assert found is not None
    assert found[1] == f"{usd:.2f}"


def test_the_line_that_takes_the_tables_out_of_the_template_runs(
    template: Template, tmp_path: Path
) -> None:
    (line,) = re.findall(r'python -c "(import json; from infra.*?)" > tables.json', RESTORE)

    printed = subprocess.run(
        [sys.executable, "-c", line], check=True, capture_output=True, text=True, cwd=PROJECT_ROOT
    ).stdout
    tables = json.loads(printed)

    assert set(tables["Resources"]) == {"TasksTable", "ControlTable"}
    for name, table in tables["Resources"].items():
        assert table == template["Resources"][name]
        assert table["DeletionPolicy"]
    needed = set(re.findall(r'"Ref": "(\w+)"', printed)) | set(
        re.findall(r'"Fn::If": \["(\w+)"', printed)
    )
    assert needed <= {*tables["Parameters"], *tables["Conditions"]}


# -- the operations guide --------------------------------------------------------------------------

OPERATIONS: Final = (DOCS / "how-to" / "operations.md").read_text()
ANSWERS: Final = {
    part.partition("\n")[0]: part
    for page in (DOCS / "explanation").glob("failures-*.md")
    for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
}


def test_every_answer_names_its_test_or_its_reasoning() -> None:
    assert len(ANSWERS) > 25
    for title, answer in ANSWERS.items():
        assert re.search(r"^- (\[test_|Reasoning: )", answer, re.MULTILINE), title


def test_every_alarm_of_the_template_is_explained(template: Template) -> None:
    section = OPERATIONS[OPERATIONS.index("## Alarms") :]
    alarms = {
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    }
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == alarms
