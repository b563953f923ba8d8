"""The conditions of a test: time that moves by hand, chance from a seed, and what goes wrong.

A test asks for faults; they are drawn from a seed that is printed.  Answers and requests get lost,
the service is unavailable for a moment, leases expire while a handler runs.  Each fault really
happens to the service in memory.
"""

import os
import random
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self, TypeAlias

from headrace.domain.errors import InvalidRequest

Call: TypeAlias = Literal["enqueue", "dequeue", "report"]
Kind: TypeAlias = Literal[
    "duplicate delivery",
    "lost answer",
    "lost request",
    "lapsed lease",
    "unavailable",
]

SEED_VARIABLE: Final = "HEADRACE_SEED"

START: Final = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
"""When a manual clock starts by default: a Saturday morning."""


def chosen_seed(env: Mapping[str, str] = os.environ) -> int:
    """Return ``HEADRACE_SEED``, or a seed by chance.  Raises InvalidRequest if it is no number."""
    text = env.get(SEED_VARIABLE)
    if not text:
        return secrets.randbelow(1_000_000)
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest.of(SEED_VARIABLE, f"must be a whole number, not {text!r}") from None


class ManualClock:
    """Call it, or read ``now``, for the time; it moves only by ``forward``.  Threads may share it.

    Raises ValueError for a *time* that is not aware.
    """

    def __init__(self, time: datetime = START) -> None:
        if time.tzinfo is None:
            raise ValueError(f"time must be aware, and {time.isoformat()} has no time zone")
        self.time = time.astimezone(UTC)
        self._lock = threading.Lock()

    def __call__(self) -> datetime:
        """Return the time: aware, UTC."""
        return self.time

    @property
    def now(self) -> datetime:
        """The time: aware, UTC."""
        return self.time

    def forward(self, seconds: float | timedelta) -> None:
        """Let *seconds* pass.  Raises ValueError for less than 0: this clock never goes back."""
        step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if step < timedelta():
            raise ValueError(f"seconds must be 0 or more, not {step.total_seconds():g}")
        with self._lock:
            self.time += step

    def forward_to(self, time: datetime) -> None:
        """Let it be *time*, if it is not later already."""
        with self._lock:
            self.time = max(self.time, time.astimezone(UTC))

    def __repr__(self) -> str:
        return f"ManualClock({self.time.isoformat()})"


@dataclass(eq=False)
class Fault:
    """One thing that goes wrong: the next ``times`` times, or by chance in a ``rate`` of cases.

    ``struck`` says how often it has happened.  As a context manager it ends with the block.
    """

    faults: "Faults"
    kind: Kind
    times: int | None
    rate: float | None
    of: Call | None = None
    retry_after_seconds: int = 1
    struck: int = 0

    def __enter__(self) -> Self:
        """Return the fault, which goes on until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.end()

    def end(self) -> None:
        """Let it happen no more."""
        self.faults.requested = [fault for fault in self.faults.requested if fault is not self]

    def strikes(self) -> bool:
        """Whether it happens this time, and count it."""
        if self.rate is not None:
            happens = self.faults.chance.random() < self.rate
        else:
            happens = self.struck < (self.times or 0)
        self.struck += happens
        return happens


class Faults:
    """The faults of one service.  All chance is drawn from *seed*: the same seed, the same story.

    Without *seed* it is ``HEADRACE_SEED``, or one by chance.  The story is the same as long as one
    thread at a time talks to the service, but for the order of tasks due at the very same
    microsecond, which their ids decide.  Each fault is requested with ``times`` (1 unless
    given) or ``rate`` (0 to 1), and lasts until it has happened so often, or its block or `clear`
    ends it.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = chosen_seed() if seed is None else seed
        self.chance = random.Random(self.seed)  # noqa: S311 (to be repeated is its purpose)
        self.requested: list[Fault] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Faults(seed={self.seed})"

    def duplicate_delivery(self, *, times: int | None = None, rate: float | None = None) -> Fault:
        """Let a task be delivered again though its handler has run to the end.

        The final report comes too late: the clock jumps to the end of the lease, the reaper takes
        the task back, and the report changes nothing.  It happens at most once to a task, and not
        to one without retries left.
        """
        return self._ask("duplicate delivery", times, rate)

    def lapse_leases(self, *, times: int | None = None, rate: float | None = None) -> Fault:
        """Let the lease of a task be over before its handler has begun.

        The clock jumps to the end of the lease and the reaper takes the task back while the
        answer of the dequeue is under way; the handler runs all the same, and its report changes
        nothing.  It costs the task an attempt, as any lapsed lease.
        """
        return self._ask("lapsed lease", times, rate)

    def lose_answers(
        self, *, times: int | None = None, rate: float | None = None, of: Call | None = None
    ) -> Fault:
        """Let calls take effect while their answers get lost (`httpx2.ReadTimeout`)."""
        return self._ask("lost answer", times, rate, of)

    def lose_requests(
        self, *, times: int | None = None, rate: float | None = None, of: Call | None = None
    ) -> Fault:
        """Let calls never arrive (`httpx2.ConnectError`)."""
        return self._ask("lost request", times, rate, of)

    def unavailable(
        self,
        *,
        times: int | None = None,
        rate: float | None = None,
        of: Call | None = None,
        retry_after_seconds: int = 1,
    ) -> Fault:
        """Let calls be answered 503 with ``Retry-After``; they change nothing."""
        fault = self._ask("unavailable", times, rate, of)
        fault.retry_after_seconds = retry_after_seconds
        return fault

    def clear(self) -> None:
        """End all faults."""
        self.requested = []

    def active(self, kind: Kind) -> bool:
        """Whether a fault of this kind is requested."""
        return any(fault.kind == kind for fault in self.requested)

    def struck(self, kind: Kind, call: Call | None = None) -> Fault | None:
        """Return the fault of this kind that happens now, if one does."""
        with self._lock:
            for fault in self.requested:
                if fault.kind == kind and fault.of in (None, call) and fault.strikes():
                    return fault
        return None

    def _ask(
        self, kind: Kind, times: int | None, rate: float | None, of: Call | None = None
    ) -> Fault:
        if times is not None and rate is not None:
            raise InvalidRequest.of("times", "and rate exclude each other: give one of them")
        if times is not None and times < 1:
            raise InvalidRequest.of("times", f"must be 1 or more, not {times}")
        if rate is not None and not 0 <= rate <= 1:
            raise InvalidRequest.of("rate", f"must be from 0 to 1, not {rate}")
        if of not in (None, "enqueue", "dequeue", "report"):
            raise InvalidRequest.of("of", f"must be enqueue, dequeue or report, not {of!r}")
        fault = Fault(self, kind, 1 if times is None and rate is None else times, rate, of)
        self.requested.append(fault)
        return fault
