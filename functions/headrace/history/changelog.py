"""The raw changes of the lake: each write of a task is a line, each batch of lines a file.

A line says what the task was before and after, flat and without what nobody asks a history for:
no results or progress; a payload only where its queue keeps it, and with it what else a replay
needs of the task.  Leases are told apart but not told: each is written as a digest, because a lease
is its worker's secret.

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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, NamedTuple

from headrace.domain.access import covers
from headrace.domain.filters import MESSAGE
from headrace.domain.ids import group_of, settled_under
from headrace.domain.instants import micros_of
from headrace.domain.lifecycle import Action
from headrace.domain.limits import utf8_bytes
from headrace.domain.task import OffloadedText, State, Task
from headrace.domain.transitions import Transition, UnreadableWrite
from headrace.domain.write import Spot, TaskWrite
from headrace.store.base import Lake

RAW: Final = "raw"
"""The folder of the lake where lines are."""

FORMAT: Final = 1
FORGET: Final = "forget"
"""The move of a task that the table removed because it was past its retention."""

FILLED: Final = "export-"
"""How the shard of a line begins that no stream wrote: it was made from an export."""

_FAILURES: Final = (Action.FAIL, Action.RECLAIM)
_DIGESTS: Final = 4096  # kept: a lease is in two or three lines

Line = dict[str, Any]


def line(write: TaskWrite, change: Transition, *, shard: str, payload: bool) -> Line:
    """Return the lake's line for *change*, which was read from *write*.

    *shard* is the part of the store's log that the write is from; *payload* keeps a payload that
    is new.  Raises UnreadableWrite.
    """
    old, new = write.before, write.after
    tombstone = new if new is not None and new.remains else None
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
        if old is None or new.last_move in _GIVEN_ANEW:
            _add_settings(entry, new)
    return entry


_GIVEN_ANEW: Final = (Action.OVERWRITE, Action.MOVE)
"""By which moves a task may get other tags, or another place among those of its queue."""


def _add_settings(entry: Line, task: Task) -> None:
    """Add what a producer said of *task* that a replay says again; tags always, none as none."""
    entry["tags"] = dict(task.tags)
    given = {
        "group_key": task.group_key,
        "priority": task.priority and str(task.priority),
        "retry_strategy": task.retry and json.dumps(asdict(task.retry), separators=(",", ":")),
        "keepalive_timeout_in_seconds": task.keepalive,
    }
    entry.update({name: value for name, value in given.items() if value is not None})


def _add_size(
    entry: Line,
    name: str,
    text: str | None,
    reference: OffloadedText | None,
    known: int | None = None,
) -> None:
    """Add the bytes of a text, be it kept elsewhere; *known* if the text was left out."""
    if reference is not None:
        entry[name] = reference.bytes
    elif text is not None:
        entry[name] = utf8_bytes(text)
    elif known is not None:
        entry[name] = known


@lru_cache(_DIGESTS)
def digest(secret: str) -> str:
    """Return the digest that stands for a lease in the lake: always the same, and no way back."""
    return blake2b(secret.encode(), digest_size=8, person=b"headrace").hexdigest()


class _SideNames(NamedTuple):
    """What the columns of a side are called."""

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
    """Add where the task was before or after, as *names* say, with its *lease*."""
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
    """Add whose report this write was, and the group that its lease is under."""
    if new is not None and (settled := _settled(new.settled_lease_id, held)) is not None:
        entry["settled"] = settled
    if (group := _group(lease) or _group(held)) is not None:
        entry["lease_group"] = group


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
    return gzip.compress(_encode_lines()(lines), _LEVEL, mtime=0)


def _plain(value: object) -> str:
    """A text of a type of its own is the text."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(type(value))


@cache
def _encode_lines() -> Callable[[Sequence[Line]], bytes]:
    """Return what writes lines; only a recorder does, jobs on Spark know the names alone."""
    import msgspec  # noqa: PLC0415 (a job on Spark has no need of it)

    return msgspec.json.Encoder(enc_hook=_plain).encode_lines
