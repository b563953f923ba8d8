"""What a store promises.  ``tests/contract`` is this protocol in executable form."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from headrace.domain.change import KEY_LOCK, Change, Entry, KeyLock, Outcome
from headrace.domain.ids import new_request_token
from headrace.domain.indexing import Match
from headrace.domain.patch import (
    EXPIRES,
    ControlItem,
    Fields,
    Patch,
    Patched,
    Value,
    When,
    expiry_of,
    number,
    seconds_of,
    text,
)
from headrace.domain.task import Place, Task
from headrace.store.keys import BODY, NOTE, VERSION, WRITTEN_BY

_LAST_CHARACTER: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The last entry that was read in one partition of the index."""

    scheduled_at: datetime
    task_id: str

    def state(self) -> list[str]:
        """Return the position as JSON for a cursor."""
        return [self.scheduled_at.isoformat(), self.task_id]

    @classmethod
    def read(cls, state: Sequence[str]) -> "Position":
        """Return the position that state() wrote."""
        scheduled_at, task_id = state
        return cls(datetime.fromisoformat(scheduled_at).astimezone(UTC), task_id)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Entries of one partition in order; the next page begins after ``last``, None at the end."""

    entries: tuple[Entry, ...]
    last: Position | None


@dataclass(frozen=True, slots=True)
class CountPage:
    """The entries that one request has counted; the next begins after ``last``, None at the end."""

    number: int
    last: Position | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the control table: a JSON-like ``body`` under (``kind``, ``name``).

    The store removes it after ``expires_at``, not immediately.  ``note`` is a text that is written
    separately from the body.
    """

    kind: str
    name: str
    body: Mapping[str, Any]
    version: int = 1
    expires_at: datetime | None = None
    note: str | None = None


def record_patch(record: Record, replaces: int | None) -> Patch:
    """Return the write of *record* in place of version *replaces* (None: of no record)."""
    token = new_request_token()  # a repeat after a lost answer recognizes its own write by it
    put = {WRITTEN_BY: token, **_record_fields(record)}
    when = (When(VERSION, "=", replaces),)
    return Patch(record.kind, record.name, when, put=put, mode="replace")


def _record_fields(record: Record) -> dict[str, Value | None]:
    until = record.expires_at
    return {
        BODY: json.dumps(record.body, ensure_ascii=False),
        VERSION: record.version,
        EXPIRES: None if until is None else seconds_of(until),
    }


def record_of(item: ControlItem) -> Record:
    """Return the record in *item*."""
    fields = item.fields
    body, note = json.loads(text(fields, BODY)), text(fields, NOTE) if NOTE in fields else None
    version, until = number(fields, VERSION), expiry_of(fields)
    return Record(item.kind, item.name, body, version, until, note)


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """A record to write before changes, and the version that it replaces (None: no record)."""

    record: Record
    replaces: int | None


class RecordConflict(Exception):
    """The stored version of a record differs from the expected one, so no change was made."""


class Claim(Protocol):
    """Selects due tasks and leases them, for Store.claim() and Arrivals.wait()."""

    def claim(self) -> Collection[str]:
        """Lease due tasks, and return their ids.

        A store with transactions calls it in the writing thread.  Its reads and writes are part of
        one transaction, and an error undoes its writes.  It must not take long.
        """

    def undo(self) -> None:
        """Forget the tasks that claim() leased: its transaction failed."""


class Arrivals(Protocol):
    """Notifications of new waiting tasks in queues."""

    def numbers(self, queues: Collection[str]) -> Mapping[str, int]:
        """Return the number of arrivals in each of *queues* that ever had one."""

    def wait(
        self,
        queues: Collection[str],
        since: Mapping[str, int],
        seconds: float,
        parked: Claim | None = None,
    ) -> Mapping[str, int]:
        """Wait until the numbers of *queues* differ from *since*, or for *seconds*.

        A store with transactions runs the *parked* claim in the transaction that makes a task due.
        The wait ends when the claim leases a task.
        Return the last numbers read.  Raises Unavailable, and any error of *parked*.
        """


class Ends(Protocol):
    """Notifications of the end of tasks, from all processes."""

    def notify_on_end(self, task_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call *wake* when the task ends or is removed within the block that this returns.

        The caller must check itself whether the task ended before the block.  *wake* is called from
        any thread, may be called again, and must not take long.
        """


class Store(Protocol):
    """Tasks, their index, and control records.

    Every method may raise Unavailable when the table is throttled or cannot be reached.
    ``arrivals`` and ``task_ends`` are None if callers must poll.
    """

    @property
    def arrivals(self) -> Arrivals | None: ...

    @property
    def task_ends(self) -> Ends | None: ...

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: RecordWrite | None = None,
    ) -> list[Outcome]:
        """Make each change if its conditions hold; return the outcomes in the same order.

        Changes of one task take effect one after the other.  If the table stops answering after
        some changes, that is Unavailable; with *partly* the outcomes of the rest are Refused.

        The record of *noting* is written before the changes, or with them in one transaction, so
        that every reader of a change finds the record.  If its version does not match,
        this raises RecordConflict and makes no change.
        """

    def claim(self, claim: Claim) -> None:
        """Run *claim*: in one transaction, where the store has transactions over reads and writes.

        No other process leases its tasks then.  If the first transaction fails, undo() is called
        and the claim may run again.  Raises Unavailable, and any error of *claim*.
        """

    def read(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        """Return the tasks that exist, as last written.

        Without *consistent* the read costs half, and the last writes may be missing: for callers
        that change a task only if it is unchanged since the read.
        """

    def tombstones(self, task_ids: Iterable[str]) -> dict[str, Task]:
        """Return the tombstones of removed tasks, which identify repeated calls.

        A deleted or purged task has no tombstone, unless an undo keeps the whole task.
        """

    def ids(self, prefix: str, *, limit: int) -> tuple[Sequence[str], bool] | None:
        """Return up to *limit* ids that begin with *prefix*, in order, and whether there are more.

        Ids of tombstones may be included.  None if the store has no order of ids.
        """

    def entries(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        descending: bool = False,
        limit: int,
    ) -> EntryPage:
        """Return up to *limit* entries of one partition by time.

        From *since* to *until*, both included, after the position *after*.  The index may lag.
        """

    def count(
        self,
        place: Place,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: Position | None = None,
        now: datetime | None,
    ) -> CountPage:
        """Count the entries of one partition that one request reads.

        Bounds are as for ``entries``.  Entries past retention at *now* are not counted; with None
        they are.
        """

    def item(self, kind: str, name: str, *, consistent: bool = True) -> Fields | None:
        """Return the fields of a control item, or None if it is missing.

        Without *consistent* the read costs half, and the last writes may be missing.
        """

    def items_by_key(self, keys: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], Fields]:
        """Return the control items that exist by (kind, name), as last written."""

    def items_of_kind(
        self,
        kind: str,
        *,
        first: str = "",
        last: str = "",
        after: str = "",
        limit: int | None = None,
        consistent: bool = True,
    ) -> tuple[Sequence[ControlItem], bool]:
        """Return up to *limit* control items of a kind by name, and whether there are more.

        Their names are from *first* to *last*, both included, and after *after*; *last* empty is
        no bound.  *consistent* is as in ``item``.
        """

    def patch(self, patch: Patch, *, lazy: bool = False) -> Patched:
        """Make *patch* in one write if its conditions hold.

        A patch counts as made if the item already is as the patch would leave it.  *lazy*: every
        reader sees the write immediately, but a power failure may undo it, as long as no later
        write is on the disk.
        """

    def patch_all(self, patches: Sequence[Patch], *, tasks: Sequence[Change] = ()) -> bool:
        """Make all of *patches* in one transaction, or none; return whether they were made.

        *tasks* are new tasks, inserted in the same transaction.  It costs twice the units.
        """

    # -- key locks and records: control items of one form, written by patches ---------------------

    def key_lock(self, kind: str, name: str) -> str | None:
        """Return a key lock as last written."""
        return text(self.item(kind, name) or {}, KEY_LOCK) or None

    def key_locks(self, kind: str) -> dict[str, str]:
        """Return all key locks of a kind by name, as last written."""
        items, _ = self.items_of_kind(kind)
        return {item.name: text(item.fields, KEY_LOCK) for item in items}

    def set_key_lock(self, lock: KeyLock) -> bool:
        """Write or remove one key lock without a task; return whether it had the expected value."""
        return self.patch(lock.patch()).made

    def record(self, kind: str, name: str) -> Record | None:
        """Return a record as last written."""
        fields = self.item(kind, name)
        return None if fields is None else record_of(ControlItem(kind, name, fields))

    def records(
        self,
        kind: str,
        *,
        prefix: str = "",
        after: str = "",
        limit: int,
        consistent: bool = True,
    ) -> tuple[Sequence[Record], bool]:
        """Return up to *limit* records by name, and whether there are more.

        Their names start with *prefix* and come after *after*.  *consistent* is as in ``item``.
        """
        last = prefix and prefix + _LAST_CHARACTER
        items, more = self.items_of_kind(
            kind, first=prefix, last=last, after=after, limit=limit, consistent=consistent
        )
        return tuple(map(record_of, items)), more

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:
        """Write *record* if the stored version is *replaces*; return whether it was.

        *replaces* None: there is no record yet.  *lazy* is as in ``patch``.
        """
        return self.patch(record_patch(record, replaces), lazy=lazy).made

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        """Write records, each as put_record() does, all of them or none, as patch_all() does."""
        return self.patch_all([record_patch(*write) for write in writes], tasks=tasks)

    def renew_record(self, record: Record) -> Record:
        """Write *record* without a check of the stored version; return it with its stored note."""
        patch = Patch(record.kind, record.name, put=_record_fields(record))
        fields = self.patch(patch).fields or {}
        return record_of(ControlItem(record.kind, record.name, fields))

    def leave_note(self, kind: str, name: str, note: str, *, expects: str | None) -> bool:
        """Replace the note *expects* of an existing record; return whether the write was made."""
        when = (When(VERSION, "<>", None), When(NOTE, "=", expects))
        return self.patch(Patch(kind, name, when, put={NOTE: note})).made

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        """Remove a record if it has *version* (None: any); return whether it existed."""
        when = () if version is None else (When(VERSION, "=", version),)
        dropped = self.patch(Patch(kind, name, when, mode="delete"))
        return dropped.made and dropped.fields is not None

    # -- the index of values -----------------------------------------------------------------------

    def note_matches(self, there: Collection[Match], gone: Collection[Match]) -> None:
        """Add *there* to the index of values, and remove *gone* from it; no task is in both.

        The call may be repeated.  A match in *gone* with an empty term means all entries of its
        task; a store that cannot find these ignores it.
        """

    def matches(
        self, queue: str, term: str, *, after: str = "", descending: bool = False, limit: int
    ) -> tuple[Sequence[str], bool]:
        """Return up to *limit* ids that the index of values has for *term*, and whether more.

        In ascending or *descending* order, and after *after*.  The tasks may have changed since.
        """

    def drop_matches(self, queue: str, field: str, *, limit: int) -> bool:
        """Remove up to *limit* entries with terms that begin with *field*; return if more exist."""


def every_record(
    store: Store, kind: str, *, prefix: str = "", after: str = "", page: int
) -> Iterator[Record]:
    """Yield by name the records of a kind that start with *prefix*, read *page* at a time.

    They come *after* that name.
    """
    more = True
    while more:
        records, more = store.records(kind, prefix=prefix, after=after, limit=page)
        for record in records:
            yield record
            after = record.name
