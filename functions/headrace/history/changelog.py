"""The raw changes of the lake: each write of a task is a line, each batch of lines a file.

A line says what the task was before and after, flat and without what nobody asks a history for:
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
from headrace.domain.write import Spot, TaskView, TaskWrite
from headrace.history.transitions import MALFORMED, Transition, UnreadableImage
from headrace.store.base import Lake

RAW: Final = "raw"
"""The folder of the lake where lines are."""

FORMAT: Final = 1
FORGET: Final = "forget"
"""The move of a task that the table removed because it was past its retention."""

FILLED: Final = "export-"
"""How the shard of a line begins that no stream wrote: it was made from an export."""

_FAILURES: Final = (Action.FAIL, Action.RECLAIM)

Line = dict[str, Any]


def line(write: TaskWrite, change: Transition, *, shard: str, payload: bool) -> Line:
    """Return the lake's line for *change*, which was read from *write*.

    *shard* is the part of the store's log that the write is from; *payload* keeps a payload that
    is new.  Raises UnreadableImage.
    """
    old, new = write.before, write.after
    last = new if new is not None and new.spot is None else None  # all that is left of it
    if last is not None:
        new = None
    task = new or old
    if task is None:
        message = f"{write.sequence}: a change without images"
        raise UnreadableImage(message)
    try:
        held, lease = (None if side is None else side.lease_id for side in (old, new))
        entry: Line = {
            "format": FORMAT,
            "shard": shard,
            "sequence": str(write.sequence),
            "recorded_at": write.recorded_at,
            "at": change.at,
            "task_id": task.id,
            "created_at": task.created_at,
            "version": task.version + (new is None),
            "move": _move(new or last, forgotten=write.forgotten),
            **_side("from", change.left, old, held),
            **_side("to", change.entered, new, lease),
            "settled": new and _settled(new.settled_lease_id, held),
            "lease_group": _group(lease) or _group(held),
            **_delivery(old, new, change),
            "finished_at": task.finished_at,
            "expires_at": task.expires_at,
            "dead_reason": task.dead_reason,
            **_error(new),
            "payload_bytes": task.payload_bytes,
            "result_bytes": task.result_bytes,
        }
        if payload and new is not None and (old is None or old.payload != new.payload):
            entry["payload"] = new.payload
    except MALFORMED as error:
        message = f"{write.sequence}: not the image of a task: {type(error).__name__}: {error}"
        raise UnreadableImage(message) from error
    return {name: value for name, value in entry.items() if value is not None}


def digest(secret: str) -> str:
    """Return the digest that stands for a lease in the lake: always the same, and no way back."""
    return blake2b(secret.encode(), digest_size=8, person=b"headrace").hexdigest()


def _side(side: str, spot: Spot | None, task: TaskView | None, lease: str | None) -> Line:
    """Return where the task was before (*from*) or after (*to*), as that side says."""
    if spot is None or task is None:
        return {}
    return {
        f"queue_{side}": spot[0],
        f"state_{side}": str(spot[1]),
        f"due_{side}": task.due_at,
        f"enqueued_{side}": task.enqueued_at,
        f"attempts_{side}": task.attempts,
        f"hop_{side}": task.hops,
        f"lease_{side}": lease and digest(lease),
        f"lease_end_{side}": task.lease_expires_at,
    }


def _settled(settled: str | None, held: str | None) -> str | None:
    """Return whose report this write was, as a digest of its lease; a group's is its delivery's."""
    if settled is None:
        return None
    group = group_of(held)
    if held and group and settled_under(group, settled):
        return digest(held)
    return digest(settled)


def _group(lease: str | None) -> str | None:
    """Return the group that a lease is under, as a digest."""
    group = group_of(lease)
    return group and digest(group)


def _delivery(old: TaskView | None, new: TaskView | None, change: Transition) -> Line:
    """Return worker and start of the delivery that the change begins, continues or ends."""
    for spot, task in ((change.left, old), (change.entered, new)):
        if spot is not None and spot[1] == "INFLIGHT" and task is not None:
            return {"worker": task.worker, "started_at": task.started_at}
    return {}


def _move(task: TaskView | None, *, forgotten: bool) -> str:
    """Return the action that *task* names; of a task of which there is none, how it went."""
    if task is not None:
        return task.last_move
    return FORGET if forgotten else Action.DELETE


def _error(new: TaskView | None) -> Line:
    """Return the error of the attempt that just failed."""
    error = new.latest_error if new is not None and new.last_move in _FAILURES else None
    if error is None:
        return {}
    return {
        "error_kind": str(error.kind)[:MESSAGE],
        "error_type": error.type[:MESSAGE],
        "error_message": error.message[:MESSAGE],
    }


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
