"""How far a list or a count has come, so that its next step goes on there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from headrace.domain.change import Entry
from headrace.domain.filters import TaskFilter
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State
from headrace.store.base import CountPage, Position, Store

_OF_NARROW: Final = 2  # parts of its state


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a list is: the span, what was seen last at each place, and what "now" meant.

    Places go by their labels.  A walk that is ``narrow`` goes over known ids, behind ``last_id``.
    """

    as_of: datetime
    span: int = 0
    seen: Mapping[int, Position] = field(default_factory=dict)
    looked_at: int = 0
    narrow: bool = False
    last_id: str = ""

    @property
    def fresh(self) -> bool:
        """Whether it is at its beginning."""
        return not (self.span or self.seen or self.narrow)

    def past(self, entry: Entry) -> "Walk":
        """Return the walk behind *entry*."""
        position = Position(entry.scheduled_at, entry.task_id)
        seen = {**self.seen, entry.place.label: position}
        return Walk(self.as_of, self.span, seen, self.looked_at + 1)

    def past_id(self, task_id: str) -> "Walk":
        """Return the walk behind this id."""
        return replace(self, looked_at=self.looked_at + 1, narrow=True, last_id=task_id)

    def next_span(self) -> "Walk":
        """Return the walk at the beginning of the next span."""
        return Walk(self.as_of, self.span + 1, {}, self.looked_at)

    def state(self) -> list[Any]:
        """Return the walk as JSON for a cursor."""
        if self.narrow:
            return [self.as_of.isoformat(), self.last_id]
        seen = {label: position.state() for label, position in self.seen.items()}
        return [self.as_of.isoformat(), self.span, seen]

    @classmethod
    def read(cls, state: list[Any]) -> "Walk":
        """Return the walk that state() wrote."""
        if len(state) == _OF_NARROW:
            as_of, last_id = state
            return cls(datetime.fromisoformat(as_of), narrow=True, last_id=last_id)
        as_of, span, seen = state
        positions = {int(label): Position.read(position) for label, position in seen.items()}
        return cls(datetime.fromisoformat(as_of), span, positions)


def counted(
    store: Store,
    place: Place,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    after: Position | None = None,
    now: datetime | None,
) -> Iterator[CountPage]:
    """Count a partition from *since* to *until*, yielding what each request has counted.

    Whoever stops early goes on later *after* the last position.  *now* as for ``Store.count``.
    """
    while True:
        page = store.count(place, since=since, until=until, after=after, now=now)
        yield page
        after = page.last
        if after is None:
            return


@dataclass(frozen=True, slots=True)
class CountPosition:
    """Where a count by the index is: a span of the filter, a place by its label, and behind what.

    ``as_of`` is what "now" means to it; ``looked_at`` is what was counted since it was read.
    """

    as_of: datetime
    span: int = 0
    label: int = 0
    after: Position | None = None
    looked_at: int = 0

    def count(
        self, store: Store, queue: Queue, where: TaskFilter, by_state: dict[State, int]
    ) -> Iterator["CountPosition"]:
        """Go on from here, add to *by_state* and, if that is not all, yield where that leads."""
        at, spans = self, where.spans(self.as_of)
        while at.span < len(spans):
            span = spans[at.span]
            place = Place.labelled(queue.name, span.state, at.label)
            for page in counted(
                store, place, since=span.since, until=span.until, after=at.after, now=self.as_of
            ):
                by_state[span.state] += page.number
                at = replace(at, after=page.last, looked_at=at.looked_at + page.number)
                if page.last is not None:
                    yield at
            labels = [one.label for one in queue.places(span.state)]
            behind = next((label for label in labels if label > at.label), None)
            at = replace(at, span=at.span + (behind is None), label=behind or 0)
            if at.span < len(spans):
                yield at

    def state(self) -> list[Any]:
        """Return the position as JSON for a cursor."""
        after = self.after and self.after.state()
        return [self.as_of.isoformat(), self.span, self.label, after]

    @classmethod
    def read(cls, state: list[Any]) -> "CountPosition":
        """Return the position that state() wrote."""
        as_of, span, label, after = state
        position = None if after is None else Position.read(after)
        return cls(datetime.fromisoformat(as_of), span, label, position)
