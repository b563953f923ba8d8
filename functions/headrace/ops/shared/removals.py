"""Removing many tasks: purges and the deletion of queues, which outlive the call that asks.

A removal is a record in the control table.  The call that made it works on it for a while; what is
left the reaper finishes.  Doing a part of it twice changes nothing.

A removal takes the tasks whose life in the queue began before the call and that are in a named
state when the removal reaches them.  The index proposes tasks; the task, which is read, decides.
So a task that came later stays, and nothing is counted that only a lagging index still shows.

A task that a worker takes and gives back may be in flight whenever the removal reads what waits,
and wait when it reads what is in flight.  So where both states are named these two are read by
turns, and again after short pauses of random length, until a few reads find nothing.  A minute
later there is another look, for what the index did not show.
"""

import random
import time
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain import plan
from headrace.domain.ids import new_chance, new_request_token
from headrace.domain.queue import AGREED_AFTER
from headrace.domain.task import LIVE, Place, State, Task
from headrace.domain.undo import Undo, kept
from headrace.ops.shared.audit import Audit
from headrace.ops.shared.limiting import Limiting
from headrace.ops.shared.observed import commit
from headrace.ops.shared.strict_notes import note_left
from headrace.ops.shared.undos import Undos
from headrace.store.base import Done, Store, every_record
from headrace.store.records import readable
from headrace.store.records.queues import REMOVALS, Removal, deletion

_PAGE: Final = 250
_LOOKS: Final = 4  # that find nothing more to remove, where tasks move
_TURNS: Final = 2  # of what waits and what is in flight, in one look
_BETWEEN_SECONDS: Final = 0.005  # at most: to be out of step with whoever moves them
_TRIES: Final = 5  # at tasks that change while they are removed
_UNSAVED: Final = 20  # pages after which it is written down how far it is
_NOT_QUIET: Final = -1  # so that the look that is under way does not count
_FOLLOWED: Final = 1_000  # ids that a record holds
_LAG: Final = timedelta(seconds=60)  # an index shows everything by then


@dataclass(frozen=True, slots=True)
class Named:
    """The tasks that *removal* takes: their life in the queue began *before* a moment."""

    removal: Removal
    before: datetime
    undo: Undo | None = None

    def means(self, task: Task) -> bool:
        """Tell whether *task* is one of them as it is now."""
        here = task.queue == self.removal.queue and task.state in self.removal.states
        return here and task.enqueued_at <= self.before


@dataclass(frozen=True, slots=True)
class Removals:
    """Works on removals, at most *patience* seconds at a time."""

    store: Store
    now: Callable[[], datetime]
    limiting: Limiting
    audit: Audit
    undos: Undos
    patience: float = 20.0
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=new_chance)

    def begin(self, removal: Removal, gone: set[str]) -> bool:
        """Write a purge down and work on it; as work()."""
        begun = replace(removal, name=new_request_token())
        self.write(begun)
        return self.work(begun, gone)

    def write(self, removal: Removal) -> None:
        """Write *removal* down, instead of one of the same name."""
        if not self.store.put_record(removal.record(), replaces=None):
            self.store.drop_record(REMOVALS, removal.key)
            self.store.put_record(removal.record(), replaces=None)

    def deletion(self, queue: str) -> Removal | None:
        """Return the deletion of a queue of this name, if there was one a short while ago."""
        record = self.store.record(REMOVALS, deletion(queue))
        return None if record is None else Removal.of(record)

    def pending(self) -> list[Removal]:
        """Return everything that waits to be finished."""
        records = every_record(self.store, REMOVALS, page=_PAGE)
        return list(readable(records, Removal.of))

    def give_up(self, undo_id: str) -> None:
        """End the purge whose tasks that undo brings back: it would take them a second time.

        A process that is at it finds its record gone, and stops after the page that it is at.
        """
        for removal in self.pending():
            if removal.undo == undo_id:
                self.store.drop_record(REMOVALS, removal.key)
                if removal.noted is not None:
                    self.audit.revise(removal.noted, changed=removal.removed)

    def work(self, removal: Removal, gone: set[str]) -> bool:
        """Remove tasks until none is left or patience ends, and note in *gone* which.

        Tell whether all it names is gone, as far as the index shows.
        """
        until = self.now() + timedelta(seconds=self.patience)
        pages = self.pages(removal, gone, revises=False)
        while True:
            try:
                next(pages)
            except StopIteration as end:
                return bool(end.value)
            if self.now() >= until:
                return False

    def pages(
        self, removal: Removal, gone: set[str], *, revises: bool = True
    ) -> Generator[None, None, bool]:
        """Remove tasks and note in *gone* which; after each page, yield.

        Whoever stops leaves the rest for later: how far it is, is written down.  At the end, tell
        whether all is gone, as far as the index shows.  *revises*: then the audit notes how many
        it were in all.
        """
        late = self.now() >= _again(removal)
        if (removal.swept and not late) or (revises and self._is_over(removal)):
            return True
        named, places = self._named(removal), _places(removal)
        looks = _LOOKS if {*removal.states} >= LIVE else 1
        away, others, saved, unsaved = set(removal.away), set[str](), 0, 0
        while removal.quiet < looks:
            if removal.quiet > 0:
                self.sleep(self.chance.uniform(0, _BETWEEN_SECONDS))
            for at in range(removal.at, len(places)):
                after = removal.after
                while True:
                    page = self.store.entries(places[at], after=after, limit=_PAGE)
                    found = {entry.task_id for entry in page.entries} - gone - others
                    left = self._remove(named, found, gone)
                    away |= left
                    others |= found - left - gone
                    after = page.last
                    removal = replace(
                        removal,
                        at=at if after else at + 1,
                        after=after,
                        away=frozenset(away),
                        quiet=removal.quiet if found.isdisjoint(gone) else _NOT_QUIET,
                    )
                    unsaved += 1
                    if after or len(gone) > saved or unsaved >= _UNSAVED:
                        written = self._save(removal, len(gone) - saved)
                        if written is None:
                            return True
                        removal, saved, unsaved = written, len(gone), 0
                    yield
                    if after is None:
                        break
            left = self._remove(named, away, gone)
            quiet = (removal.quiet if left == away else _NOT_QUIET) + 1
            away = left
            removal = replace(removal, at=0, after=None, away=frozenset(away), quiet=quiet)
        removal = replace(removal, quiet=0)
        if away:
            return self._save(removal, len(gone) - saved) is None
        last = removal.swept or (late and not removal.deletes_queue)
        self._finish(removal, len(gone) - saved, last=last, revises=revises)
        return True

    def _remove(self, named: Named, ids: Collection[str], gone: set[str]) -> set[str]:
        """Remove those of *ids* that are *named*; return those that are, and are not gone."""
        left = {*ids}
        for _ in range(_TRIES):
            tasks = self._there(named.removal, left)
            here = [task for task in tasks.values() if named.means(task)]
            left = {task.id for task in here}
            outcomes = commit(
                self.store, [kept(plan.purge(task), task, named.undo) for task in here]
            )
            removed = {
                task.id
                for task, outcome in zip(here, outcomes, strict=True)
                # Gone since it was read: by this very work, if the answer was lost.
                if isinstance(outcome, Done) or not task.same_as(outcome.task)
            }
            gone |= removed
            if not named.removal.deletes_queue:
                note_left(
                    self.store, named.removal.queue, [one for one in here if one.id in removed]
                )
            left -= removed
            if len(removed) == len(here):
                break
        return left

    def _there(self, removal: Removal, ids: Collection[str]) -> dict[str, Task]:
        """Read tasks; of a deleted queue also those that could have been brought back."""
        if not ids:
            return {}
        tasks = self.store.read(ids, payload=False)
        if State.DELETED not in removal.states:
            return tasks
        left = self.store.spent(set(ids) - tasks.keys())
        return tasks | {name: task for name, task in left.items() if task.spent is None}

    def _named(self, removal: Removal) -> Named:
        """Return the tasks that *removal* names.

        A deleted queue's latecomers go too, but not what came to a new one of its name.
        """
        undo = self.undos.known(removal.undo)
        if not (removal.deletes_queue and removal.swept):
            return Named(removal, removal.requested_at, undo)
        record = self.store.record("queue", removal.queue)
        if record is None:
            return Named(removal, self.now())
        created_at = datetime.fromisoformat(record.body["created_at"])
        return Named(removal, created_at - timedelta(microseconds=1))

    def _save(self, removal: Removal, removed: int) -> Removal | None:
        """Write down how far it is, with so many more *removed*; return it as it is now.

        None if it is over: somebody else has finished it, or it was undone.
        """
        while True:
            total = removal.removed + removed
            away = frozenset(sorted(removal.away)[:_FOLLOWED])
            saved = replace(removal, removed=total, away=away, version=removal.version + 1)
            if self.store.put_record(saved.record(), replaces=removal.version):
                return saved
            record = self.store.record(REMOVALS, removal.key)
            if record is None:
                return None
            other = Removal.of(record)
            removal = replace(removal, removed=other.removed, version=other.version)

    def _finish(self, removal: Removal, removed: int, *, last: bool, revises: bool) -> None:
        if removal.deletes_queue and not self._exists(removal.queue):
            self.limiting.forget(removal.queue)
        total = removal.removed + removed
        if last:
            self.store.drop_record(REMOVALS, removal.key)
        else:
            written = self._save(replace(removal, swept=True), removed)
            if written is None:
                return
            total = written.removed
        if revises and removal.noted is not None:
            self.audit.revise(removal.noted, changed=total)

    def _is_over(self, removal: Removal) -> bool:
        """Tell whether *removal* is over since it was listed: finished by others, or undone."""
        return self.store.record(REMOVALS, removal.key) is None

    def _exists(self, queue: str) -> bool:
        return self.store.record("queue", queue) is not None


def _again(removal: Removal) -> datetime:
    """Return when a removal that is done is looked at once more."""
    return removal.requested_at + (AGREED_AFTER if removal.deletes_queue else _LAG)


def _places(removal: Removal) -> Sequence[Place]:
    """Return where to look, by turns where workers may move tasks between two named states."""
    moving = [state for state in removal.states if state in LIVE]
    if len(moving) > 1:
        moving *= _TURNS
    still = [state for state in removal.states if state not in LIVE]
    return [
        place
        for shard in range(removal.shards)
        for state in (*moving, *still)
        for place in _of_shard(removal, state, shard)
    ]


def _of_shard(removal: Removal, state: State, shard: int) -> list[Place]:
    lanes = sorted(removal.lanes) if state is State.ENQUEUED else [0]
    return [Place(removal.queue, state, shard, lane) for lane in lanes]
