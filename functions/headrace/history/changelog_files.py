"""The raw changes of the lake: each batch of the stream as one file, before it counts as recorded.

A batch that comes again writes the same file again.  A part of it writes a file of its own beside
the whole one, never over it; what is there twice the rollup drops, by task and version.  A file
holds what was written in one hour, so that a day's changes are in that day's folder and nowhere
else; a batch across the hour becomes two.
"""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from headrace.domain.access import covers
from headrace.history.changelog import RAW, Line
from headrace.store.base import Lake

_LEVEL: Final = 3  # twice as quick as gzip's own choice, for a tenth more
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_HOUR: Final = 3_600_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Changelog:
    """Writes to *lake*; ``payloads`` are patterns of the queues whose payloads are kept."""

    lake: Lake
    payloads: Sequence[str] = ()

    def keeps_payload(self, queue: str) -> bool:
        """Tell whether the payloads of *queue* are kept."""
        return any(covers(pattern, queue) for pattern in self.payloads)

    def write(self, lines: Sequence[Line]) -> None:
        """Write the changes of one batch, in order.  Raises Unavailable."""
        for _, hour in groupby(lines, _hour):
            part = list(hour)
            self.lake.put(raw_name(part), packed(part))


def raw_name(lines: Sequence[Line]) -> str:
    """Return the name of a batch: when its first change was made, its shard, first and last."""
    first, last = lines[0], lines[-1]
    made = datetime.fromtimestamp(_hour(first) * 3600, UTC)
    shard = _UNFIT.sub("_", first["shard"])
    span = f"{first['sequence']}-{last['sequence']}"
    return f"{RAW}/{made:dt=%Y-%m-%d/hh=%H}/{shard}-{span}.json.gz"


def _hour(line: Line) -> int:
    return int(line["recorded_at"]) // _HOUR


def packed(lines: Sequence[Line]) -> bytes:
    """Return *lines* as JSON lines, gzipped: always the same bytes for the same lines."""
    text = "".join(_json(line) + "\n" for line in lines)
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
