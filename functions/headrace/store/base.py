"""What a store promises.  ``tests/contract`` is this protocol in executable form.

Long, because it is a list of promises: nothing is decided here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from headrace.domain.change import Change, Entry, KeyLock
from headrace.domain.copies import quick
from headrace.domain.fairness import Places, PlaceTaking, TurnTaking
from headrace.domain.indexing import Match
from headrace.domain.lease import GroupChange, LeaseGroup
from headrace.domain.rate import Bucket, Draw
from headrace.domain.slots import GroupLine, SlotTaking
from headrace.domain.task import Place, State, Task


@quick
class Done:
    """The change took effect, now or by an earlier try whose answer was lost.

    ``task`` is the task as it then was; of a task that is gone, as it last was.
    """

    task: Task


@quick
class Refused:
    """A condition did not hold; ``task`` is what the store holds instead (None: nothing).

    A new task may meet what is left of one that is gone (``Task.remains``); no other change does.

    ``blocked`` are the places in ``Change.also`` whose own condition did not hold.
    Losing a race is a normal answer, not an error.
    """

    task: Task | None
    blocked: tuple[int, ...] = ()


Outcome = Done | Refused


def refused(change: Change, found: Task | None, blocked: tuple[int, ...] = ()) -> Outcome:
    """Return the outcome of *change*, refused because the store holds the task that was *found*."""
    if found is not None and found.remains and change.insert is None:
        if change.rule.target is State.DELETED and change.already_done(found):
            return Done(found)  # this very change has hidden it
        returns = change.rule.source is State.DELETED
        # Else what is left is only for whoever enqueues its id.
        return Refused(found if returns else None, blocked)
    if found is not None and change.already_done(found):
        return Done(change.insert if change.insert and found.remains else found)
    return Refused(found, blocked)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in one partition of the index: what was read last."""

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
    """Entries of one partition in order; ``last`` is where to go on, None at the end."""

    entries: tuple[Entry, ...]
    last: Position | None


@dataclass(frozen=True, slots=True)
class CountPage:
    """How many entries a request has counted; ``last`` is where to go on, None at the end."""

    number: int
    last: Position | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the control table: JSON-like ``body`` under (``kind``, ``name``).

    Some time after ``expires_at`` the table forgets it.  ``note`` is what somebody else has left
    on it, apart from the body.
    """

    kind: str
    name: str
    body: Mapping[str, Any]
    version: int = 1
    expires_at: datetime | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Noting:
    """A record that must stand before changes are made, and the version that it replaces.

    ``replaces`` None: there is none yet.
    """

    record: Record
    replaces: int | None


class NotingRefused(Exception):
    """Another version of a record stands than the noting of changes replaces: none is made."""


class EarlyLook(Protocol):
    """What somebody who waits for tasks does with those that are just being written."""

    def look(self) -> Collection[str]:
        """Take what can be had, and return the ids of those tasks.

        It is called by the thread that writes; all that it reads and writes there is part of that
        one write, or where it raises, nothing of it.  It must not take long.
        """

    def undo(self) -> None:
        """Forget what was taken: the write did not come about."""


class Arrivals(Protocol):
    """Tells when tasks have come to wait in queues."""

    def numbers(self, queues: Collection[str]) -> Mapping[str, int]:
        """Return how often tasks have come to wait in each of *queues* that ever had one."""

    def wait(
        self,
        queues: Collection[str],
        since: Mapping[str, int],
        seconds: float,
        early: EarlyLook | None = None,
    ) -> Mapping[str, int]:
        """Wait until the numbers of *queues* are not *since* any more, or for *seconds*.

        Where the store can, *early* looks within the write that brings a task; if it took some,
        that ends the wait too.
        Return the numbers seen last.  Raises Unavailable, and what *early* raises.
        """


class Ends(Protocol):
    """Tells when tasks have ended, whichever process ends them."""

    def told(self, task_id: str, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Return a block in which *wake* is called once the task has ended or is gone.

        What has ended before the block is for the caller to see.  It is called from any thread,
        may be called again, and must not take long.
        """


class Store(Protocol):
    """Tasks, their index, and control records.

    Every method may raise Unavailable when the table is throttled or away.  ``arrivals`` and
    ``ends`` are None where one has to ask again and again.
    """

    @property
    def arrivals(self) -> Arrivals | None: ...

    @property
    def ends(self) -> Ends | None: ...

    def commit(
        self,
        changes: Sequence[Change],
        *,
        partly: bool = False,
        noting: Noting | None = None,
    ) -> list[Outcome]:
        """Make each change on its own, if its conditions hold; outcomes in the order given.

        Changes of one task take effect one after the other.  Should the table stop answering
        when some are made already, that is Unavailable; *partly* answers with those instead, and
        with Refused for the rest.

        What is *noting* is written as put_record() does: before the changes, or with them in one
        transaction, so whoever sees one of them finds the record.  Raises NotingRefused where it
        cannot be written, and no change is made then.
        """

    def read(
        self, task_ids: Iterable[str], *, payload: bool = True, consistent: bool = True
    ) -> dict[str, Task]:
        """Return the tasks that exist, as last written.

        Not *consistent*, it costs half, and what was written a moment ago may be missing: for
        those who change a task only if it is as they read it.
        """

    def spent(self, task_ids: Iterable[str]) -> dict[str, Task]:
        """Return the remains of tasks that are gone, and of which somebody may repeat something.

        Of one that was deleted or purged there is nothing, unless an undo keeps all of it.
        """

    def ids(self, prefix: str, *, limit: int) -> tuple[Sequence[str], bool] | None:
        """Return up to *limit* ids that begin with *prefix*, in order, and whether there are more.

        What is left of tasks that are gone may be among them.  None where ids have no order.
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

        From *since* to *until*, both included, behind *after*.  The index may lag.
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
        """Return how many entries of one partition there are, as far as one request reads.

        Bounds as for ``entries``.  Those past retention at *now* are left out; with None they are
        counted too.
        """

    def key_lock(self, kind: str, name: str) -> str | None:
        """Return a key lock as last written."""

    def key_locks(self, kind: str) -> dict[str, str]:
        """Return all key locks of a kind by name, as last written."""

    def set_key_lock(self, lock: KeyLock) -> bool:
        """Write or remove one key lock by itself, if it is what it expects; tell whether it was."""

    def record(self, kind: str, name: str) -> Record | None:
        """Return a control record as last written."""

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

        Their names start with *prefix* and come behind *after*.  Not *consistent*, it costs half,
        and what was written a moment ago may be missing.
        """

    def put_record(self, record: Record, *, replaces: int | None, lazy: bool = False) -> bool:
        """Write *record* if the stored version is *replaces*; tell whether it was.

        *replaces* None: there is none yet.  *lazy*: everybody sees it at once, but should the
        machine lose its power it need not outlast that, as long as no later write does.
        """

    def put_records(
        self, writes: Sequence[tuple[Record, int | None]], *, tasks: Sequence[Change] = ()
    ) -> bool:
        """Write records, each as put_record() does, all of them or none; tell whether they were.

        With them *tasks* are inserted, new ones that need nothing else: all of that or none.  It
        costs twice the units.
        """

    def renew_record(self, record: Record) -> Record:
        """Write *record*, whatever was there; a note on it stays.  Return it with that note."""

    def leave_note(self, kind: str, name: str, note: str, *, expects: str | None) -> bool:
        """Leave *note* on a record that is there, instead of *expects*; tell whether it was."""

    def drop_record(self, kind: str, name: str, *, version: int | None = None) -> bool:
        """Remove a record, if it has *version* where that is given; tell whether it was there."""

    def note_matches(self, there: Collection[Match], gone: Collection[Match]) -> None:
        """Put *there* into the index of values, and take *gone* out; no task is in both.

        It may be repeated.  What is gone may be named by its task alone, with an empty term: it
        goes where the store can tell which entries those are.
        """

    def matches(
        self, queue: str, term: str, *, after: str = "", descending: bool = False, limit: int
    ) -> tuple[Sequence[str], bool]:
        """Return up to *limit* ids that the index of values has for *term*, and whether more.

        In order, or against it, and behind *after*.  Tasks may be gone, or others by now.
        """

    def drop_matches(self, queue: str, field: str, *, limit: int) -> bool:
        """Take up to *limit* entries out whose terms begin with *field*; tell whether more are."""

    def reserve(
        self, queue: str, pool: int, texts: Collection[str], *, room: int
    ) -> tuple[frozenset[str], bool]:
        """Put *texts* into a pool of a queue, if no more than *room* are in it then.

        Returns what is in it then, and whether they are.
        """

    def free(self, queue: str, pool: int, texts: Collection[str]) -> frozenset[str]:
        """Take *texts* out of a pool, as far as they are in it; return what is in it then."""

    def pools(self, queue: str, first: int, last: int) -> dict[int, frozenset[str]]:
        """Return the content of the pools *first* to *last*, both included, without empty ones.

        What was written a moment ago may be missing.
        """

    def drop_pools(self, queue: str) -> None:
        """Remove all pools of a queue."""

    def bucket(self, queue: str) -> Bucket | None:
        """Return the rate limit of a queue; what was written a moment ago may be missing."""

    def draw(self, queue: str, draw: Draw, *, seen: Bucket | None) -> tuple[Bucket | None, bool]:
        """Make *draw*, if it is allowed; return the bucket then, and whether it was made.

        *seen* is the bucket as last known, by which to guess.  Made again after a lost answer, it
        is made twice: what the first one gave away nobody has.
        """

    def replace_bucket(self, queue: str, bucket: Bucket, *, expects: Bucket | None) -> bool:
        """Write *bucket* instead of *expects*; tell whether it was."""

    def drop_bucket(self, queue: str) -> None:
        """Remove the bucket of a queue, if there is one."""

    def take_turns(self, queue: str, take: TurnTaking) -> int:
        """Move the line of a group on as *take* says, in one write; return how far it is then.

        Made again after a lost answer, it is made twice: what the first one took nobody has.
        """

    def take_places(self, queue: str, take: PlaceTaking) -> Places:
        """Move the line of a strict group on as *take* says, in one write; return what it took.

        Made again while nobody else has taken places, it takes none, and returns the same.
        """

    def line(self, queue: str, name: str) -> int | None:
        """Return how far the line of a group has come; None where there is no such line."""

    def lines(self, queue: str, names: Collection[str]) -> Mapping[str, GroupLine]:
        """Return the lines of these groups as last written, without those that there are not."""

    def take_slot(self, queue: str, take: SlotTaking) -> bool:
        """Make *take*, in one write, if it is allowed; tell whether the slot names its stay then.

        Of a group that has no line yet one is begun.
        """

    def delivered_turn(self, queue: str) -> int:
        """Return the highest number noted; what was written lately may be missing, 0: none."""

    def note_delivered(self, queue: str, turn: int, *, expires_at: datetime) -> None:
        """Note that turns are delivered as far as *turn*, unless a higher one is known."""

    def open_group(self, group: LeaseGroup, *, now: datetime) -> bool:
        """Keep a new group, if none that is still kept at *now* has its key; tell whether so."""

    def group(self, group_id: str) -> LeaseGroup | None:
        """Return a group as last written."""

    def change_group(self, change: GroupChange) -> LeaseGroup | None:
        """Make *change* if it is allowed, in one write; return the group then, else None.

        Made again after a lost answer, an extension is allowed again; what ends a group is not.
        """


def every_record(store: Store, kind: str, *, prefix: str = "", page: int) -> Iterator[Record]:
    """Yield by name the records of a kind that start with *prefix*, read *page* at a time."""
    after, more = "", True
    while more:
        records, more = store.records(kind, prefix=prefix, after=after, limit=page)
        for record in records:
            yield record
            after = record.name


@dataclass(frozen=True, slots=True, order=True)
class LakeObject:
    """An object of the lake: its name, its size in bytes, and what changes when it is rewritten."""

    name: str
    size: int
    stamp: str


class Lake(Protocol):
    """A place for files that are written whole, under names with slashes.

    Every method may raise Unavailable.
    """

    def put(self, name: str, content: bytes) -> None:
        """Write a file; one of that name is replaced at once, and never seen half written."""

    def get(self, name: str, within: range | None = None) -> bytes | None:
        """Return the content of a file, or what of its bytes is *within* a range; None if none."""

    def list(self, prefix: str) -> Sequence[LakeObject]:
        """Return the files whose names begin with *prefix*, by name."""


class PieceLake(Lake, Protocol):
    """A lake whose files may be larger than anybody's memory."""

    def pieces(self, name: str) -> AbstractContextManager[Iterator[bytes] | None]:
        """Give the content of a file piece by piece; None if there is none."""
