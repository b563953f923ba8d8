"""The claim log: the rows that a batch has leased, stored in the control table.

Spark may run a part of a job twice, one after the other or at once, and a stream that starts again
asks for the batch that it had.  So the pages of a claim log decide which tasks of a shard belong to
a batch.  Each page is written once: a reader that comes second with a page releases the tasks that
it leased, no attempt used, and uses the stored page.  A page without rows is the last one.

So every reader of a share has the same rows.  No transform has seen tasks that were leased but not
claimed because a process died in between.
"""

import base64
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.domain.task import Task
from headrace.store.base import Record, Store, every_record

Lease: TypeAlias = tuple[str, str]
"""The id of a task, and the lease of one delivery of it."""

KIND: Final = "claim"
KEPT: Final = timedelta(days=30)
"""How long a page is kept if no process removes it: as long as a stream may be down."""

INLINE: Final = 32 * 1024
"""Bytes of a payload that are written down with its row; a larger one is read from its task."""

_PAGE: Final = 300_000  # bytes of a record; DynamoDB takes 400 KB
_RECORDS: Final = 25  # read at a time, each of up to that size
_ROWS: Final = "rows"
_LAPSED: Final = "lapsed"
_COLUMNS: Final = ("id", "lease", "payload")
# Not by pa.array(), which imports pandas: Spark plans each read in a process that has no other use.
_NOTHING: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, pa.string()) for _ in _COLUMNS], names=_COLUMNS
)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """The claim log of a group: pages by shard and number."""

    store: Store
    group: str

    def page(self, shard: int, number: int) -> pa.RecordBatch | None:
        """Return a page as it was written; None: it was not yet."""
        record = self.store.record(KIND, self._name(shard, number))
        return None if record is None else _decoded(record.body[_ROWS])

    def write(self, shard: int, number: int, text: str, *, now: datetime) -> pa.RecordBatch | None:
        """Write a page, as _encoded() makes it; return the one that was there before, if any."""
        name = self._name(shard, number)
        record = Record(KIND, name, {_ROWS: text}, expires_at=now + KEPT)
        if self.store.put_record(record, replaces=None):
            return None
        there = self.store.record(KIND, name)
        if there is None or there.body[_ROWS] == text:  # the answer to our own write was lost
            return None
        return _decoded(there.body[_ROWS])

    def every(self) -> Iterator[pa.RecordBatch]:
        """Yield the pages that were written."""
        for record in self._records():
            if _ROWS in record.body:
                yield _decoded(record.body[_ROWS])

    def leases(self) -> dict[str, str]:
        """Return the lease of each task that was claimed, by its id."""
        return {id_: lease for page in self.every() for id_, lease in leases_in(page)}

    def note_planned(self, *, now: datetime) -> None:
        """Write down that a micro-batch of this group is planned, until forget() removes it."""
        record = Record(KIND, self._batch, {_LAPSED: False}, expires_at=now + KEPT)
        self.store.put_record(record, replaces=None)

    def note_lapsed(self, *, now: datetime) -> None:
        """Write down that this group's micro-batch is read without its lapsed rows from now on."""
        record = Record(KIND, self._batch, {_LAPSED: True}, expires_at=now + KEPT)
        self.store.renew_record(record)

    def is_lapsed(self) -> bool | None:
        """Return whether note_lapsed() was called; None if no micro-batch is written down."""
        record = self.store.record(KIND, self._batch)
        return None if record is None else bool(record.body[_LAPSED])

    def forget(self) -> None:
        """Remove everything that is written down of this group."""
        for record in list(self._records()):
            self.store.drop_record(KIND, record.name)

    def _records(self) -> Iterator[Record]:
        return every_record(self.store, KIND, prefix=f"{self.group}/", page=_RECORDS)

    @property
    def _batch(self) -> str:
        return f"{self.group}/batch"

    def _name(self, shard: int, number: int) -> str:
        return f"{self.group}/{shard:04d}/{number:06d}"


@dataclass(slots=True)
class ShardShare:
    """The share of one shard in a batch, up to *room* tasks, for one reader.

    *lease* leases up to so many tasks as they are iterated, and yields them in record batches;
    *held* yields all tasks that the group holds in this shard; *release* releases tasks by id and
    lease, no attempt used.
    """

    claims: GroupClaims
    shard: int
    room: int
    lease: Callable[[int], Iterator[pa.RecordBatch]]
    held: Callable[[], Iterator[pa.RecordBatch]]
    release: Callable[[Sequence[Lease]], object]
    now: Callable[[], datetime]
    _known: set[Lease] = field(default_factory=set, init=False)
    _own: deque[pa.RecordBatch] = field(default_factory=deque, init=False)
    _source: Iterator[pa.RecordBatch] | None = field(default=None, init=False)

    def pages(self) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the pages, each with whether it was stored before.

        After the last page it releases the tasks that it leased and did not claim.  If it is not
        iterated to the end, the end of the batch releases them.
        """
        number, room, behind = 0, self.room, True
        while room > 0:
            page = self.claims.page(self.shard, number) if behind else None
            before = page is not None
            if page is None:
                behind = False
                page, text = self._offered(room)
                other = self.claims.write(self.shard, number, text, now=self.now())
                if other is not None:  # another reader was quicker
                    page, before, behind, self._source = other, True, True, None
            self._note(page)
            if not page.num_rows:
                break
            yield page, before
            room -= page.num_rows
            number += 1
        for rows in self._own:
            self.release(leases_in(rows))

    def _offered(self, room: int) -> tuple[pa.RecordBatch, str]:
        """Return the candidate for the next page: tasks leased and not claimed, or new ones."""
        if not self._own:
            rows = self._unclaimed() if self._source is None else None
            if rows is not None:
                return _fitting(rows.slice(0, room))
            self._source = self._source or self.lease(room)
            rows = next(self._source, None)
            if rows is None:  # unless another reader has just leased what there was
                rows = self._unclaimed() or _NOTHING
                return _fitting(rows.slice(0, room))
            self._own.append(rows)
        return _fitting(self._own[0].slice(0, room))

    def _unclaimed(self) -> pa.RecordBatch | None:
        """Return some tasks that the group holds and no page has, or None."""
        for rows in self.held():
            left = self._left(rows)
            if left.num_rows:
                return left
        return None

    def _note(self, page: pa.RecordBatch) -> None:
        self._known.update(leases_in(page))
        rest = (self._left(rows) for rows in self._own)
        self._own = deque(rows for rows in rest if rows.num_rows)

    def _left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return only(rows, [one not in self._known for one in leases_in(rows)])


def lapsed_in(
    rows: pa.RecordBatch, queue: str, group: str, tasks: Mapping[str, Task]
) -> list[bool]:
    """Return for each of *rows*, whose leases have ended, whether its task was not settled.

    Such a task comes again in another batch.
    """
    found = [(tasks.get(id_), lease) for id_, lease in leases_in(rows)]
    return [
        task is not None and task.queue == queue and not settled(task, lease, group)
        for task, lease in found
    ]


def is_leased(task: Task | None, lease: str, queue: str) -> bool:
    """Return whether *task* is in flight in *queue* under this very *lease*."""
    here = task is not None and task.queue == queue
    return here and task is not None and task.lease_id == lease


def settled(task: Task | None, lease: str, group: str) -> bool:
    """Whether the last report about *task* was of this lease of a group."""
    return task is not None and task.settled_lease_id in (lease, group)


def _bare(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return *rows* without the payloads of more than INLINE bytes."""
    payloads = rows.column("payload")
    small = pc.less_equal(pc.binary_length(payloads), INLINE)
    place = rows.schema.get_field_index("payload")
    return rows.set_column(place, "payload", pc.if_else(small, payloads, None))


def with_payloads(rows: pa.RecordBatch, texts: Mapping[str, str | None]) -> pa.RecordBatch:
    """Return *rows* with the payloads that they lack, by the id of their task."""
    place = rows.schema.get_field_index("payload")
    pairs = zip(rows.column("id").to_pylist(), rows.column("payload").to_pylist(), strict=True)
    made = [texts.get(id_) if text is None else text for id_, text in pairs]
    return rows.set_column(place, "payload", pa.array(made, pa.string()))


def lacking(rows: pa.RecordBatch) -> list[str]:
    """Return the ids of those of *rows* whose payload was not written down, or never was."""
    return pc.filter(rows.column("id"), pc.is_null(rows.column("payload"))).to_pylist()


def only(rows: pa.RecordBatch, wanted: Collection[bool]) -> pa.RecordBatch:
    """Return those of *rows* that are wanted."""
    return rows if all(wanted) else rows.filter(pa.array(list(wanted), pa.bool_()))


def leases_in(rows: pa.RecordBatch) -> list[Lease]:
    """Return id and lease of each of *rows*."""
    ids, leases = (rows.column(name).to_pylist() for name in ("id", "lease"))
    return list(zip(ids, leases, strict=True))


def _fitting(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, str]:
    """Return as many of *rows*, from the first, as fit a record, and how they are written down."""
    text = _encoded(_bare(rows))
    while len(text) > _PAGE and rows.num_rows > 1:
        rows = rows.slice(0, rows.num_rows // 2)
        text = _encoded(_bare(rows))
    return rows, text


def _encoded(rows: pa.RecordBatch) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    return base64.b85encode(sink.getvalue().to_pybytes()).decode()


def _decoded(text: str) -> pa.RecordBatch:
    with pa.ipc.open_stream(base64.b85decode(text)) as stream:
        return stream.read_next_batch()
