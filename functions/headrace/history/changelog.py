"""The raw changes of the lake: each write of a task is a line, each chunk of lines a file.

A line has the task before and after the write, as flat columns, without results and progress.  The
payload, and the other members that a replay needs, are there only if the queue keeps payloads.
A lease is the secret of its worker, so a line has its digest.

Instants are microseconds since 1970.  Members that are not set are left out.  The columns of Spark,
with types and units, are in ``headrace.spark.lake.schemas``; a test compares.

A file is written before its chunk counts as recorded.  A chunk that is repeated writes the same
file again.  A part of it writes another file beside it; the rollup drops duplicates, by task and
version.  A file has the writes of one hour, so a day's changes are only in that day's folder; a
chunk across the hour becomes two files.
"""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from headrace.domain.access import covers
from headrace.domain.fingerprints import MESSAGE
from headrace.domain.ids import group_of
from headrace.domain.lifecycle import Action
from headrace.domain.limits import utf8_bytes
from headrace.domain.offload import Lake
from headrace.domain.retry import RetryStrategy
from headrace.domain.task import OffloadedText, State, Task
from headrace.domain.task_fields import REPLAYED
from headrace.domain.times import micros_of
from headrace.domain.transitions import Spot, TaskWrite, Transition, UnreadableWrite

RAW: Final = "raw"
"""The folder of the lake where lines are."""

FORMAT: Final = 1
FORGET: Final = "forget"
"""The move of a task that the table removed because it was past its retention."""

FILLED: Final = "export-"
"""The beginning of the shard of a line that was made from an export, not from a stream."""

_FAILURES: Final = (Action.FAIL, Action.RECLAIM)
_DIGESTS: Final = 4096  # in the cache, because a lease is in two or three lines

Line = dict[str, Any]


def line(write: TaskWrite, change: Transition, *, shard: str, payload: bool) -> Line:
    """Return the lake's line for *write* and its *change*.

    *shard* is the shard of the store's log; with *payload*, a new payload is included.
    Raises UnreadableWrite.
    """
    old, new = write.before, write.after
    tombstone = new if new is not None and new.is_tombstone else None
    if tombstone is not None:
        new = None
    task = new or old
    if task is None:
        raise UnreadableWrite("a change without a task")
    held = None if old is None else old.lease_id
    lease = None if new is None else new.lease_id
    entry: Line = {
        "format": FORMAT,
        "shard": shard,
        "sequence": str(write.sequence),
        "recorded_at": write.recorded_at,
        "at": change.at,
        "task_id": task.id,
        "created_at": micros_of(task.created_at),
        "version": task.version + (new is None),
        "move": _move(new or tombstone, forgotten=write.forgotten),
    }
    _add_side(entry, _FROM, change.left, old, held)
    _add_side(entry, _TO, change.entered, new, lease)
    _add_lease(entry, new, held, lease)
    _add_delivery(entry, old, new, change)
    if task.finished_at is not None:
        entry["finished_at"] = micros_of(task.finished_at)
    if task.expires_at is not None:
        entry["expires_at"] = micros_of(task.expires_at)
    if task.dead_reason is not None:
        entry["dead_reason"] = task.dead_reason
    _add_error(entry, new)
    _add_size(entry, "payload_bytes", task.payload, task.payload_ref, write.payload_bytes)
    _add_size(entry, "result_bytes", task.result, task.result_ref)
    if payload and new is not None:
        if new.payload is not None and (old is None or old.payload != new.payload):
            entry["payload"] = new.payload
        if old is None or new.last_move in _REPLACING:
            _add_settings(entry, new)
    return entry


_REPLACING: Final = (Action.OVERWRITE, Action.MOVE)
"""The moves that may change a task's tags, group or priority."""


def _add_settings(entry: Line, task: Task) -> None:
    """Add the members of *task* that a replay needs; the tags are always there, if only empty."""
    for field in REPLAYED:
        value = getattr(task, field.name)
        if field.name == "tags":
            value = dict(value)
        elif isinstance(value, RetryStrategy):
            value = json.dumps(asdict(value), separators=(",", ":"))
        if value is not None:
            entry[field.api_name] = value


def _add_size(
    entry: Line,
    name: str,
    text: str | None,
    reference: OffloadedText | None,
    known: int | None = None,
) -> None:
    """Add the bytes of a text, also of one in the object store; *known* if it was left out."""
    if reference is not None:
        entry[name] = reference.bytes
    elif text is not None:
        entry[name] = utf8_bytes(text)
    elif known is not None:
        entry[name] = known


@lru_cache(_DIGESTS)
def digest(secret: str) -> str:
    """Return the digest of a lease for the lake."""
    return blake2b(secret.encode(), digest_size=8, person=b"headrace").hexdigest()


class _SideNames(NamedTuple):
    """The names of the columns of one side."""

    queue: str
    state: str
    due: str
    enqueued: str
    attempts: str
    hop: str
    lease: str
    lease_end: str


def _names_of(side: str) -> _SideNames:
    return _SideNames(*(f"{name}_{side}" for name in _SideNames._fields))


_FROM: Final = _names_of("from")
_TO: Final = _names_of("to")


def _add_side(
    entry: Line, names: _SideNames, spot: Spot | None, task: Task | None, lease: str | None
) -> None:
    """Add the columns of one side: the *spot*, and the *task* with its *lease*."""
    if spot is None or task is None:
        return
    entry[names.queue], state = spot
    entry[names.state] = str(state)
    entry[names.due] = micros_of(task.due_at)
    entry[names.enqueued] = micros_of(task.enqueued_at)
    entry[names.attempts] = task.attempts
    entry[names.hop] = len(task.trail)
    if lease is not None:
        entry[names.lease] = lease and digest(lease)
    if task.lease_expires_at is not None:
        entry[names.lease_end] = micros_of(task.lease_expires_at)


def _add_lease(entry: Line, new: Task | None, held: str | None, lease: str | None) -> None:
    """Add the lease that reported this write, and its lease group."""
    if new is not None and (settled := _settled(new.settled_lease_id, held)) is not None:
        entry["settled"] = settled
    if (group := _group(lease) or _group(held)) is not None:
        entry["lease_group"] = group


def _settled(settled: str | None, held: str | None) -> str | None:
    """Return the digest of the lease that reported; for a group lease, that of the delivery."""
    if settled is None:
        return None
    group = group_of(held)
    if held and group and settled.startswith(group):  # by either id of its lease
        return digest(held)
    return digest(settled)


def _group(lease: str | None) -> str | None:
    """Return the digest of the group of a lease."""
    group = group_of(lease)
    return group and digest(group)


def _add_delivery(entry: Line, old: Task | None, new: Task | None, change: Transition) -> None:
    """Add worker and start of the delivery that the change begins, continues or ends."""
    for spot, task in ((change.left, old), (change.entered, new)):
        if spot is not None and spot[1] is State.INFLIGHT and task is not None:
            if task.worker is not None:
                entry["worker"] = task.worker
            if task.started_at is not None:
                entry["started_at"] = micros_of(task.started_at)
            return


def _move(task: Task | None, *, forgotten: bool) -> str:
    """Return the action that *task* names; without a task, how it was removed."""
    if task is not None:
        return task.last_move
    return FORGET if forgotten else Action.DELETE


def _add_error(entry: Line, new: Task | None) -> None:
    """Add the error of the attempt that just failed."""
    if new is None or new.last_move not in _FAILURES or not new.errors:
        return
    error = new.errors[-1]
    entry["error_kind"] = str(error.kind)[:MESSAGE]
    entry["error_type"] = error.type[:MESSAGE]
    entry["error_message"] = error.message[:MESSAGE]


_LEVEL: Final = 3  # twice as fast as level 6, and a tenth larger
_encoder: Final = msgspec.json.Encoder(enc_hook=str)  # for subclasses of str
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_HOUR: Final = 3_600_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Changelog:
    """Writes to *lake*; ``payloads`` are patterns of the queues whose payloads are kept."""

    lake: Lake
    payloads: Sequence[str] = ()

    def keeps_payload(self, queue: str) -> bool:
        """Return whether the payloads of *queue* are kept."""
        return any(covers(pattern, queue) for pattern in self.payloads)

    def write(self, lines: Sequence[Line]) -> None:
        """Write the changes of one chunk, in order.  Raises Unavailable."""
        for _, hour in groupby(lines, _hour):
            part = list(hour)
            self.lake.put(raw_name(part), packed(part))


def raw_name(lines: Sequence[Line]) -> str:
    """Return the name of a file: the hour, the shard, and the first and last sequence number."""
    first, last = lines[0], lines[-1]
    made = datetime.fromtimestamp(_hour(first) * 3600, UTC)
    shard = _UNFIT.sub("_", first["shard"])
    span = f"{first['sequence']}-{last['sequence']}"
    return f"{RAW}/{made:dt=%Y-%m-%d/hh=%H}/{shard}-{span}.json.gz"


def _hour(line: Line) -> int:
    return int(line["recorded_at"]) // _HOUR


def packed(lines: Sequence[Line]) -> bytes:
    """Return *lines* as JSON lines, gzipped: always the same bytes for the same lines."""
    return gzip.compress(_encoder.encode_lines(lines), _LEVEL, mtime=0)
