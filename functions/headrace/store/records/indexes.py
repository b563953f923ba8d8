"""The indexed fields of queues: a record of each queue that has had indexed fields."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.store.base import Record, Store, every_record
from headrace.store.records import body_of, read_body

KIND: Final = "index"
_PAGE: Final = 100

KNOWN_AFTER: Final = timedelta(seconds=90)
"""The time after a change of the fields until every recorder uses the new fields."""


@dataclass(frozen=True, slots=True)
class QueueIndex:
    """The fields of a queue that are indexed, ``since`` they were last changed.

    The index is complete for ``ready`` fields; the entries of ``gone`` fields have to be removed.
    Fields in ``again`` are indexed again once all of their entries are removed.
    """

    queue: str
    fields: tuple[str, ...]
    since: datetime
    ready: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    version: int = 1
    again: tuple[str, ...] = ()

    def changed(self, fields: tuple[str, ...], now: datetime) -> "QueueIndex":
        """Return the index after a change of its fields to *fields*."""
        gone = {*self.gone, *self.fields} - {*fields}
        ready = tuple(field for field in self.ready if field in fields)
        return replace(
            self,
            fields=fields,
            since=now,
            ready=ready,
            gone=tuple(sorted(gone)),
            again=(),
        )

    def anew(self, now: datetime) -> "QueueIndex":
        """Return the index for a rebuild: as if its fields were removed, and added later.

        No recorder adds entries before that, so that the removal of entries comes to an end.
        """
        wanted = self.wanted
        return replace(self.changed((), now), again=wanted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The fields that will be indexed."""
        return self.again or self.fields

    @property
    def built(self) -> bool:
        """Whether there is nothing to do."""
        return not self.gone and not self.again and {*self.ready} == {*self.fields}


def to_record(index: QueueIndex) -> Record:
    """Return an index as a record."""
    usual = () if index.again else ("again",)
    return Record(KIND, index.queue, body_of(index, "queue", "version", *usual), index.version)


def from_record(record: Record) -> QueueIndex:
    """Return the index of *record*.  Raises NewerRecord."""
    return read_body(record.body, QueueIndex, queue=record.name, version=record.version)


def index_of(store: Store, queue: str) -> QueueIndex | None:
    """Return the index of *queue*, or None if it never had one."""
    record = store.record(KIND, queue)
    return None if record is None else from_record(record)


def every_index(store: Store) -> Mapping[str, QueueIndex]:
    """Return the index of every queue."""
    found = every_record(store, KIND, page=_PAGE)
    return {record.name: from_record(record) for record in found}


def change_index(store: Store, queue: str, fields: tuple[str, ...], now: datetime) -> None:
    """Store that *fields* of *queue* are indexed, and no other fields."""
    while True:
        index = index_of(store, queue)
        if index is None:
            if not fields:
                return
            new = QueueIndex(queue, fields, now)
            if store.put_record(to_record(new), replaces=None):
                return
        elif index.wanted == fields or save_index(store, index.changed(fields, now)):
            return


def build_anew(store: Store, queue: str, now: datetime) -> None:
    """Store that the index of *queue* is rebuilt, if it exists; may be repeated.

    A rebuild that is running starts again.
    """
    while (index := index_of(store, queue)) is not None:
        if save_index(store, index.anew(now)):
            return


def save_index(store: Store, index: QueueIndex) -> bool:
    """Write *index*, if the stored version is the one that was read."""
    record = to_record(replace(index, version=index.version + 1))
    return store.put_record(record, replaces=index.version)
