"""The guide's own files are a test suite that passes."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "testing.md"


def files() -> dict[str, str]:
    """Return the files that the guide shows; blocks that name the same file follow each other."""
    found: dict[str, str] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        name, _, text = block.partition("\n")
        key = name.removeprefix("# ")
        found[key] = found.get(key, "") + text
    return found


@pytest.mark.slow
def test_the_guides_tests_pass(pytester: pytest.Pytester) -> None:
    for name, text in files().items():
        pytester.path.joinpath(name).write_text(text)

    result = pytester.runpytest_inprocess("-p", "no:schemathesis", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=8)
