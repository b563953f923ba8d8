"""Counting by the index, request by request: each reads a mebibyte of entries at most."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headrace.domain.filters import TaskFilter
from headrace.domain.queue import Queue
from headrace.domain.task import Place, State
from headrace.store.base import CountPage, Position, Store


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
    """Where a count by the index is: a span of the filter, one of its shards, and behind what.

    ``as_of`` is what "now" means to it; ``looked_at`` is what was counted since it was read.
    """

    as_of: datetime
    span: int = 0
    shard: int = 0
    after: Position | None = None
    looked_at: int = 0

    def count(
        self, store: Store, queue: Queue, where: TaskFilter, by_state: dict[State, int]
    ) -> Iterator["CountPosition"]:
        """Go on from here, add to *by_state* and, if that is not all, yield where that leads."""
        at, spans = self, where.spans(self.as_of)
        while at.span < len(spans):
            span = spans[at.span]
            place = Place(queue.name, span.state, at.shard)
            for page in counted(
                store, place, since=span.since, until=span.until, after=at.after, now=self.as_of
            ):
                by_state[span.state] += page.number
                at = replace(at, after=page.last, looked_at=at.looked_at + page.number)
                if page.last is not None:
                    yield at
            last = at.shard + 1 >= queue.shards_of(span.state)
            at = replace(at, span=at.span + last, shard=0 if last else at.shard + 1)
            if at.span < len(spans):
                yield at

    def state(self) -> Any:  # noqa: ANN401  JSON for the cursor
        """Return the position as JSON."""
        after = self.after and [self.after.scheduled_at.isoformat(), self.after.task_id]
        return [self.as_of.isoformat(), self.span, self.shard, after]

    @classmethod
    def read(cls, state: Any) -> "CountPosition":  # noqa: ANN401  what state() returned
        """Return the position that state() wrote."""
        as_of, span, shard, after = state
        if after is not None:
            after = Position(datetime.fromisoformat(after[0]).astimezone(UTC), after[1])
        return cls(datetime.fromisoformat(as_of), span, shard, after)
