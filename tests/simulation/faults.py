"""One wrapper around every method of the store, in which things go wrong by a seeded chance."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from headrace.domain.errors import Unavailable
from headrace.store.base import Claim, CountPage, EntryPage, Store
from tests.simulation.stage import Stage

METHODS = tuple(
    name
    for name, value in vars(Store).items()
    if callable(value) and not name.startswith("_") and name != "claim"
)
READS = frozenset(
    {"read", "tombstones", "ids", "entries", "count", "key_lock", "key_locks", "record", "records"}
    | {"matches", "item", "items_by_key", "items_of_kind"}
)
MAY_BE_STALE = ("entries", "count")
"""Reads of the index; ``records`` and ``read`` may be stale where they are asked so."""
STALE_SECONDS = 4.0


class Died(BaseException):
    """The process ended here: it does nothing more, and its caller gets no answer."""


@dataclass(frozen=True)
class FaultRates:
    """How often a call of the store fails in which way; 0 to 1."""

    away: float = 0.0  # it never arrives, and the service knows it
    lost: float = 0.0  # it takes effect, and its answer is lost
    dies_before: float = 0.0
    dies_after: float = 0.0
    stalls: float = 0.0  # the process stands still, longer than most leases last
    stale: float = 0.0  # the index shows what was a few seconds ago
    timeouts: float = 0.0  # a caller gives up, and its request goes on

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds of faults that happen at all."""
        return tuple(name for name, rate in vars(self).items() if rate)

    def without(self, name: str) -> "FaultRates":
        return replace(self, **{name: 0.0})


class FaultyStore:
    """A store some milliseconds away, as one process sees it."""

    def __init__(
        self,
        store: Store,
        stage: Stage,
        rates: Callable[[], FaultRates],
        seen: "deque[tuple[datetime, tuple[Any, ...], Any]]",
        note: Callable[[str], None],
    ) -> None:
        self._store, self._stage, self._rates, self._seen = store, stage, rates, seen
        self._note = note
        self.chance = random.Random(stage.chance.getrandbits(64))
        self.arrivals = None  # these wake real threads; here a process asks again
        self.task_ends = None
        for name in METHODS:
            setattr(self, name, self._wrapped(name))

    def claim(self, claim: Claim) -> None:
        claim.claim()

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = getattr(self._store, name)

        def call(*args: Any, **named: Any) -> Any:
            return self._call(name, real, args, named)

        return call

    def _call(
        self, name: str, real: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        if name == "commit" and not args[0]:
            return []
        rates, chance = self._rates(), self.chance
        self._stage.sleep(chance.uniform(0.001, 0.006))
        if chance.random() < rates.away:
            self._note(f"{name}: the table is away")
            raise Unavailable("the table is away")
        writes = name not in READS
        if writes and chance.random() < rates.dies_before:
            self._note(f"{name}: the process dies before it")
            raise Died
        stale = chance.random() < rates.stale and self._stale(name, args, named)
        answer = stale or real(*args, **named)
        if name in MAY_BE_STALE and not stale:
            self._seen.append((self._stage.now(), _asked(name, args, named), answer))
        if writes and chance.random() < rates.dies_after:
            self._note(f"{name}: the process dies after it")
            raise Died
        gave_up = self._stage.actor.endswith("*")
        if chance.random() < (max(0.1, rates.stalls) if gave_up else rates.stalls):
            # A request takes at most a minute: then its process is ended.
            seconds = chance.choice((0.3, 2.0, 8.0) if gave_up else (2.0, 8.0, 25.0, 70.0))
            self._note(f"{name}: the process stands still for {seconds:g} s")
            self._stage.sleep(seconds)
        if writes and chance.random() < rates.lost:
            self._note(f"{name}: the answer is lost")
            raise Unavailable("the answer was lost")
        self._stage.sleep(chance.uniform(0.001, 0.006))
        return answer

    def _stale(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return what the same question was answered a few seconds ago; None if nobody asked."""
        if name not in MAY_BE_STALE:
            return None
        asked, oldest = _asked(name, args, named), self._stage.now() - _STALE
        for at, question, answer in self._seen:
            if at >= oldest and question == asked:
                return _within(answer, named)
        return None

    @property
    def store(self) -> Store:
        return cast("Store", self)


_STALE = timedelta(seconds=STALE_SECONDS)


def _asked(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return a question without the moment at which it is asked."""
    return (name, args, *sorted((k, v) for k, v in named.items() if k not in ("until", "now")))


def _within(answer: EntryPage | CountPage, named: dict[str, Any]) -> EntryPage | CountPage:
    until = named.get("until")
    if isinstance(answer, EntryPage) and until is not None:
        entries = tuple(one for one in answer.entries if one.scheduled_at <= until)
        return replace(answer, entries=entries)
    return answer
