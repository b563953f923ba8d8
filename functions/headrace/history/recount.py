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
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self

from headrace.domain.task import ORDINARY, Place, State, places_of
from headrace.history.counter_buffer import KEPT
from headrace.history.tally import CANCELLED, STATES, Counts, counts_of
from headrace.history.transitions import IndexEntry
from headrace.store.base import Record, Store

_PLACE: Final = {state: place for place, state in enumerate(STATES)}
_NEVER: Final = -1


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
    finished what they said then.
    """

    id: str
    shards: int
    numbers: tuple[int, ...] = tuple(counts_of())
    pages: tuple[CountedPage, ...] = ()
    was: tuple[int, ...] = tuple(counts_of())
    lanes: frozenset[int] = ORDINARY

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
    ) -> Self:
        """Return it with *number* entries more, up to the *last*, or to the partition's end.

        *cancelled* of them are dead because they were cancelled.
        """
        place = _PLACE[state]
        numbers = [*self.numbers]
        numbers[place] += number
        numbers[CANCELLED] += cancelled
        until, task_id = last or (math.inf, "")
        page = CountedPage(place, label, until, task_id, counted_at)
        return replace(self, numbers=tuple(numbers), pages=(*self.pages, page))

    def counted_at(self, entry: IndexEntry) -> int | None:
        """Return when the page of *entry* was counted; None if that is still to come."""
        place = Place.labelled(entry.queue, entry.state, entry.label)
        if place.shard >= self.shards or place.lane not in self.lanes:
            return _NEVER  # added since it began: nothing of it is ever counted
        key = (_PLACE[entry.state], entry.label, float(entry.at), entry.task_id)
        found = bisect_left(self.pages, key, key=_end)
        if found == len(self.pages) or self.pages[found][:2] != key[:2]:
            return None
        return self.pages[found].counted_at

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
        return cls(body["id"], body["shards"], numbers, pages, was, lanes)


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
