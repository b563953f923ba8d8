"""The examples of the documentation pass mypy, strictly."""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/coming-from/index.md",
    *(
        str(page.relative_to(ROOT))
        for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))
        if page.stem
        not in (
            "modules",
            "testing",
            "stations",
            "spark-jobs",
            "lake",
            "read-the-lake",
        )  # several files, or Spark
    ),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def modules(page: str) -> list[str]:
    """Return the programs of a page: the first block of each makes its app or outbox."""
    programs: list[str] = []
    for code in BLOCK.findall((ROOT / page).read_text()):
        if ">>>" in code or code.startswith("# examples/"):
            continue
        if not programs or re.search(r"^(app|outbox) = ", code, re.MULTILINE):
            programs.append(code)
        else:  # what follows the outbox of Django is again about SQLAlchemy's
            programs[0 if "(engine" in code else -1] += f"\n\n{code}"
    return programs


@pytest.mark.slow
def test_the_examples_pass_mypy_strict(tmp_path: Path) -> None:
    for page in PAGES:
        for number, program in enumerate(modules(page)):
            name = f"{Path(page).stem.lower().replace('-', '_')}_{number}.py"
            (tmp_path / name).write_text(program)

    out, err, code = api.run(
        ["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path)]
    )

    assert code == 0, out + err


@pytest.mark.slow
def test_an_editable_install_is_a_folder_on_the_path_which_checkers_follow() -> None:
    """A finder that is imported is nothing that they could follow."""
    site = Path(pytest.__file__).parents[1]
    (path,) = site.glob("__editable__.headrace-*.pth")
    assert path.read_text().strip() == str(ROOT / "functions")
