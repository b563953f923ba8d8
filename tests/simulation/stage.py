"""One virtual clock, and actors of which one runs at a time.

An actor is a thread that runs until it sleeps.  Then the clock moves on to the actor whose time
comes next.  So the same seed gives the same run, and a virtual hour takes no real time.
"""

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

START = datetime(2031, 5, 1, 8, 0, 0, tzinfo=UTC)
LONGEST = 14 * 86_400.0
"""Virtual seconds after which a run that has not ended is a failure."""


class Cancelled(BaseException):
    """Ends an actor after another one has failed."""


class Stage:
    """The clock, and the actors in the order in which they run."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.passed = 0.0
        self.failure: BaseException | None = None
        self._waiting: list[tuple[float, int, _Turn]] = []
        self._count = 0
        self._over = threading.Semaphore(0)
        self._local = threading.local()

    def now(self) -> datetime:
        """Return the virtual time."""
        return START + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        """Return the virtual seconds since the start."""
        return self.passed

    @property
    def actor(self) -> str:
        """The name of the actor that runs."""
        return getattr(self._local, "name", "setup")

    def sleep(self, seconds: float) -> None:
        """Let others run for *seconds*; outside of an actor, just let the time pass."""
        turn = getattr(self._local, "turn", None)
        if turn is None:
            self.passed += seconds
            return
        self._wait(turn, seconds)
        self._next(turn)
        if self.failure is not None:
            raise Cancelled

    def add(self, name: str, act: Callable[[], None], *, after: float = 0.0) -> None:
        """Let an actor begin in so many seconds."""
        turn = _Turn()
        threading.Thread(target=self._run, args=(name, act, turn), daemon=True).start()
        self._wait(turn, after)

    def play(self) -> None:
        """Run all actors until each has ended.  Raises what the first that failed raised."""
        self._next(None)
        self._over.acquire()
        if self.failure is not None:
            while self._waiting:  # each ends with Cancelled
                _, _, turn = heappop(self._waiting)
                turn.go.release()
                turn.ended.acquire()
            raise self.failure

    def _run(self, name: str, act: Callable[[], None], turn: "_Turn") -> None:
        self._local.turn, self._local.name = turn, name
        turn.go.acquire()
        try:
            if self.failure is None:
                act()
        except Cancelled:
            pass
        except BaseException as error:  # noqa: BLE001 (raised again by play)
            if self.failure is None:
                self.failure = error
                self._over.release()
                turn.ended.release()
                return
        turn.ended.release()
        if self.failure is None:
            self._next(None)

    def _wait(self, turn: "_Turn", seconds: float) -> None:
        self._count += 1
        heappush(self._waiting, (self.passed + seconds, self._count, turn))

    def _next(self, mine: "_Turn | None") -> None:
        if not self._waiting:
            self._over.release()
            return
        at, _, turn = heappop(self._waiting)
        self.passed = max(self.passed, at)
        if self.passed > LONGEST:
            self.failure = AssertionError("the run does not end")
            self._over.release()
        if turn is not mine:
            turn.go.release()
            if mine is not None:
                mine.go.acquire()


class _Turn:
    """Lets one actor run."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
