"""The parts of the reference that the code decides.

Tables of settings, roles, errors, limits, variables and costs stand in pages, between two marks:
``python -m infra.reference`` writes them, and a test compares.  The pages of the HTTP API and of
the command are only in the site: ``built`` gives them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "reference"

_PART: Final = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    lines.insert(1, "|" + "---|" * len(columns))
    return "\n".join(lines)


def code(text: object) -> str:
    """Return *text* as code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def cell(text: str) -> str:
    """Return *text* on one line, for a table."""
    return " ".join(text.split()).replace("|", "\\|")


def filled(text: str, parts: dict[str, str]) -> str:
    """Return *text* with those of *parts* that have marks in it."""

    def part(found: re.Match[str]) -> str:
        made = parts.get(found[2])
        return found[0] if made is None else f"{found[1]}\n{made}\n\n{found[3]}"

    return _PART.sub(part, text)


def committed() -> Iterator[tuple[Path, str]]:
    """Yield each page of docs/reference/ and its text as the code has it now."""
    from infra.reference import tables  # noqa: PLC0415  it uses this module

    parts = tables.parts()
    for page in sorted([*FOLDER.glob("*.md"), FOLDER.parent / "explanation" / "costs.md"]):
        yield page, filled(page.read_text(), parts)


def built() -> tuple[dict[str, str], dict[str, str]]:
    """Return the files that only the site has, and the parts of other pages that lead to them."""
    from headrace.http.app import TABLE  # noqa: PLC0415  only the site needs the service
    from headrace.http.openapi import document  # noqa: PLC0415  likewise
    from headrace.http.service import render  # noqa: PLC0415  likewise
    from infra.reference import commands  # noqa: PLC0415  it uses this module

    api = document(TABLE.routes)
    operations = [
        (
            f"[{one['summary']}](openapi.html#{one['operationId']})",
            code(f"{method.upper()} {path}"),
            ", ".join(one.get("x-roles", ["no key"])),
        )
        for path, methods in api["paths"].items()
        for method, one in methods.items()
    ]
    files = {"openapi.html": render(api), "openapi.json": json.dumps(api, indent=1)}
    listed = table(("operation", "request", "roles"), operations)
    return {**files, **commands.pages()}, {**commands.parts(), "operations": listed}


def main() -> None:
    """Write the tables into the pages that have other ones; tests may be reading the others."""
    for page, text in committed():
        if page.read_text() != text:
            page.write_text(text)
