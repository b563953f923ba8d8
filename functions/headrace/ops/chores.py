"""Removing many tasks: purges and the deletion of queues, which outlive the call that asks.

A chore is a record in the control table.  The call that made it works on it for a while; what is
left the reaper finishes.  Doing a part of it twice changes nothing.

It takes what was in the states it names at the moment it was asked for.  The index proposes; the
task, which is read, tells whether it was one of them (see ``domain.snapshot``): so what came later
stays, nothing is counted that only a lagging index still shows, and what workers take and give back
meanwhile is followed by its id until it is gone.  Of one that is with a worker that means waiting.

No look at the index shows one moment, and it lags.  A task that a worker takes and gives back may
be in flight whenever we look at what waits, and wait when we look at what is in flight.  So these
two are read by turns, without a pause, for to evade that a task must change as often as we read,
which takes two writes; and this is done again after pauses of any length, for whoever is in step
once.  A while later there is another look, for what the index did not show.
"""

import random
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from headrace.domain import plan
from headrace.domain.ids import new_request_token
from headrace.domain.queue import AGREED_AFTER
from headrace.domain.snapshot import LIVE
from headrace.domain.task import Place, State, Task
from headrace.ops.audit import Audit
from headrace.ops.chore_body import KIND, Chore, deletion
from headrace.ops.limiting import Limiting
from headrace.ops.marked import commit
from headrace.ops.named import Named, forget_spared, keep_spared, leaves_doubt, spared
from headrace.store.base import Done, Store

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
class Chores:
    """Works on chores, at most *patience* seconds at a time."""

    store: Store
    now: Callable[[], datetime]
    limiting: Limiting
    audit: Audit
    patience: float = 20.0
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)

    def begin(self, chore: Chore, gone: set[str]) -> bool:
        """Write a purge down and work on it; as work()."""
        begun = replace(chore, name=new_request_token())
        self.write(begun)
        if leaves_doubt(begun):
            keep_spared(self.store, begun, self._in_flight(begun))
        return self.work(begun, gone)

    def write(self, chore: Chore) -> None:
        """Write *chore* down, instead of one of the same name."""
        if not self.store.put_record(chore.record(), replaces=None):
            self.store.drop_record(KIND, chore.key)
            self.store.put_record(chore.record(), replaces=None)

    def deletion(self, queue: str) -> Chore | None:
        """Return the deletion of a queue of this name, if there was one a short while ago."""
        record = self.store.record(KIND, deletion(queue))
        return None if record is None else Chore.of(record)

    def pending(self) -> list[Chore]:
        """Return everything that waits to be finished."""
        chores: list[Chore] = []
        more = True
        while more:
            records, more = self.store.records(
                KIND, after=chores[-1].key if chores else "", limit=_PAGE
            )
            chores += [Chore.of(record) for record in records]
        return chores

    def work(self, chore: Chore, gone: set[str]) -> bool:
        """Remove tasks until none is left or patience ends, and note in *gone* which.

        Tell whether all it names is gone, as far as the index shows.
        """
        until = self.now() + timedelta(seconds=self.patience)
        pages = self.pages(chore, gone, revises=False)
        while True:
            try:
                next(pages)
            except StopIteration as end:
                return bool(end.value)
            if self.now() >= until:
                return False

    def pages(
        self, chore: Chore, gone: set[str], *, revises: bool = True
    ) -> Generator[None, None, bool]:
        """Remove tasks and note in *gone* which; after each page, yield.

        Whoever stops leaves the rest for later: how far it is, is written down.  At the end, tell
        whether all is gone, as far as the index shows.  *revises*: then the audit is told how many
        it were in all.
        """
        late = self.now() >= _again(chore)
        if chore.swept and not late:
            return True
        named, places = self._named(chore), _places(chore)
        looks = _LOOKS if LIVE & {*chore.states} else 1
        away, others, saved, unsaved = set(chore.away), set[str](), 0, 0
        while chore.quiet < looks:
            if chore.quiet > 0:
                self.sleep(self.chance.uniform(0, _BETWEEN_SECONDS))
            for at in range(chore.at, len(places)):
                after = chore.after
                while True:
                    page = self.store.entries(places[at], after=after, limit=_PAGE)
                    found = {entry.task_id for entry in page.entries} - gone - others
                    left = self._remove(named, found, gone)
                    away |= left
                    others |= found - left - gone
                    after = page.last
                    chore = replace(
                        chore,
                        at=at if after else at + 1,
                        after=after,
                        away=frozenset(away),
                        quiet=chore.quiet if found.isdisjoint(gone) else _NOT_QUIET,
                    )
                    unsaved += 1
                    if after or len(gone) > saved or unsaved >= _UNSAVED:
                        chore = self._save(chore, len(gone) - saved)
                        saved, unsaved = len(gone), 0
                    yield
                    if after is None:
                        break
            left = self._remove(named, away, gone)
            quiet = (chore.quiet if left == away else _NOT_QUIET) + 1
            away = left
            chore = replace(chore, at=0, after=None, away=frozenset(away), quiet=quiet)
        chore = replace(chore, quiet=0)
        if away:
            self._save(chore, len(gone) - saved)
            return False
        last = chore.swept or (late and not chore.deletes_queue)
        self._finish(chore, len(gone) - saved, last=last, revises=revises)
        return True

    def _remove(self, named: Named, ids: Collection[str], gone: set[str]) -> set[str]:
        """Remove those of *ids* that are *named*; return those that are, and are not gone."""
        left = {*ids}
        for _ in range(_TRIES):
            tasks = self.store.read(left, payload=False) if left else {}
            meant = [task for task in tasks.values() if named.means(task)]
            left = {task.id for task in meant}
            here = [task for task in meant if task.state in named.chore.states]
            outcomes = commit(self.store, [plan.purge(task) for task in here])
            removed = {
                task.id
                for task, outcome in zip(here, outcomes, strict=True)
                # Gone since it was read: by this very work, if the answer was lost.
                if isinstance(outcome, Done) or not task.same_as(outcome.task)
            }
            gone |= removed
            left -= removed
            if len(removed) == len(here):
                break
        return left

    def _named(self, chore: Chore) -> Named:
        """Return what *chore* names.

        A deleted queue's latecomers go too, but not what came to a new one of its name.
        """
        if leaves_doubt(chore):
            return Named(chore, chore.asked_at, spared(self.store, chore))
        if not (chore.deletes_queue and chore.swept):
            return Named(chore, chore.asked_at)
        record = self.store.record("queue", chore.queue)
        if record is None:
            return Named(chore, self.now())
        created_at = datetime.fromisoformat(record.body["created_at"])
        return Named(chore, created_at - timedelta(microseconds=1))

    def _in_flight(self, chore: Chore) -> Iterator[Task]:
        for shard in range(chore.shards):
            place, after = Place(chore.queue, State.INFLIGHT, shard), None
            while True:
                page = self.store.entries(place, after=after, limit=_PAGE)
                ids = [entry.task_id for entry in page.entries]
                yield from self.store.read(ids, payload=False).values() if ids else ()
                after = page.last
                if after is None:
                    break

    def _save(self, chore: Chore, removed: int) -> Chore:
        """Write down how far it is, with so many more *removed*; return it as it is now."""
        while True:
            total = chore.removed + removed
            away = frozenset(sorted(chore.away)[:_FOLLOWED])
            saved = replace(chore, removed=total, away=away, version=chore.version + 1)
            if self.store.put_record(saved.record(), replaces=chore.version):
                return saved
            record = self.store.record(KIND, chore.key)
            if record is None:  # somebody else has finished it
                return saved
            other = Chore.of(record)
            chore = replace(chore, removed=other.removed, version=other.version)

    def _finish(self, chore: Chore, removed: int, *, last: bool, revises: bool) -> None:
        if chore.deletes_queue and not self._exists(chore.queue):
            self.limiting.forget(chore.queue)
        total = chore.removed + removed
        if last:
            self.store.drop_record(KIND, chore.key)
            if leaves_doubt(chore):
                forget_spared(self.store, chore)
        else:
            total = self._save(replace(chore, swept=True), removed).removed
        if revises and chore.noted is not None:
            self.audit.revise(chore.noted, changed=total)

    def _exists(self, queue: str) -> bool:
        return self.store.record("queue", queue) is not None


def _again(chore: Chore) -> datetime:
    """Return when a chore that is done is looked at once more."""
    return chore.asked_at + (AGREED_AFTER if chore.deletes_queue else _LAG)


def _places(chore: Chore) -> Sequence[Place]:
    """Return where to look, by turns where workers have what would come back."""
    moving = [state for state in chore.states if state in LIVE]
    if State.ENQUEUED in moving:
        moving = [State.ENQUEUED, State.INFLIGHT] * _TURNS
    still = [state for state in chore.states if state not in LIVE]
    return [
        Place(chore.queue, state, shard)
        for shard in range(chore.shards)
        for state in (*moving, *still)
    ]
