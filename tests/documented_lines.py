"""The `headrace …` lines of the README and the guides, to be run by tests."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        ROOT / "console" / "README.md",
        *ROOT.glob("examples/**/*.md"),
        *(path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "decisions"),
    ]
)
TUTORIALS: Final = ROOT / "docs" / "tutorials"
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

_SHELL: Final = re.compile(
    r"^(?:\$ )?(?:\w+=\S+ )*(?:python manage\.py )?headrace ([^\n]+)(?=\n([^\n]*))", re.MULTILINE
)
_INLINE: Final = re.compile(r"`(?:\w+=\S+ )*headrace ((?:[^`\n]|\n(?!\n))+)`")


class Line(NamedTuple):
    """The words after `headrace`, the page, and whether the page shows that the line fails."""

    words: tuple[str, ...]
    page: str
    fails: bool


def command_lines() -> list[Line]:
    """Return each different line once, from the first page that has it."""
    found: dict[tuple[tuple[str, ...], bool], Line] = {}
    for page in filter(Path.exists, PAGES):
        if page.parent == TUTORIALS and page.stem != "examples":  # each is run as a whole
            continue
        for line in _lines_of(page):
            found.setdefault((line.words, line.fails), line)
    return list(found.values())


def _lines_of(page: Path) -> Iterator[Line]:
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    for _, code in FENCE.findall(text):
        for words, below in _SHELL.findall(code):
            yield Line(_first_command(words), name, str(below).startswith("error:"))
    for words in _INLINE.findall(FENCE.sub("", text)):
        yield Line(_first_command(words), name, fails=False)


def _first_command(text: str) -> tuple[str, ...]:
    """Return the words up to a pipe, a redirection or the next command."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|>&<;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word and set(word) <= set("|>&<;"):
            return tuple(words[:-1] if words and words[-1] == "2" else words)
        words.append(word)
    return tuple(words)
