"""The documentation site has every page, and needs nothing outside of it."""

import re
from pathlib import Path

import pytest

from infra import reference, site

NAV = (site.ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"[\w/-]+\.md", NAV)
    pages = [
        str(page.relative_to(site.DOCS))
        for page in site.DOCS.glob("**/*.md")
        if page.parent.name != "decisions" or page.stem == "index"
    ]

    pages += [f"reference/{name}" for name in reference.built()[0] if name.endswith(".md")]
    assert len(named) == len(set(named))
    assert set(named) == set(pages)


def test_links_to_files_outside_the_docs_lead_to_copies_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "STAGE", tmp_path)

    site.stage()

    for page in tmp_path.glob("**/*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#:\s]+)[#)]", text):
            file = (page.parent / target).resolve()
            assert file.is_relative_to(tmp_path), f"{page.name}: {target}"
            assert file.is_file(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", sorted((site.DOCS / "coming-from").glob("[!i]*.md")))
def test_both_sides_of_each_use_case_are_tabs(page: Path) -> None:
    text = site.in_tabs(page.read_text(), (page.parent / "index.md").read_text())

    assert text.count('\n=== "Headrace"\n') == len(re.findall(r"^## \d+\.", text, re.MULTILINE))
