"""Every answer of the operations guide has a test that exists, or its reasoning."""

import re
from typing import Final

from infra import PROJECT_ROOT
from infra.template import Template

DOCS: Final = PROJECT_ROOT / "docs"
GUIDE: Final = (DOCS / "operations.md").read_text()
ANSWERS: Final = {
    part.partition("\n")[0]: part for part in re.split(r"^### ", GUIDE, flags=re.MULTILINE)[1:]
}


def test_every_answer_names_its_test_or_its_reasoning() -> None:
    assert len(ANSWERS) > 25
    for title, answer in ANSWERS.items():
        assert re.search(r"^- (\[test_|Reasoning: )", answer, re.MULTILINE), title


def test_every_alarm_of_the_template_is_explained(template: Template) -> None:
    section = GUIDE[GUIDE.index("## What to watch") :]
    alarms = {
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    }
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == alarms
