"""What is indexed of a queue's tasks: a record of each queue that has had fields to index."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.store.base import Record, Store, every_record
from headrace.store.records import body_of, read_body

KIND: Final = "index"
_PAGE: Final = 100

KNOWN_AFTER: Final = timedelta(seconds=90)
"""So long after fields are named every recorder knows of it, with a batch under way."""


@dataclass(frozen=True, slots=True)
class QueueIndex:
    """The fields of a queue that are indexed, ``since`` they were last changed.

    Of ``ready`` fields the index has all tasks; ``gone`` fields are to be taken out of it.  Fields
    in ``again`` are indexed again once all of their entries are taken out.
    """

    queue: str
    fields: tuple[str, ...]
    since: datetime
    ready: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    version: int = 1
    again: tuple[str, ...] = ()

    def changed(self, fields: tuple[str, ...], now: datetime) -> "QueueIndex":
        """Return what is to be indexed once *fields* are named."""
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
        """Return what is to be done to build it anew: as if its fields were named after a while.

        Until then nobody writes into it, so that taking out comes to an end.
        """
        wanted = self.wanted
        return replace(self.changed((), now), again=wanted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The fields that are indexed in the end."""
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
    """Return what is indexed of *queue*; None where nothing ever was."""
    record = store.record(KIND, queue)
    return None if record is None else from_record(record)


def every_index(store: Store) -> Mapping[str, QueueIndex]:
    """Return what is indexed of every queue."""
    found = every_record(store, KIND, page=_PAGE)
    return {record.name: from_record(record) for record in found}


def change_index(store: Store, queue: str, fields: tuple[str, ...], now: datetime) -> None:
    """Write down that *fields* are to be indexed of *queue*, instead of any others."""
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
    """Write down that the index of *queue*, if there is one, is to be built anew; may be repeated.

    What is being built anew is begun once more.
    """
    while (index := index_of(store, queue)) is not None:
        if save_index(store, index.anew(now)):
            return


def save_index(store: Store, index: QueueIndex) -> bool:
    """Write *index*, which was read with its version, if nobody else has written."""
    record = to_record(replace(index, version=index.version + 1))
    return store.put_record(record, replaces=index.version)
