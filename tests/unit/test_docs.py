"""The documents say what is there."""

import importlib.util
import re
from pathlib import Path

import pytest

from headrace.ops.operators.keys import REVOKED_WITHIN
from tests.documented_lines import FENCE, PAGES

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def links(document: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"\[([^\]]*)\]\(([^)#:]+)\)", text)
    return [(str(name), str(target)) for name, target in found]


def test_every_link_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for _, target in links(document):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


def headings(document: Path) -> set[str]:
    """Return the anchors of a page, as GitHub derives them from its headings."""
    found = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in found]
    return {heading.replace(" ", "-") for heading in plain}


def test_every_link_within_the_documents_leads_to_a_heading_that_exists() -> None:
    anchored = 0
    for document in filter(Path.exists, [*PAGES, ROOT / "CHANGELOG.md"]):
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", prose(document)):
            page = (document.parent / target).resolve() if target else document
            assert page.exists(), f"{document.name}: {target}"
            assert anchor in headings(page), f"{document.name}: {target}#{anchor}"
            anchored += 1
    assert anchored > 50


def test_no_page_has_a_diagram_that_the_site_fetches_code_for() -> None:
    for page in (ROOT / "docs").glob("**/*.md"):
        assert "```mermaid" not in page.read_text(), page.name


def test_a_page_has_at_most_1500_words() -> None:
    for folder in ("tutorials", "how-to", "explanation", "coming-from"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert len(page.read_text().split()) <= 1_500, page.name


def test_every_make_target_and_module_to_run_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]+):", makefile, re.MULTILINE))
    for document in filter(Path.exists, PAGES):
        text = document.read_text()
        for name in re.findall(r"(?:`|^\$ )make ([a-z][a-z0-9-]*)", text, re.MULTILINE):
            assert name in targets, f"{document.name}: make {name}"
        for name in re.findall(r"\bpython -m ((?:tests|infra|headrace|examples)[\w.]*)", text):
            assert importlib.util.find_spec(name), f"{document.name}: python -m {name}"


def test_how_soon_a_revoked_key_is_refused_is_said_with_the_limits_there_are() -> None:
    within = int(REVOKED_WITHIN.total_seconds())
    cached = re.search(r"ReauthorizeEvery: (\d+)", (ROOT / "template.yaml").read_text())
    assert cached is not None

    console = (ROOT / "docs" / "how-to" / "console.md").read_text()
    assert f"refuses it within {within} s, on AWS within {cached[1]} s" in console
    for page in PAGES:
        assert not re.search(r"[Rr]evoked? is at once", page.read_text() if page.exists() else "")


def test_every_module_that_a_document_names_is_there() -> None:
    places = (ROOT, ROOT / "functions" / "headrace", ROOT / "console" / "chalicelib")
    for document in [*DOCUMENTS, ROOT / "console" / "README.md"]:
        for name in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", document.read_text()):
            beside = document.parent / name
            assert beside.exists() or any((place / name).exists() for place in places), (
                f"{document.name}: {name}"
            )


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("semantics.md", 50),
        ("explanation/failures-service.md", 25),
        ("explanation/failures-workers.md", 15),
        ("explanation/security.md", 20),
        ("reference/spark-contract.md", 25),
    ],
)
def test_every_promise_has_a_test_that_exists(page: str, least: int) -> None:
    promises = ROOT / "docs" / page
    named = [
        (text, target)
        for text, target in links(promises)
        if text.startswith("test_") or "tests/simulation/" in target
    ]

    assert len(named) > least
    for name, target in named:
        path = (promises.parent / target).resolve()
        assert path.stem == name or f"def {name}(" in path.read_text(), f"{name} in {path.name}"


@pytest.mark.parametrize(
    ("page", "least"), [("semantics.md", 40), ("reference/spark-contract.md", 25)]
)
def test_no_promise_stands_without_a_test(page: str, least: int) -> None:
    promises = (ROOT / "docs" / page).read_text()
    rows = re.findall(r"^\| (?!promise|mechanism|sink|-)(.*)\|$", promises, re.MULTILINE)

    assert len(rows) > least
    assert all("[test_" in row or "tests/simulation/" in row for row in rows)


def test_the_index_lists_every_decision_with_its_title_and_date() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "index.md").read_text()
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\((.*)\) \| (.*) \|$", index, re.MULTILINE)
    found = []
    for page in sorted(folder.glob("0*.md")):
        text = page.read_text()
        head = re.match(r"# (\d+)\. (.*)\n\nDate: ([\d-]+)\. Status: accepted\.", text)
        assert head, page.name
        assert page.name.startswith(f"{int(head[1]):04}-")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Choice", "Consequences"]
        found.append((head[1], head[2], page.name, head[3]))

    assert listed == found
