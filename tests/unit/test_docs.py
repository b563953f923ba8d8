"""The documents say what is there."""

import re
from pathlib import Path

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


def test_every_module_that_a_document_names_is_there() -> None:
    places = (ROOT, ROOT / "functions" / "headrace", ROOT / "console" / "chalicelib")
    for document in [*DOCUMENTS, ROOT / "console" / "README.md"]:
        for name in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", document.read_text()):
            beside = document.parent / name
            assert beside.exists() or any((place / name).exists() for place in places), (
                f"{document.name}: {name}"
            )


def test_every_promise_has_a_test_that_exists() -> None:
    promises = ROOT / "docs" / "semantics.md"
    named = [(text, target) for text, target in links(promises) if text.startswith("test_")]

    assert len(named) > 50
    for name, target in named:
        path = (promises.parent / target).resolve()
        assert path.stem == name or f"def {name}(" in path.read_text(), f"{name} in {path.name}"


def test_no_promise_stands_without_a_test() -> None:
    promises = (ROOT / "docs" / "semantics.md").read_text()
    rows = re.findall(r"^\| (?!promise|-)(.*)\|$", promises, re.MULTILINE)

    assert len(rows) > 40
    assert all("[test_" in row for row in rows)
