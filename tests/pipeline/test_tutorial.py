"""The tutorial about Spark prints what it says it prints."""

from pathlib import Path

import pytest

from tests import shell_pages
from tests.documented_lines import ROOT


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    shell_pages.run(ROOT / "docs" / "tutorials" / "sensor-pipeline.md", tmp_path)
