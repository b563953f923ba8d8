"""Lists and counts page by page: cursors, and the positions that they hold.

A cursor holds the position of the next page.  Callers cannot read it, because a page may end at
something that the caller must not see, and cannot change it.  A keyed hash of the content proves
that the service wrote it; the same hash makes the pad that hides the content (as in SIV modes, with
BLAKE2 as the keyed function).
"""

import base64
import binascii
import hashlib
import heapq
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.domain.change import Entry
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.filters import TaskFilter, TimeSpan
from headrace.domain.limits import AnswerRoom
from headrace.domain.queue import Queue
from headrace.domain.task import TURN_LANE, Place, State
from headrace.ops.shared.service_part import ServicePart
from headrace.store.base import CountPage, Position, Record, Store
from headrace.store.call_scope import flat_rate, restricted

if TYPE_CHECKING:
    from headrace.runtime.service import Service

_MARK_BYTES: Final = 16
_BLOCK_BYTES: Final = 64


class Cursors(ServicePart):
    """Writes and reads cursors; *secret* is what makes them ours."""

    def __init__(self, service: "Service") -> None:
        super().__init__(service)
        self.secret: bytes = hashlib.sha256(
            f"cursor {service.settings.admin_key}".encode()
        ).digest()

    def write(self, scope: str, state: object) -> str:
        """Return *state*, which is JSON, as a cursor good for *scope* (the list, its filter)."""
        body = json.dumps(state, separators=(",", ":")).encode()
        mark = self._mark(scope, body)
        return base64.urlsafe_b64encode(mark + self._padded(mark, body)).decode().rstrip("=")

    def read(self, scope: str, cursor: str) -> Any:  # noqa: ANN401  what write() was given
        """Return the state of *cursor*.  Raises InvalidRequest when we did not write it so."""
        try:
            padding = "=" * (-len(cursor) % 4)
            blob = base64.b64decode(cursor + padding, altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise _bad_cursor() from None
        mark = blob[:_MARK_BYTES]
        body = self._padded(mark, blob[_MARK_BYTES:])
        if not hmac.compare_digest(mark, self._mark(scope, body)):
            raise _bad_cursor()
        return json.loads(body)

    def walk(
        self, scope: str, positions: Iterable[object], is_over: Callable[[], bool]
    ) -> str | None:
        """Go through *positions* until the call is over; return the cursor that continues there.

        None: the walk has reached its end.
        """
        for position in positions:
            if is_over():
                return self.write(scope, position)
        return None

    def _mark(self, scope: str, body: bytes) -> bytes:
        return self._keyed(b"mark", scope.encode() + b"\0" + body, _MARK_BYTES)

    def _padded(self, mark: bytes, body: bytes) -> bytes:
        """Return *body* hidden, or what was hidden: the pad of *mark* goes on and comes off."""
        blocks = range(-(-len(body) // _BLOCK_BYTES))
        pad = b"".join(
            self._keyed(b"pad", mark + block.to_bytes(4), _BLOCK_BYTES) for block in blocks
        )
        return bytes(one ^ other for one, other in zip(body, pad, strict=False))

    def _keyed(self, use: bytes, text: bytes, size: int) -> bytes:
        key = self.secret[:64]
        return hashlib.blake2b(text, key=key, person=use, digest_size=size).digest()


def _bad_cursor() -> InvalidRequest:
    detail = "cursor is not one this list has given, with this filter"
    return InvalidRequest(detail, errors=(FieldError("cursor", detail),))


LOOKED_AT: Final = 2_000
"""Records that one call looks at before it answers with what it has."""

LOOKS_FOR: Final = timedelta(seconds=5)
"""And how long, where reading is slow."""

_STRIDE: Final = 250
_READ_BYTES: Final = 4096
_ROW_BYTES: Final = 8192  # of what an answer says of one besides what its record holds, at most
_KEY_BYTES: Final = 100  # of what a record takes beside its body, about

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):
    """What is shown of a page, and the cursor of the next one; None: that was all."""

    shown: tuple[_T, ...]
    cursor: str | None


def text_of_record(record: Record, _shown: object) -> str:
    """Return the body of *record* as JSON."""
    return json.dumps(record.body, ensure_ascii=False, default=str)


def seek(  # noqa: PLR0913  every list has these
    store: Store,
    kind: str,
    keep: Callable[[Record], _T | None],
    cursors: Cursors,
    scope: str,
    *,
    limit: int,
    cursor: str | None,
    prefix: str = "",
    first: str = "",
    through: str | None = None,
    now: Callable[[], datetime],
    text_of: Callable[[Record, _T], str] = text_of_record,
) -> Found[_T]:
    """Return up to *limit* records of *kind* as *keep* maps them, without those mapped to None.

    They come after *cursor*, which belongs to *scope*; raises InvalidRequest for a forged one.
    Their names start with *prefix*, and are after *first* and up to *through*.  A page is short or
    empty if filling it would read too many records or exceed the answer; then more may follow.
    *text_of* returns the text that the answer shows of one, about.  A restricted key
    is charged only for the records shown.
    """
    until, looked_at, stride = now() + LOOKS_FOR, 0, min(_STRIDE, limit + 1)
    shown: list[_T] = []
    room = AnswerRoom()
    after, last = cursors.read(scope, cursor) if cursor else first, ""
    with flat_rate() as rate:
        while True:
            records, more = store.records(kind, prefix=prefix, after=after, limit=stride)
            for record in records:
                if through is not None and record.name > through:
                    more = False
                    break
                kept = keep(record)
                if kept is not None:
                    fits = room.takes(text_of(record, kept), besides=_ROW_BYTES) or not shown
                    if len(shown) == limit or not fits:  # this one begins the next page
                        rate.read = read_units(shown)
                        return Found(tuple(shown), cursors.write(scope, last))
                    shown.append(kept)
                    last = record.name
                after = record.name
            rate.read = read_units(shown)
            looked_at += len(records)
            if not more:
                return Found(tuple(shown), None)
            if looked_at >= LOOKED_AT or now() >= until:
                return Found(tuple(shown), cursors.write(scope, after))
            stride = _STRIDE  # where much is left out, go on in longer strides


def read_units(shown: Iterable[object]) -> float:
    """Return about the cost of reading only the records *shown*; 0 for none."""
    if not restricted():
        return 0
    size = sum(_KEY_BYTES + len(repr(one).encode()) for one in shown)
    return max(1, ceil(size / _READ_BYTES))


_READ: Final = 50  # tasks read at once
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
    """Count a partition from *since* to *until*, yielding the count of each request.

    A caller that stops early resumes later *after* the last position.  *now* as for
    ``Store.count``.
    """
    while True:
        page = store.count(place, since=since, until=until, after=after, now=now)
        yield page
        after = page.last
        if after is None:
            return


def pages_of(
    store: Store,
    places: Sequence[Place],
    position: Sequence[Any] | None,
    *,
    at: datetime | None = None,
    limit: int,
) -> Iterator[tuple[Sequence[Entry], list[Any] | None]]:
    """Yield pages of the entries of *places*, each with the position of the next page as JSON.

    The first *position* and the last one are None.  With *at*, only entries of that time are read.
    """
    number, last = position or (0, None)
    while number < len(places):
        after = None if last is None else Position.read(last)
        page = store.entries(places[number], since=at, until=at, after=after, limit=limit)
        number, last = (number, page.last.state()) if page.last else (number + 1, None)
        yield page.entries, [number, last] if number < len(places) else None


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


def merged_entries(
    store: Store, queue: Queue, span: TimeSpan, walk: Walk, *, descending: bool, page: int
) -> Iterator[Entry]:
    """Yield the entries of all places of a span behind *walk*, in order."""

    def entries_of(place: Place) -> Iterator[Entry]:
        after, limit = walk.seen.get(place.label), page
        since, until = span.since, span.until
        if place.lane == TURN_LANE:  # all are due by now, in another order
            if since is not None and since > walk.as_of:
                return
            since = until = None
        while True:
            found = store.entries(
                place,
                since=since,
                until=until,
                after=after,
                descending=descending,
                limit=limit,
            )
            yield from found.entries
            after, limit = found.last, larger_page(limit)
            if after is None:
                return

    return heapq.merge(
        *map(entries_of, queue.places(span.state)),
        key=lambda entry: (entry.scheduled_at, entry.task_id),
        reverse=descending,
    )


def larger_page(page: int) -> int:
    """Return the size of the next page to read after one of *page* entries."""
    return max(page, min(2 * page, _READ))
