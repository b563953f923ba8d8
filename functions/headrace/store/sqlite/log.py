"""What each write did to its task, kept until the recorder has read it.

A side of a line is the task as a row, its payload left out and measured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from headrace.domain.instants import micros_of
from headrace.store.sqlite.rows import Row

Line = tuple[Any, ...]
WRITE_LOG: Final = (
    "INSERT INTO changes (at, forgotten, before, after, payload) VALUES (?, ?, ?, ?, ?)"
)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Log:
    """Writes lines; ``keeps`` tells of a queue whether payloads that are new stand in them."""

    now: Callable[[], datetime]
    keeps: Callable[[str], bool] = lambda _queue: False

    def line(self, old: Row | None, new: Row | None, *, forgotten: bool = False) -> Line:
        """Return the line of a write."""
        payload = None
        if new is not None and (old is None or old[-1] != new[-1]) and new[1] is not None:
            payload = new[-1] if self.keeps(new[1]) else None
        return (micros_of(self.now()), forgotten, _side(old), _side(new), payload)


def _side(row: Row | None) -> str | None:
    if row is None:
        return None
    payload = row[-1]
    size = 0 if payload is None else len(payload.encode())
    return _encode((*row[:-1], size)).decode()
