"""The differences between two texts by line, with a few unchanged lines around them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final

from .formatting import count_of

_AROUND: Final = 3  # unchanged lines around each change
_COMPARED: Final = 1_000  # lines: difflib takes quadratic time
_SHOWN: Final = 400  # lines
_LONG: Final = 400  # letters of a line
_LEAD: Final = 60  # letters before the first that differs in a long line


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line: ``kind`` is same, gone, new, or skip for lines that are left out."""

    kind: str
    text: str


def differing(before: str, after: str) -> tuple[DiffLine, ...]:
    """Return the lines of *after* that are not in *before*, and the reverse; none: the same."""
    if before == after:
        return ()
    old, new = before.split("\n"), after.split("\n")
    longest = max(len(old), len(new))
    if longest > _COMPARED:
        return (DiffLine("skip", f"{count_of(longest, 'line')} are too many to compare"),)
    lines = list(_lines(old, new))
    more = len(lines) - _SHOWN
    if more > 0:
        lines[_SHOWN:] = [DiffLine("skip", f"… and {count_of(more, 'line')} more")]
    return tuple(lines)


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    end = 0
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(_AROUND):
        start = group[0][1]
        if start > end:
            yield DiffLine("skip", f"… {count_of(start - end, 'line')} as before")
        for tag, first, last, new_first, new_last in group:
            if tag == "equal":
                yield from (DiffLine("same", line[:_LONG]) for line in old[first:last])
            else:
                yield from _changed(old[first:last], new[new_first:new_last])
        end = group[-1][2]
    if end < len(old):
        yield DiffLine("skip", f"… {count_of(len(old) - end, 'line')} as before")


def _changed(gone: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    pairs = [_cut(a or "", b or "") for a, b in zip_longest(gone, new)]
    yield from (DiffLine("gone", a) for a, _ in pairs[: len(gone)])
    yield from (DiffLine("new", b) for _, b in pairs[: len(new)])


def _cut(old: str, new: str) -> tuple[str, str]:
    """Return two lines, of long ones the part in which they begin to differ."""
    differ = (place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    start = max(0, next(differ, min(len(old), len(new))) - _LEAD)
    return _part(old, start), _part(new, start)


def _part(line: str, start: int) -> str:
    if len(line) <= _LONG:
        return line
    end = start + _LONG
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
