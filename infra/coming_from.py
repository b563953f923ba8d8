"""Write our side of the pages for people who come from another queue.

It stands once, in ``docs/coming-from/index.md``, where a test runs it; each page shows it again
below theirs, so that both are read together.  ``make coming-from`` runs this; a test compares.
"""

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "docs" / "coming-from"
SOURCE: Final = FOLDER / "index.md"
PAGES: Final = sorted(set(FOLDER.glob("*.md")) - {SOURCE})
OURS: Final = "**Headrace**\n"

_USE_CASE = re.compile(r"^(## \d+\. [^\n]*)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)


def use_cases(text: str) -> dict[str, str]:
    """What a page says of each of its use cases, by heading."""
    return dict(_USE_CASE.findall(text))


def with_ours(page: str, ours: dict[str, str]) -> str:
    """The text of *page* with our side of each use case as in *ours*.

    Raises:
        ValueError: its use cases are others, or one has no place for our side.

    """
    theirs = use_cases(page)
    if list(theirs) != list(ours):
        raise ValueError(f"its use cases are {list(theirs)}")
    for heading, body in theirs.items():
        begin, marker, _ = body.partition(OURS)
        if not marker:
            raise ValueError(f"{heading} has no {OURS.strip()}")
        page = page.replace(f"{heading}\n{body}", f"{heading}\n{begin}{OURS}{ours[heading]}")
    return page


def main() -> None:
    """Write the pages."""
    ours = use_cases(SOURCE.read_text())
    for path in PAGES:
        path.write_text(with_ours(path.read_text(), ours))


if __name__ == "__main__":
    main()
