"""What the wheel is made of: every package of ours, the console below `headrace`, no other name.

Save those by which Spark finds our formats: it looks for modules whose name begins with `pyspark_`.

`make test-wheel` builds it, and runs what is in it.
"""

import ast
import runpy
from typing import Any

import pytest
import setuptools

from infra import PROJECT_ROOT

CONSOLE = PROJECT_ROOT / "console"
FORMATS = {
    "pyspark_headrace",
    *(f"pyspark_headrace_{one}" for one in ("enqueue", "export", "table")),
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what setup.py says."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **fields: found.update(fields))
    monkeypatch.chdir(PROJECT_ROOT)
    runpy.run_path("setup.py")
    return found


def test_every_folder_of_modules_is_in_it(given: dict[str, Any]) -> None:
    ours = {
        f"headrace.{'.'.join(place.parent.relative_to(root).parts)}".rstrip(".")
        for root in (PROJECT_ROOT / "functions" / "headrace",)
        for place in root.rglob("*.py")
    }
    console = {
        ".".join(("headrace.console", *place.parent.relative_to(CONSOLE).parts))
        for place in CONSOLE.rglob("*.py")
    }

    assert set(given["packages"]) == ours | console | FORMATS


def test_the_console_names_its_own_modules_by_where_they_stand() -> None:
    """In the wheel they are not below `console`."""
    for module in CONSOLE.rglob("*.py"):
        imported = [
            node.module or ""
            for node in ast.walk(ast.parse(module.read_text()))
            if isinstance(node, ast.ImportFrom) and not node.level
        ]
        assert not [name for name in imported if name.partition(".")[0] == "console"], module
