"""What the tests on a deployment leave out by name is still called so."""

import re

from infra import PROJECT_ROOT
from tests.e2e.selection import BESIDE


def test_every_test_that_is_left_out_by_name_is_there() -> None:
    folders = (PROJECT_ROOT / "tests" / name for name in ("functional", "console"))
    texts = [path.read_text() for folder in folders for path in folder.glob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"def (test_\w+)\(", text)}

    assert set(BESIDE) - there == set()
