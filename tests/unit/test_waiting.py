"""Tests wait for conditions with `until` instead of sleeping for a fixed time."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
MOST = 20  # those that are left; this number only falls


def fixed_sleeps(path: Path) -> list[int]:
    """Return the lines that sleep for a number of seconds; `asyncio.sleep(0)` yields only."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return [
        call.lineno
        for call in calls
        if ast.unparse(call.func) in ("time.sleep", "asyncio.sleep", "sleep")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value
    ]


def test_no_more_tests_sleep_for_a_fixed_time() -> None:
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        if "node_modules" not in path.parts and "sleep(" in path.read_text()
        for line in fixed_sleeps(path)
    }

    assert len(found) <= MOST, found
