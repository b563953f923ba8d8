"""Many services on one clock that nobody waits for: each actor runs when its time has come.

Actors are threads of which one runs at a time, until it sleeps or waits for the store; then the
clock moves on to whoever is next.  The same seed gives the same run.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any

from headrace.domain.change import Change
from headrace.domain.lifecycle import Action
from headrace.store.base import Done, Outcome, Store
from tests.manual_clock import ManualClock

_WAITED_FOR = {"entries", "record", "records", "read", "commit"}


@dataclass
class Stage:
    """The clock, and who runs when."""

    chance: random.Random
    passed: float = 0.0
    _turns: list[tuple[float, int, threading.Semaphore]] = field(default_factory=list)
    _count: int = 0
    _over: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _start: datetime = field(default_factory=ManualClock())
    _failed: list[BaseException] = field(default_factory=list)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.passed)

    def sleep(self, seconds: float) -> None:
        """Let others run until *seconds* have passed; outside of ``play`` time just passes."""
        mine = getattr(_ACTOR, "turn", None)
        if mine is None:
            self.passed += seconds
            return
        self._queue(mine, seconds)
        self._next(mine)

    def play(self, actors: Sequence[Callable[[], Any]]) -> None:
        """Run the actors until each has ended."""
        for act in actors:
            turn = threading.Semaphore(0)
            threading.Thread(target=self._run, args=(act, turn), daemon=True).start()
            self._queue(turn, 0.0)
        self._next(None)
        self._over.acquire()
        if self._failed:
            raise self._failed[0]

    def _run(self, act: Callable[[], Any], turn: threading.Semaphore) -> None:
        _ACTOR.turn = turn
        turn.acquire()
        try:
            act()
        except BaseException as error:  # noqa: BLE001  raised where play was called
            self._failed.append(error)
            self._over.release()  # the others might wait for it for ever
        else:
            self._next(None)

    def _queue(self, turn: threading.Semaphore, seconds: float) -> None:
        self._count += 1
        heappush(self._turns, (self.passed + seconds, self._count, turn))

    def _next(self, mine: threading.Semaphore | None) -> None:
        if not self._turns:
            self._over.release()
            return
        at, _, turn = heappop(self._turns)
        self.passed = max(self.passed, at)
        if turn is not mine:
            turn.release()
            if mine is not None:
                mine.acquire()


_ACTOR = threading.local()


@dataclass
class Claimed:
    """How many claims were tried, and how many of them came too late."""

    tried: int = 0
    lost: int = 0
    won: list[str] = field(default_factory=list)  # ids of tasks, in the order of their deliveries

    @property
    def share(self) -> float:
        return self.lost / max(1, self.tried)


@dataclass
class Distant:
    """A store some milliseconds away, as what it answers is already old when it comes."""

    store: Store
    stage: Stage
    claimed: Claimed
    seconds: tuple[float, float] = (0.003, 0.012)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if name not in _WAITED_FOR:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._wait()
            answer = found(*given, **named)
            self._wait()
            return answer

        return call

    def commit(self, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        if not changes:
            return []
        self._wait()
        outcomes = self.store.commit(changes, **how)
        self._wait()
        for change, outcome in zip(changes, outcomes, strict=True):
            if change.rule.action is Action.DEQUEUE:
                self.claimed.tried += 1
                if isinstance(outcome, Done):
                    self.claimed.won.append(outcome.task.id)
                else:
                    self.claimed.lost += 1
        return outcomes

    def _wait(self) -> None:
        self.stage.sleep(self.stage.chance.uniform(*self.seconds) / 2)
