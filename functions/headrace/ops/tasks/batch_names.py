"""The names that a batch keeps: of its first members, and of dead members.

The latest names are in the batch's record, whose write costs no more with them; see
``store.records.batches``.  When it would cost more, they move to separate records: members in
chunks, dead members in one.  A move writes these first, so that a crash leaves a name in two places
and loses none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from headrace.domain.batch import DEAD_IDS, RESULTS, BatchDelta, TaskBatch
from headrace.store.base import Record, Store
from headrace.store.records import batches as batch_records

_KNOWN: Final = 10_000  # batches of which something is remembered between calls


class Uncounted(NamedTuple):
    """What a *version* of a *buffer* of the recorder holds of batches, by their ids."""

    buffer: str
    version: int
    at: datetime
    deltas: Mapping[str, Any]  # as BatchDelta.body() wrote them


@dataclass(slots=True, eq=False, repr=False)
class BatchNames:
    """Keeps and finds them, with what it needs from outside."""

    store: Store
    _apart: dict[str, int] = field(default_factory=dict)  # members in chunks, as last seen
    _dead: dict[str, int] = field(default_factory=dict)  # the dead that are named

    def full(self, key: str) -> bool:
        """Return whether a batch is known to have the most names of members."""
        return self._apart.get(key, 0) >= RESULTS

    def dead_full(self, key: str) -> bool:
        """Return whether a batch is known to have the most names of dead members."""
        return self._dead.get(key, 0) >= DEAD_IDS

    def members(self, batch: TaskBatch) -> list[str]:
        """Return the first members of *batch* in the order they were counted."""
        return _first(RESULTS, self._in_chunks(self._chunks(batch.key)), batch.members)

    def dead(self, batch: TaskBatch) -> tuple[str, ...]:
        """Return the dead that *batch* names."""
        apart = self._dead_record(batch) if batch.dead_apart else None
        return tuple(_first(DEAD_IDS, batch_records.members_of(apart), batch.dead_ids))

    def add(self, batch: TaskBatch, names: Iterable[str]) -> bool:
        """Add *names* to the chunks of *batch*; return whether no other write conflicted."""
        chunks = self._chunks(batch.key)
        known = self._in_chunks(chunks)
        fresh = _first(RESULTS, known, names)[len(known) :]
        if fresh:
            number, version, record = len(chunks), 0, None
            if chunks:
                number, version = len(chunks) - 1, chunks[-1].version
                both = [*batch_records.members_of(chunks[-1]), *fresh]
                record = _chunk(batch, number, both, version + 1)
            if record is None or not batch_records.is_small(record):
                number, version = len(chunks), 0
                record = _chunk(batch, number, fresh, 1)
            if not self.store.put_record(record, replaces=version or None):
                return False
        note(self._apart, batch.key, len(known) + len(fresh))
        return True

    def fitting(self, batch: TaskBatch, delta: BatchDelta) -> TaskBatch | None:
        """Return *batch*, to which *delta* was added, without names that make its write dearer.

        They are kept apart then.  None where somebody was in the way.
        """
        if batch.dead_apart and delta.revived:
            apart = batch_records.members_of(self._dead_record(batch))
            kept = [task_id for task_id in apart if task_id not in delta.revived]
            if len(kept) < len(apart) and not self._write_dead(batch, kept):
                return None
            batch = replace(batch, dead_apart=len(kept))
        if not batch_records.fits(batch):
            if batch.members and not self.add(batch, batch.members):
                return None
            dead = self.dead(batch)
            if batch.dead_ids and not self._write_dead(batch, dead):
                return None
            batch = replace(batch, members=(), dead_ids=(), dead_apart=len(dead))
        note(self._dead, batch.key, batch.dead_apart + len(batch.dead_ids))
        named = self._apart.get(batch.key, 0)
        # A name may be in both places, so the sum alone says only that it is time to look.
        if named < RESULTS <= named + len(batch.members) and len(self.members(batch)) == RESULTS:
            note(self._apart, batch.key, RESULTS)
        return batch

    def forget(self, batch: TaskBatch) -> None:
        """Drop what is kept apart of *batch*."""
        names = [chunk.name for chunk in self._chunks(batch.key)]
        names += [batch_records.dead_name(batch.key)] if batch.dead_apart else []
        for name in names:
            self.store.drop_record(batch_records.MEMBERS, name)
        self._apart.pop(batch.key, None)
        self._dead.pop(batch.key, None)

    def _chunks(self, key: str) -> Sequence[Record]:
        """Return the records of the first members, in their order."""
        found: list[Record] = []
        while len(self._in_chunks(found)) < RESULTS:
            name = batch_records.chunk_name(key, len(found))
            chunk = self.store.record(batch_records.MEMBERS, name)
            if chunk is None:
                break
            found.append(chunk)
        return found

    def _in_chunks(self, chunks: Iterable[Record]) -> list[str]:
        return _first(RESULTS, *map(batch_records.members_of, chunks))

    def _dead_record(self, batch: TaskBatch) -> Record | None:
        return self.store.record(batch_records.MEMBERS, batch_records.dead_name(batch.key))

    def _write_dead(self, batch: TaskBatch, dead: Sequence[str]) -> bool:
        there = self._dead_record(batch)
        version = 0 if there is None else there.version
        record = batch_records.dead_record(batch, dead, version=version + 1)
        return self.store.put_record(record, replaces=version or None)


def _chunk(batch: TaskBatch, number: int, members: Sequence[str], version: int) -> Record:
    until = batch.expires_at
    return batch_records.members_record(batch.key, number, members, version=version, until=until)


def _first(most: int, *lists: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(one for some in lists for one in some))[:most]


def note(numbers: dict[str, int], key: str, number: int) -> None:
    """Remember *number* of a batch, and forget the oldest if there are too many."""
    numbers[key] = number
    if len(numbers) > _KNOWN:
        numbers.pop(next(iter(numbers)))
