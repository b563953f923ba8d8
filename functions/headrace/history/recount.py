"""Counting a queue anew while its tasks change, and while the recorder is behind.

The index is counted page by page, and each page has its moment.  A change that the recorder comes
to, however late, may take an entry away and put one in.  What it does to an entry whose page was
counted later, the new count has seen; what it does to one whose page was counted before, is to be
added; and an entry whose page is still to be counted will be seen.  So the new count, with what the
recorder adds by this rule, is the truth once the stream is drained.

When a change happened its task says, to the microsecond, or else the stream to the second; and the
index shows a change some milliseconds after that.  So a task that changes in the very second in
which its page is counted may be missed or counted twice.

The index does not tell which of the dead were cancelled.  So each of them is read, and a page of
which one has gone by then is counted again: of all that it holds it must be known.

Nor does it tell what tasks have failed of, and those that wait or are in flight may change too
quickly to be caught standing still.  So a task counts in a page as it is when it is read, if it is
still there; and of one that has changed since the index showed it the page notes that version:
what came up to it the page has seen, whatever the time says.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self

from headrace.domain.task import ORDINARY, Place, State, places_of
from headrace.history.counter_buffer import KEPT
from headrace.history.faults import FaultChanges, FaultCount, QueueFaults, body_of, kinds_of
from headrace.history.tally import CANCELLED, STATES, Counts, counts_of
from headrace.history.transitions import IndexEntry
from headrace.store.base import Record, Store

_PLACE: Final = {state: place for place, state in enumerate(STATES)}
_NEVER: Final = -1
_CHANGED: Final = 1_000
"""Tasks that changed while they were read, of all pages together: more are not noted."""

FaultStep = tuple[str, bool, int]
"""The fingerprint of a fault, whether the task is dead of it, and how many more there are."""


class CountedPage(NamedTuple):
    """Where a page ended, the whole partition unless *until* and *task_id* say so, and when.

    ``counted_at`` and ``until`` are microseconds since 1970.
    """

    state: int
    label: int
    until: float
    task_id: str
    counted_at: int


@dataclass(frozen=True, slots=True)
class NewCount:
    """A queue as far as it is counted, in the order of STATES, labels of places, and the index.

    ``numbers`` are Counts, and so is ``was``: what the counters said when it began, and when it is
    finished what they said then.  ``faults`` are None where too many tasks changed to be counted;
    ``changed`` has for pages by their number the versions at which some tasks were read.
    ``began`` is when the first step began, in microseconds since 1970.  ``exact`` is false once a
    task of the queue is known to have been written since then.
    """

    id: str
    shards: int
    numbers: tuple[int, ...] = tuple(counts_of())
    pages: tuple[CountedPage, ...] = ()
    was: tuple[int, ...] = tuple(counts_of())
    lanes: frozenset[int] = ORDINARY
    faults: Mapping[str, FaultCount] | None = field(default_factory=dict)
    changed: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    began: int = 0
    exact: bool = True

    @property
    def next(self) -> tuple[State, int, CountedPage | None] | None:
        """The partition that is counted next, and behind which page of it; None: all is counted."""
        if not self.pages:
            return STATES[0], 0, None
        last = self.pages[-1]
        if last.until < math.inf:
            return STATES[last.state], last.label, last
        for place in places_of("", STATES[last.state], self.shards, self.lanes):
            if place.label > last.label:
                return STATES[last.state], place.label, None
        return (STATES[last.state + 1], 0, None) if last.state + 1 < len(STATES) else None

    @property
    def ended(self) -> int:
        """When the last page was counted, in microseconds since 1970."""
        return max((page.counted_at for page in self.pages), default=0)

    def with_page(
        self,
        state: State,
        label: int,
        number: int,
        *,
        last: tuple[int, str] | None,
        counted_at: int,
        cancelled: int = 0,
        faults: FaultChanges | None = None,
        changed: Mapping[str, int] | None = None,
    ) -> Self:
        """Return it with *number* entries more, up to the *last*, or to the partition's end.

        *cancelled* of them are dead because they were cancelled; *faults* is what they failed of,
        and *changed* at which version those were read that the index did not show like that.
        """
        place = _PLACE[state]
        numbers = [*self.numbers]
        numbers[place] += number
        numbers[CANCELLED] += cancelled
        until, task_id = last or (math.inf, "")
        page = CountedPage(place, label, until, task_id, counted_at)
        counted = replace(self, numbers=tuple(numbers), pages=(*self.pages, page))
        return counted.with_faults(faults or FaultChanges(), changed or {})

    def with_faults(self, faults: FaultChanges, changed: Mapping[str, int]) -> Self:
        """Return it with *faults* of its last page, and what *changed* while that was read."""
        noted = {**self.changed, len(self.pages) - 1: changed} if changed else self.changed
        if self.faults is None or sum(map(len, noted.values())) > _CHANGED:
            return replace(self, faults=None, changed={})
        every = QueueFaults(kinds=dict(self.faults))
        for kinds in faults.by_queue.values():
            every.merge(kinds, now=0)
        return replace(self, faults=every.kinds, changed=noted)

    def counted_at(self, entry: IndexEntry) -> int | None:
        """Return when the page of *entry* was counted; None if that is still to come."""
        place = Place.labelled(entry.queue, entry.state, entry.label)
        if place.shard >= self.shards or place.lane not in self.lanes:
            return _NEVER  # added since it began: nothing of it is ever counted
        number = self._page_of(entry)
        return None if number is None else self.pages[number].counted_at

    def _page_of(self, entry: IndexEntry) -> int | None:
        key = (_PLACE[entry.state], entry.label, float(entry.at), entry.task_id)
        found = bisect_left(self.pages, key, key=_end)
        if found == len(self.pages) or self.pages[found][:2] != key[:2]:
            return None
        return found

    def adds(
        self, left: IndexEntry | None, entered: IndexEntry | None, at: int
    ) -> Iterator[tuple[int, int]]:
        """Yield by how much which counts change by a change *at* an instant that is not seen."""
        for entry, step in ((left, -1), (entered, 1)):
            counted_at = None if entry is None else self.counted_at(entry)
            if entry is not None and counted_at is not None and at > counted_at:
                yield _PLACE[entry.state], step
                if entry.cancelled:
                    yield CANCELLED, step

    def fault_steps(
        self, left: IndexEntry | None, entered: IndexEntry | None, at: int, version: int
    ) -> Iterator[FaultStep]:
        """Yield by how much which faults change by a change that is not seen, as adds() does.

        *version* is the task's after it.
        """
        for entry, step in ((left, -1), (entered, 1)):
            counted_at = self.counted_at(entry) if entry is not None and entry.fault else None
            if entry is None or counted_at is None or at <= counted_at:
                continue
            number = self._page_of(entry)
            noted = {} if number is None else self.changed.get(number, {})
            if version > noted.get(entry.task_id, _NEVER):
                yield entry.fault, entry.state is State.DEAD, step

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        pages = [
            [page.state, page.label, *(page[2:4] if page.until < math.inf else ()), page.counted_at]
            for page in self.pages
        ]
        return {
            "id": self.id,
            "shards": self.shards,
            "numbers": self.numbers,
            "pages": pages,
            "was": self.was,
            "lanes": sorted(self.lanes),
            "faults": None if self.faults is None else body_of(self.faults),
            "changed": {str(number): versions for number, versions in self.changed.items()},
            "began": self.began,
            "exact": self.exact,
        }

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        """Return the recount that body() wrote."""
        pages = tuple(
            CountedPage(state, label, until, task_id, counted_at)
            for state, label, *where, counted_at in body["pages"]
            for until, task_id in [where or (math.inf, "")]
        )
        lanes = frozenset(body.get("lanes", ORDINARY))
        numbers, was = tuple(counts_of(body["numbers"])), tuple(counts_of(body["was"]))
        known = body.get("faults")  # not of a recount that began before there were any
        faults = None if known is None else kinds_of(known)
        changed = {int(number): seen for number, seen in body.get("changed", {}).items()}
        return cls(
            body["id"],
            body["shards"],
            numbers,
            pages,
            was,
            lanes,
            faults,
            changed,
            body["began"],
            body["exact"],
        )


def _end(page: CountedPage) -> tuple[int, int, float, str]:
    return page.state, page.label, page.until, page.task_id


def together(one: Sequence[int], *others: Sequence[int]) -> Counts:
    """Return the sums of counts."""
    return [sum(numbers) for numbers in zip(one, *others, strict=True)]


OPEN: Final = "recounting"
DONE: Final = "recount"
_GIVEN_UP_AFTER: Final = timedelta(hours=1)


def to_record(kind: str, queue: str, count: NewCount, now: datetime, version: int) -> Record:
    """Return *count* as a record of *kind*."""
    kept = KEPT if kind == DONE else _GIVEN_UP_AFTER
    return Record(kind, queue, count.body(), version, now + kept)


def write(store: Store, kind: str, queue: str, count: NewCount, now: datetime) -> int:
    """Write *count* as the record of *kind*, whatever was there; return its version."""
    while True:
        before = store.record(kind, queue)
        version = before.version if before is not None else 0
        record = to_record(kind, queue, count, now, version + 1)
        if store.put_record(record, replaces=version or None):
            return version + 1


def read(
    store: Store, kind: str, queue: str, recount: str, now: datetime
) -> tuple[NewCount, int] | None:
    """Return the count of *queue* of this id and its version; None if there is none any more."""
    record = store.record(kind, queue)
    if record is None or (record.expires_at is not None and record.expires_at <= now):
        return None
    count = NewCount.of(dict(record.body))
    return (count, record.version) if count.id == recount else None
