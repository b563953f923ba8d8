"""The guide's code runs as it stands."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace.testing import inline

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "tasks.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def shop() -> Iterator[ModuleType]:
    """A module, as dataclasses and type hints want one."""
    module = sys.modules["shop"] = ModuleType("shop")
    yield module
    del sys.modules["shop"]


def test_the_guide_runs_as_it_stands(shop: ModuleType) -> None:
    first, *rest = CODE
    exec(first, vars(shop))  # noqa: S102 (that is what is tested)
    with inline(shop.app) as line:
        for code in rest:
            exec(code, vars(shop))  # noqa: S102 (likewise)
        shop.app.sync_schedules()
        schedules = line.service.client.get_queue("mail").schedules or ()
        delivered = next(line.service.client.list_tasks("archive", payload=True))
        sent = list(line.service.client.list_tasks("mail", state="SUCCEEDED"))
    assert delivered.payload == {"order": 5}
    assert len(sent) == 1 + 1 + 100 + 1 + 10 + 2  # of the three of `refresh` one is held back
    assert [schedule.name for schedule in schedules] == ["wake"]
