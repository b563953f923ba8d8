"""Batches: tasks that are counted together, to enqueue callbacks when they have ended.

The recorder counts the writes of members, and it may see them late and in any order: the end of a
parent before its children, a child before its parent.  So a batch has ended, once and never early,
if three conditions hold:

- the number of ``direct`` members, which no report has made, equals the batch's ``total``;
- nothing is ``owed``: a report that makes children adds the hashes of their ids to its parent, in
  the same write, and each child that is counted takes its own hash away (modulo 2^64);
- no member is ``live``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, Self

from headrace.domain.plan import TaskSpec
from headrace.domain.task import BatchEnd, Membership
from headrace.domain.times import micros_of

HASHES: Final = 2**64
STALLED_AFTER: Final = timedelta(minutes=1)
"""How long a batch must be stuck to count as stalled: its next member may not be counted yet."""

DEAD_IDS: Final = 100
"""How many dead members a batch names."""

FOUND_DEAD: Final = 20
"""How many dead members a recount names: they travel in a cursor."""

RESULTS: Final = 100
"""How many members a batch remembers, to show their results."""

QUEUES: Final = 32
"""How many queues of members a batch remembers; of one with more it is ``MANY``."""

MANY: Final = "*"

ANY_QUEUE: Final = "*"
"""The pattern of a key that is for all queues."""

_EVER: Final = 2**62


class BatchEvent(StrEnum):
    """What a batch may enqueue a task for; each happens once at the most."""

    ENDED = "ended"  #: every member has ended, one way or another
    SUCCEEDED = "succeeded"  #: and none of them is dead
    FAILED = "failed"  #: the first member is dead


def hash_of(task_id: str) -> int:
    """Return the number that a task adds to, or takes from, ``owed``."""
    return int.from_bytes(blake2b(task_id.encode(), digest_size=8).digest())


def owed_for(task_ids: Iterable[str]) -> int:
    """Return the sum that a report owes for the tasks of these ids."""
    return sum(map(hash_of, task_ids)) % HASHES


def with_spawned(
    members: tuple[Membership, ...], children: Iterable[tuple[str, Iterable[str]]]
) -> tuple[Membership, ...]:
    """Return the memberships of a parent whose report makes *children*.

    Each child is its id and the batches that it is named into.
    """
    made = [(task_id, frozenset(batches)) for task_id, batches in children]
    return tuple(
        replace(
            one,
            spawned=(one.spawned + owed_for(id_ for id_, of in made if one.batch in of)) % HASHES,
        )
        for one in members
    )


@dataclass(slots=True)
class BatchDelta:
    """The change of a batch's numbers by some writes of its members.

    ``owed`` is modulo 2^64.  ``born`` are ids of new members and ``queues`` their queues, as many
    as a batch remembers; ``died`` are members that became dead, ``revived`` were dead before.
    The writes were made from ``first_at`` to ``last_at``, in microseconds since 1970.
    A delta that is ``due`` is counted at once, see decide().
    """

    direct: int = 0
    owed: int = 0
    created: int = 0
    live: int = 0
    succeeded: int = 0
    dead: int = 0
    deleted: int = 0
    deaths: int = 0  # that a dead one is restarted takes none back
    moves: int = 0  # ends, and what makes live again
    born: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    revived: list[str] = field(default_factory=list)
    first_at: int = _EVER
    last_at: int = -1
    due: bool = False

    def decide(self, live: int, *, failure_known: bool) -> None:
        """Set ``due`` if the delta may make a callback due, so that it must be counted at once.

        New members alone make none due.  Nor does an end while other members of the same source are
        certainly *live*: the batch is not complete, and the last end counts all of them.  The first
        death does, unless its callback is already made (*failure_known*).
        """
        self.due = (self.moves > 0 and live <= 0) or (self.deaths > 0 and not failure_known)

    def merge(self, later: "BatchDelta") -> None:
        """Add *later*, a delta of later writes."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.owed %= HASHES
        self.first_at = min(self.first_at, later.first_at)
        self.last_at = max(self.last_at, later.last_at)
        self.born = _first(RESULTS, self.born, later.born)
        self.queues = _first(QUEUES + 1, self.queues, later.queues)
        for task_id in later.revived:
            if task_id in self.died:
                self.died.remove(task_id)
            else:
                self.revived.append(task_id)
        for task_id in later.died:
            if task_id in self.revived:
                self.revived.remove(task_id)
            elif len(self.died) < DEAD_IDS:
                self.died.append(task_id)

    def body(self) -> list[object]:
        """Return the delta as short JSON, because it is written often."""
        lists = {name: [*getattr(self, name)] for name in _LISTS if getattr(self, name)}
        numbers = [*(getattr(self, name) for name in _NUMBERS), self.first_at, self.last_at]
        text = " ".join(map(str, [*numbers, int(self.due)]))
        return [text, lists] if lists else [text]

    @classmethod
    def of(cls, body: Sequence[Any]) -> Self:
        """Return the delta that body() wrote."""
        numbers = list(map(int, body[0].split()))
        lists = body[1] if len(body) > 1 else {}
        fields: dict[str, Any] = {name: list(lists.get(name, ())) for name in _LISTS}
        fields |= dict(zip(_NUMBERS, numbers, strict=False))
        first_at, last_at, due = numbers[len(_NUMBERS) :]
        return cls(**fields, first_at=first_at, last_at=last_at, due=bool(due))


_NUMBERS: Final = (
    *("direct", "owed", "created", "live", "succeeded", "dead", "deleted"),
    *("deaths", "moves"),
)
_LISTS: Final = ("born", "queues", "died", "revived")


def _first(most: int, *lists: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(one for some in lists for one in some))[:most]


@dataclass(frozen=True, slots=True)
class Callback:
    """The task that a batch makes for an event, and the queue that it goes to.

    A *relay* stands for the members of the batch in the results of the batches that it joins.
    """

    queue: str
    new: TaskSpec
    relay: bool = False


@dataclass(frozen=True, slots=True)
class Fired:
    """A callback that was made: its task, None where its queue was missing, and when."""

    task_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class FoundMembers:
    """Ended members of a batch that a recount has found."""

    direct: int = 0
    owed: int = 0
    succeeded: int = 0
    dead: int = 0
    dead_ids: tuple[str, ...] = ()

    @property
    def created(self) -> int:
        """The number of members."""
        return self.succeeded + self.dead

    def with_member(self, task_id: str, member: Membership, *, dead: bool) -> Self:
        """Return the members with one more."""
        inherited = hash_of(task_id) if member.inherited else 0
        return replace(
            self,
            direct=self.direct + (not member.inherited),
            owed=(self.owed + member.spawned - inherited) % HASHES,
            succeeded=self.succeeded + (not dead),
            dead=self.dead + dead,
            dead_ids=tuple(_first(FOUND_DEAD, self.dead_ids, [task_id] if dead else ())),
        )


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """A batch as stored.

    ``total`` is how many members will be enqueued, None while that is open.  ``digest`` tells the
    body that it was created with, ``on`` the events with a callback; it may stand within the batch
    that it is ``part_of``.  A ``stopped`` batch makes no more callbacks; a cancelled one takes no
    new members.  ``made_for`` are the patterns of queues of who made it.  ``generation`` tells it
    from others that have had its id.  ``posted`` says for each buffer of the recorder which version
    of it was counted last.  ``counted_at`` is the time of the last change that was counted;
    ``deaths`` counts members that died, restarted ones too.  ``members`` and ``dead_ids`` are the
    latest named ones; earlier ones are kept apart, of the dead ``dead_apart``.  After a recount the
    numbers hold all changes up to ``recounted_until``, so the recorder skips these if it gets them
    later.  The batch is ``doubtful`` if the recorder got some of them together with newer ones.
    """

    id: str
    total: int | None
    digest: str
    on: tuple[BatchEvent, ...]
    created_at: datetime
    expires_at: datetime
    direct: int = 0
    owed: int = 0
    created: int = 0
    live: int = 0
    succeeded: int = 0
    dead: int = 0
    deleted: int = 0
    deaths: int = 0
    queues: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    dead_ids: tuple[str, ...] = ()
    dead_apart: int = 0
    fired: Mapping[BatchEvent, Fired] = field(default_factory=dict)
    posted: Mapping[str, int] = field(default_factory=dict)
    counted_at: datetime | None = None
    finished_at: datetime | None = None
    recounted_until: datetime | None = None
    doubtful: bool = False
    part_of: str | None = None
    stopped: bool = False
    cancelled_at: datetime | None = None
    made_for: tuple[str, ...] = ()
    generation: str | None = None
    version: int = 1

    @property
    def key(self) -> str:
        """The name that members know the batch by; a later batch of the same id has another."""
        return self.id if self.generation is None else f"{self.id}.{self.generation}"

    @property
    def complete(self) -> bool:
        """Whether all members are counted and have ended."""
        all_seen = self.direct == self.total and self.owed == 0 and not self.doubtful
        return all_seen and self.live == 0

    @property
    def known_by(self) -> tuple[str, ...]:
        """The queues, or patterns of queues, that a key must be for to see and to join the batch.

        Without members and callbacks these are the patterns of its maker.  A restricted key's
        batch keeps them until a member is seen.
        """
        if self.created or (self.queues and ANY_QUEUE in self.made_for):
            return self.queues
        return (*self.queues, *self.made_for)

    @property
    def stuck(self) -> bool:
        """Whether nothing runs, members are missing, and a dead one may be the reason."""
        over = self.finished_at is not None or self.cancelled_at is not None
        missing = self.total is not None and self.direct < self.total
        return missing and self.dead > 0 and self.live == 0 and not over and self.part_of is None

    def is_stalled(self, now: datetime) -> bool:
        """Return whether the batch is stuck, and not only since a moment ago."""
        return self.stuck and self.counted_at is not None and self.counted_at <= now - STALLED_AFTER

    @property
    def ended(self) -> int:
        """The number of members that have ended."""
        return self.succeeded + self.dead + self.deleted

    @property
    def due(self) -> tuple[BatchEvent, ...]:
        """The events that have happened and whose callbacks are still to be made."""
        if self.stopped:
            return ()
        happened = {
            BatchEvent.FAILED: self.deaths > 0,
            BatchEvent.ENDED: self.complete,
            BatchEvent.SUCCEEDED: self.complete and self.dead == 0,
        }
        return tuple(event for event in self.on if happened[event] and event not in self.fired)

    @property
    def end(self) -> BatchEnd:
        """The data of a callback."""
        return BatchEnd(self.id, self.created, self.succeeded, self.dead, self.deleted)

    def with_delta(
        self, delta: BatchDelta, *, buffer: str, version: int, at: datetime
    ) -> "TaskBatch":
        """Return the batch with *delta* counted, which is that of a *version* of a *buffer*.

        The same one again changes nothing.
        """
        if self.posted.get(buffer, 0) >= version:
            return self
        until = None if self.recounted_until is None else micros_of(self.recounted_until)
        if until is not None and delta.last_at <= until:
            return replace(self, posted={**self.posted, buffer: version})
        dead = [task_id for task_id in self.dead_ids if task_id not in delta.revived]
        queues = _first(QUEUES + 1, self.queues, delta.queues)
        return replace(
            self,
            direct=self.direct + delta.direct,
            owed=(self.owed + delta.owed) % HASHES,
            created=self.created + delta.created,
            live=self.live + delta.live,
            succeeded=self.succeeded + delta.succeeded,
            dead=self.dead + delta.dead,
            deleted=self.deleted + delta.deleted,
            deaths=self.deaths + delta.deaths,
            queues=(MANY,) if MANY in queues or len(queues) > QUEUES else tuple(queues),
            members=tuple(_first(RESULTS, self.members, delta.born)),
            dead_ids=tuple(_first(DEAD_IDS - self.dead_apart, dead, delta.died)),
            posted={**self.posted, buffer: version},
            counted_at=max(at, self.counted_at or at),
            doubtful=self.doubtful or (until is not None and delta.first_at <= until),
        )

    @property
    def failure_known(self) -> bool:
        """Whether another death makes no callback."""
        return BatchEvent.FAILED not in self.on or BatchEvent.FAILED in self.fired

    def says(self, found: "FoundMembers") -> bool:
        """Return whether the numbers of the batch equal those of *found*, all ended."""
        numbers = (self.direct, self.owed, self.live, self.succeeded, self.dead, self.deleted)
        right = (found.direct, found.owed, 0, found.succeeded, found.dead, 0)
        return not self.doubtful and numbers == right

    def with_found(self, found: "FoundMembers", until: datetime) -> "TaskBatch":
        """Return the batch with the numbers of *found*, which are all its members, all ended.

        They hold every change up to *until*, and none after.  The same again changes nothing.
        """
        if self.says(found):
            return self
        return replace(
            self,
            direct=found.direct,
            owed=found.owed,
            created=found.created,
            live=0,
            succeeded=found.succeeded,
            dead=found.dead,
            deleted=0,
            deaths=max(self.deaths, found.dead),
            dead_ids=found.dead_ids,
            dead_apart=0,
            recounted_until=until,
            doubtful=False,
        )

    def cancelled(self, now: datetime, *, never_made: int) -> "TaskBatch":
        """Return the batch as cancelled, without the members that are *never_made* now.

        One that has ended, or was cancelled before, stays as it is.
        """
        if self.finished_at is not None or self.cancelled_at is not None:
            return self
        total = None if self.total is None else max(0, self.total - never_made)
        return replace(self, total=total, cancelled_at=now)

    def finish_if_complete(self, now: datetime) -> "TaskBatch":
        """Return the batch as finished, if it is now and was not before."""
        if self.finished_at is not None or not self.complete:
            return self
        return replace(self, finished_at=now)
