"""Cutting texts to fit: the longest gives way first, and says so."""

import json
from collections.abc import Sequence
from typing import Final

MARK: Final = "… [cut]"
_MARK_BYTES: Final = len(MARK.encode())


def shorten(texts: Sequence[str], room: int) -> list[str]:
    """Return *texts* so that together they take at most *room* bytes as JSON in UTF-8.

    The quotes around them do not count.  What is cut ends with MARK.
    """
    sizes = [_size(text) for text in texts]
    if sum(sizes) <= room:
        return list(texts)
    most = _share(sizes, room)
    return [
        _cut(text, most) if size > most else text for text, size in zip(texts, sizes, strict=True)
    ]


def _share(sizes: Sequence[int], room: int) -> int:
    """Return the size down to which the longest must go: the short ones leave the rest to them."""
    left = len(sizes)
    for size in sorted(sizes):
        if size > room // left:
            break
        room -= size
        left -= 1
    return room // left


def _cut(text: str, most: int) -> str:
    """Return the longest beginning of *text* that has room for the mark."""
    low, high = 0, most  # a character takes at least a byte
    while low < high:
        middle = (low + high + 1) // 2
        if _size(text[:middle]) <= most - _MARK_BYTES:
            low = middle
        else:
            high = middle - 1
    return text[:low] + MARK


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2
