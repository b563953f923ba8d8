"""Copy docs/ to build/docs/, from where the site is built, and build it.

Pages link to tests, examples and modules.  The copy gets these files too, as text, so that the
site is complete wherever it is opened.  ``make docs`` runs this.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

from infra import reference

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
STAGE: Final = ROOT / "build" / "docs"
SITE: Final = ROOT / "build" / "site"
SHIM: Final = "https://unpkg.com/iframe-worker/shim"
"""What search needs where pages come from the file system; the site brings its own copy."""
_USE_CASE: Final = re.compile(r"^(## \d+\. [^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def stage() -> None:
    """Copy every page, with links to files outside docs/ leading to copies of those files."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(DOCS, STAGE)
    outside: set[Path] = set()
    for page in DOCS.glob("**/*.md"):
        link = functools.partial(_link, page, outside)
        text = LINK.sub(link, page.read_text())
        if page.parent.name == "coming-from" and page.stem != "index":
            text = in_tabs(text, (page.parent / "index.md").read_text())
        (STAGE / page.relative_to(DOCS)).write_text(text)
    for file in outside:
        copy = _copy_of(file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    pages, parts = reference.built()
    for name, text in pages.items():
        built = STAGE / "reference" / name
        built.parent.mkdir(exist_ok=True)
        built.write_text(text)
    for page in (STAGE / "reference").glob("*.md"):
        page.write_text(reference.filled(page.read_text(), parts))


def in_tabs(text: str, ours: str) -> str:
    """Return a page that shows their side and ours of each use case as tabs; *ours* has ours."""
    bodies = dict(_USE_CASE.findall(ours))

    def tabs(case: re.Match[str]) -> str:
        heading, body = case.groups()
        _, name, theirs = re.split(r"^\*\*(.+)\*\*\n", body, maxsplit=1, flags=re.MULTILINE)
        sides = ((name, theirs), ("Headrace", bodies[heading]))
        shown = [f'=== "{side}"\n{textwrap.indent(told, "    ")}' for side, told in sides]
        return "\n\n".join([heading, *shown])

    return _USE_CASE.sub(tabs, text)


def _link(page: Path, outside: set[Path], found: re.Match[str]) -> str:
    name, target, anchor = found.groups()
    file = (page.parent / target).resolve()
    if file.is_relative_to(DOCS) and file.is_file():
        return found[0]
    if not file.is_file():  # a folder, which a browser cannot show
        return str(name)
    outside.add(file)
    staged = STAGE / page.relative_to(DOCS)
    return f"[{name}]({os.path.relpath(_copy_of(file), staged.parent)}{anchor or ''})"


def _copy_of(file: Path) -> Path:
    return STAGE / "source" / f"{file.relative_to(ROOT)}.txt"


def main() -> int:
    """Build the site into build/site/, and return the exit code."""
    stage()
    command = [sys.argv[1], "build", "--clean", "--strict"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    for page in SITE.glob("**/*.html"):
        own = os.path.relpath(SITE / "assets" / "iframe-worker.js", page.parent)
        page.write_text(page.read_text().replace(SHIM, own))
    return code


if __name__ == "__main__":
    sys.exit(main())
