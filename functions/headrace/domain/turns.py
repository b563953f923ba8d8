"""Dividing time between jobs that are done step by step: whoever has had the least comes next."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self


@dataclass(slots=True)
class Job:
    """Something to do, step by step; of the time there is it gets *share* parts."""

    name: str
    steps: Iterator[None]
    share: float = 1.0


@dataclass(order=True, slots=True)
class _Turn:
    used: float  # seconds by the job's share
    number: int  # the order of those that have had the same
    job: Job = field(compare=False)


class Turns:
    """The steps of several jobs, one at a time; itself the steps of a job.

    Each step is one of the job that has had the least time by its share, and of several such the
    one that has waited for longest.  So a slow job holds up nobody, and each gets a first step
    before any gets a second.
    """

    def __init__(self, jobs: Iterable[Job], now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting = [_Turn(0.0, number, job) for number, job in enumerate(jobs)]
        self._number = self._first = self._new = len(self._waiting)

    @property
    def next(self) -> str | None:
        """The name of the job whose turn it is; None when all are done."""
        return self._waiting[0].job.name if self._waiting else None

    @property
    def new(self) -> int:
        """How many jobs have not had a step yet."""
        return self._new

    def __iter__(self) -> Self:
        """Return the steps."""
        return self

    def __next__(self) -> None:
        """Take a step.  What it raises, its job raises, which is then over."""
        if not self._waiting:
            raise StopIteration
        turn = heapq.heappop(self._waiting)
        self._new -= turn.number < self._first
        began = self._now()
        try:
            next(turn.job.steps)
        except StopIteration:
            return
        turn.used += (self._now() - began).total_seconds() / turn.job.share
        turn.number = self._number
        self._number += 1
        heapq.heappush(self._waiting, turn)
