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
LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def stage() -> None:
    """Copy every page, with links to files outside docs/ leading to copies of those files."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(DOCS, STAGE)
    outside: set[Path] = set()
    for page in DOCS.glob("**/*.md"):
        link = functools.partial(_link, page, outside)
        text = LINK.sub(link, page.read_text())
        if page.parent.name == "coming-from":
            text = in_tabs(text)
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


def in_tabs(text: str) -> str:
    """Return a page that shows their side and ours as tabs: each use case has both in bold."""

    def tabs(case: re.Match[str]) -> str:
        parts = re.split(r"^\*\*([^*\n]+)\*\*\n", case[0], flags=re.MULTILINE)
        shown = [parts[0]]
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            shown.append(f'=== "{name}"\n{textwrap.indent(body, "    ")}')
        return "\n".join(shown)

    return re.sub(r"^## \d+\. .*?(?=^## |\Z)", tabs, text, flags=re.DOTALL | re.MULTILINE)


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
