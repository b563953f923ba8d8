"""The raw changes of the lake: each write of a task is a line, each batch of lines a file.

A line says what the images before and after say, flat and without what nobody asks a history for:
no tags, results or progress, and a payload only where its queue keeps it.  Leases are told apart
but not told: each is written as a digest, because a lease is its worker's secret.

Instants are microseconds since 1970.  What is not set is left out.  The columns that Spark reads
them into, with types and units, are in ``headrace.spark.lake.schemas``; a test compares.

A file is written before its batch counts as recorded.  A batch that comes again writes the same
file again.  A part of it writes a file of its own beside the whole one, never over it; what is
there twice the rollup drops, by task and version.  A file holds what was written in one hour, so
that a day's changes are in that day's folder and nowhere else; a batch across the hour becomes two.
"""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final

from headrace.domain.access import covers
from headrace.domain.filters import MESSAGE
from headrace.domain.lease import group_of, settled_under
from headrace.domain.lifecycle import Action
from headrace.history.transitions import (
    DUE,
    ENQUEUED_AT,
    ERRORS,
    EXPIRES_AT,
    FINISHED_AT,
    LAST_MOVE,
    LEASE_EXPIRES_AT,
    LEASE_ID,
    SPENT,
    STARTED_AT,
    Image,
    Transition,
    UnreadableImage,
    lease_in,
)
from headrace.store.base import Lake

RAW: Final = "raw"
"""The folder of the lake where lines are."""

FORMAT: Final = 1
FORGET: Final = "forget"
"""The move of a task that the table removed because it was past its retention."""

FILLED: Final = "export-"
"""How the shard of a line begins that no stream wrote: it was made from an export."""

# Attributes by the names under which headrace.store.items keeps them; a test compares.
TASK_ID: Final = "task_id"
CREATED_AT: Final = "created_at"
VERSION: Final = "version"
ATTEMPTS: Final = "attempts"
WORKER: Final = "worker"
SETTLED: Final = "settled_lease_id"
DEAD_REASON: Final = "dead_reason"
PAYLOAD: Final = "payload"
RESULT: Final = "result"
TRAIL: Final = "trail"

SIZES: Final = "_sizes"
"""Where an image whose large texts were left out says how many bytes they have."""

_ERROR: Final = ("kind", "type", "message")
_FAILURES: Final = (Action.FAIL, Action.RECLAIM)

Line = dict[str, Any]


def line(
    old: Image | None,
    new: Image | None,
    change: Transition,
    *,
    shard: str,
    sequence: int,
    recorded_at: int,
    forgotten: bool,
    payload: bool,
) -> Line:
    """Return the lake's line for *change*, which was read from the images *old* and *new*.

    *forgotten* is a removal by the table itself; *payload* keeps a payload that is new.
    Raises UnreadableImage.
    """
    last = new if new is not None and SPENT in new else None  # all that is left of it
    if last is not None:
        new = None
    image = new if new is not None else old
    if image is None:
        message = f"{sequence}: a change without images"
        raise UnreadableImage(message)
    try:
        entry: Line = {
            "format": FORMAT,
            "shard": shard,
            "sequence": str(sequence),
            "recorded_at": recorded_at,
            "at": change.at,
            "task_id": image[TASK_ID]["S"],
            "created_at": int(image[CREATED_AT]["N"]),
            "version": int(image[VERSION]["N"]) + (new is None),
            "move": _move(new or last, forgotten=forgotten),
            **_side("from", change.left, old),
            **_side("to", change.entered, new),
            "settled": _settled(old, new),
            "lease_group": _group(new) or _group(old),
            **_delivery(old, new, change),
            "finished_at": _number(image, FINISHED_AT),
            "expires_at": _number(image, EXPIRES_AT),
            "dead_reason": _text(image, DEAD_REASON),
            **_error(new),
            "payload_bytes": _bytes(image, PAYLOAD),
            "result_bytes": _bytes(image, RESULT),
        }
        if payload and new is not None and (old is None or old.get(PAYLOAD) != new.get(PAYLOAD)):
            entry["payload"] = _text(new, PAYLOAD)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"{sequence}: not the image of a task: {type(error).__name__}: {error}"
        raise UnreadableImage(message) from error
    return {name: value for name, value in entry.items() if value is not None}


def digest(secret: str) -> str:
    """Return the digest that stands for a lease in the lake: always the same, and no way back."""
    return blake2b(secret.encode(), digest_size=8, person=b"headrace").hexdigest()


def _side(side: str, spot: tuple[str, str] | None, image: Image | None) -> Line:
    """Return where the task was before (*from*) or after (*to*), as that image says."""
    if spot is None or image is None:
        return {}
    lease = _text(lease_in(image), LEASE_ID)
    trail = image.get(TRAIL)
    return {
        f"queue_{side}": spot[0],
        f"state_{side}": str(spot[1]),
        f"due_{side}": _number(image, DUE),
        f"enqueued_{side}": _number(image, ENQUEUED_AT),
        f"attempts_{side}": _number(image, ATTEMPTS),
        f"hop_{side}": len(trail["L"]) if trail else 0,
        f"lease_{side}": lease and digest(lease),
        f"lease_end_{side}": _number(lease_in(image), LEASE_EXPIRES_AT),
    }


def _settled(old: Image | None, new: Image | None) -> str | None:
    """Return whose report this write was, as a digest of its lease; a group's is its delivery's."""
    settled = _text(new, SETTLED) if new else None
    if settled is None:
        return None
    held = _text(lease_in(old), LEASE_ID) if old else None
    group = group_of(held)
    if held and group and settled_under(group, settled):
        return digest(held)
    return digest(settled)


def _group(image: Image | None) -> str | None:
    """Return the group that a lease is under, as a digest."""
    group = group_of(_text(lease_in(image), LEASE_ID)) if image else None
    return group and digest(group)


def _delivery(old: Image | None, new: Image | None, change: Transition) -> Line:
    """Return worker and start of the delivery that the change begins, continues or ends."""
    for spot, image in ((change.left, old), (change.entered, new)):
        if spot is not None and spot[1] == "INFLIGHT" and image is not None:
            return {"worker": _text(image, WORKER), "started_at": _number(image, STARTED_AT)}
    return {}


def _move(image: Image | None, *, forgotten: bool) -> str:
    """Return the action that *image* names; of a task of which there is none, how it went."""
    if image is not None:
        return str(image[LAST_MOVE]["S"])
    return FORGET if forgotten else Action.DELETE


def _error(new: Image | None) -> Line:
    """Return the error of the attempt that just failed."""
    if new is None or new[LAST_MOVE]["S"] not in _FAILURES or not new[ERRORS]["L"]:
        return {}
    error = json.loads(new[ERRORS]["L"][-1]["S"])
    return {f"error_{name}": str(error.get(name, ""))[:MESSAGE] for name in _ERROR}


def _text(image: Image, name: str) -> str | None:
    return str(image[name]["S"]) if name in image else None


def _number(image: Image, name: str) -> int | None:
    return int(image[name]["N"]) if name in image else None


def _bytes(image: Image, name: str) -> int | None:
    size = image.get(SIZES, {}).get(name)
    if size is not None:
        return int(size)
    text = _text(image, name)
    return None if text is None else len(text.encode())


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
