"""Lists of control records of which a caller may see some: so far and no further in one call."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Final, Generic, TypeVar

from headrace.store.base import Record, Store, flat_rate, restricted

LOOKED_AT: Final = 2_000
"""Records that one call looks at before it answers with what it has."""

LOOKS_FOR: Final = timedelta(seconds=5)
"""And how long, where reading is slow."""

_STRIDE: Final = 250
_READ_BYTES: Final = 4096
_KEY_BYTES: Final = 100  # of what a record takes beside its body, about

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):
    """What is shown of a page, and behind which name the next one begins; None: that was all."""

    shown: tuple[_T, ...]
    after: str | None


def seek(
    store: Store,
    kind: str,
    keep: Callable[[Record], _T | None],
    *,
    limit: int,
    prefix: str = "",
    after: str = "",
    now: Callable[[], datetime],
) -> Found[_T]:
    """Return up to *limit* records of *kind* as *keep* makes them, without those it leaves out.

    A page is full if there is enough to fill it within what one call looks at; else it is short,
    or empty, and there may be more.  Whoever may not know of all queues pays for what is shown.
    """
    until, looked_at, stride = now() + LOOKS_FOR, 0, min(_STRIDE, limit + 1)
    shown: list[_T] = []
    last = ""
    with flat_rate() as rate:
        while True:
            records, more = store.records(kind, prefix=prefix, after=after, limit=stride)
            for record in records:
                kept = keep(record)
                if kept is not None:
                    if len(shown) == limit:  # one more than wanted: there is a next page
                        rate.read = read_units(shown)
                        return Found(tuple(shown), last)
                    shown.append(kept)
                    last = record.name
                after = record.name
            rate.read = read_units(shown)
            looked_at += len(records)
            if not more:
                return Found(tuple(shown), None)
            if looked_at >= LOOKED_AT or now() >= until:
                return Found(tuple(shown), after)
            stride = _STRIDE  # where much is left out, go on in longer strides


def read_units(shown: Iterable[object]) -> float:
    """Return about what it costs to read just what is *shown*; 0 where nobody sees it."""
    if not restricted():
        return 0
    size = sum(_KEY_BYTES + len(repr(one).encode()) for one in shown)
    return max(1, ceil(size / _READ_BYTES))
