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
from headrace.domain.lifecycle import Action
from headrace.domain.task import State, Task
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
_DIGESTS: Final = 4096  # kept: a lease is in two or three lines

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
        held = None if old is None else old.lease_id
        lease = None if new is None else new.lease_id
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
        }
        _add_side(entry, _FROM, change.left, old, held)
        _add_side(entry, _TO, change.entered, new, lease)
        _add_lease(entry, new, held, lease)
        _add_delivery(entry, old, new, change)
        _add_set(entry, _OF_THE_TASK, task)
        _add_error(entry, new)
        _add_set(entry, _SIZES, task)
        if payload and new is not None:
            if old is None or old.payload != new.payload:
                _add_set(entry, ("payload",), new)
            if old is None or new.last_move in _GIVEN_ANEW:
                _add_settings(entry, new.whole())
    except MALFORMED as error:
        message = f"{write.sequence}: not the image of a task: {type(error).__name__}: {error}"
        raise UnreadableImage(message) from error
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


_OF_THE_TASK: Final = ("finished_at", "expires_at", "dead_reason")
_SIZES: Final = ("payload_bytes", "result_bytes")


def _add_set(entry: Line, names: Sequence[str], task: TaskView) -> None:
    """Add those of the fields *names* that are set."""
    for name in names:
        if (value := getattr(task, name)) is not None:
            entry[name] = value


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
    entry: Line, names: _SideNames, spot: Spot | None, task: TaskView | None, lease: str | None
) -> None:
    """Add where the task was before or after, as *names* say, with its *lease*."""
    if spot is None or task is None:
        return
    entry[names.queue], state = spot
    entry[names.state] = str(state)
    if (due := task.due_at) is not None:
        entry[names.due] = due
    if (enqueued := task.enqueued_at) is not None:
        entry[names.enqueued] = enqueued
    if (attempts := task.attempts) is not None:
        entry[names.attempts] = attempts
    entry[names.hop] = task.hops
    if lease is not None:
        entry[names.lease] = lease and digest(lease)
    if (lease_end := task.lease_expires_at) is not None:
        entry[names.lease_end] = lease_end


def _add_lease(entry: Line, new: TaskView | None, held: str | None, lease: str | None) -> None:
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


def _add_delivery(
    entry: Line, old: TaskView | None, new: TaskView | None, change: Transition
) -> None:
    """Add worker and start of the delivery that the change begins, continues or ends."""
    for spot, task in ((change.left, old), (change.entered, new)):
        if spot is not None and spot[1] is State.INFLIGHT and task is not None:
            if (worker := task.worker) is not None:
                entry["worker"] = worker
            if (started := task.started_at) is not None:
                entry["started_at"] = started
            return


def _move(task: TaskView | None, *, forgotten: bool) -> str:
    """Return the action that *task* names; of a task of which there is none, how it went."""
    if task is not None:
        return task.last_move
    return FORGET if forgotten else Action.DELETE


def _add_error(entry: Line, new: TaskView | None) -> None:
    """Add the error of the attempt that just failed."""
    if new is None or new.last_move not in _FAILURES or (error := new.latest_error) is None:
        return
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
