"""The commands of README, tutorials and some guides print what these pages say."""

import shutil
from pathlib import Path

import pytest

from infra.launch import launched
from tests import shell_pages
from tests.documented_lines import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["first-task", "fastapi-shop", "django-outbox"])
def test_a_tutorial_prints_what_it_says(name: str, tmp_path: Path) -> None:
    shell_pages.run(ROOT / "docs" / "tutorials" / f"{name}.md", tmp_path)


def test_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    shell_pages.run(ROOT / "README.md", tmp_path, HEADRACE_URL="file:headrace.db")


@pytest.mark.parametrize("name", ["command", "http", "shell-worker"])
def test_a_guide_prints_what_it_says(name: str, tmp_path: Path) -> None:
    if name == "shell-worker" and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    page = ROOT / "docs" / "how-to" / f"{name}.md"
    with launched() as service:
        key = service.admin_key
        shell_pages.run(page, tmp_path, HEADRACE_URL=service.url, HEADRACE_KEY=key)
