"""The tutorials print what they say they print."""

from pathlib import Path

import pytest

from tests import tutorials


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-task", "fastapi-shop", "django-outbox"])
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    tutorials.run(name, tmp_path)
