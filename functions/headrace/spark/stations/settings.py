"""The settings of a station: its queues, transform and limits, checked when it is made."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import KEEPALIVE_SECONDS, NAME_RE, number_fault, pattern_fault
from headrace.spark.stations.jobs import Transform

_ROWS: Final = (1, 1_000_000)
_RATE: Final = (0.001, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class StationSettings:
    """A worker on Spark: *transform* is given what is due in *queue* and says what becomes of it.

    The frame it is given has the columns of ``sources.leasing.SCHEMA``; the one it gives back has
    ``id`` and ``lease`` as they came, and of ``action``, ``to_queue``, ``payload``,
    ``delay_seconds`` and ``error`` those it needs.  Without an action a task is moved to the queue
    *to*, or, where there is none, has succeeded.

    *max_rows* is the size of a batch, *rate* a limit of tasks a second.  *lease_seconds* is how
    long a dead station keeps its tasks.  *claim_log* is a folder that all executors reach; a
    transform that regroups tasks needs one.  More than *max_poison* tasks of a batch that make the
    transform fail are its own fault.  Asked to stop, it finishes its batch within *grace_seconds*
    or gives it back.
    """

    queue: str
    transform: Transform
    to: str | None = None
    name: str | None = None
    max_rows: int = 5_000
    lease_seconds: float = 60.0
    rate: float | None = None
    claim_log: str | None = None
    max_poison: int = 20
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense.  Raises InvalidRequest naming field and limit."""
        rate, to, name = self.rate, self.to, self.name
        transform: object = self.transform
        folder = self.claim_log is None or isinstance(self.claim_log, str)
        check({
            "queue": pattern_fault(self.queue, NAME_RE),
            "transform": None if callable(transform) else "must be a function of a DataFrame",
            "to": None if to is None
            else "must be another queue than queue" if to == self.queue
            else pattern_fault(to, NAME_RE),
            "name": None if name is None else pattern_fault(name, NAME_RE),
            "max_rows": number_fault(self.max_rows, _ROWS, whole=True),
            "lease_seconds": number_fault(self.lease_seconds, KEEPALIVE_SECONDS),
            "rate": None if rate is None else number_fault(rate, _RATE),
            "claim_log": None if folder
            else f"must be the path of a folder as text, not {self.claim_log!r}",
            "max_poison": number_fault(self.max_poison, (0, _ROWS[1]), whole=True),
            "grace_seconds": number_fault(self.grace_seconds, (0, KEEPALIVE_SECONDS[1])),
        })  # fmt: skip

    @property
    def worker(self) -> str:
        """Return the name under which this process takes tasks."""
        return f"{self.name or f'station.{self.queue}'}@{socket.gethostname()}:{os.getpid()}"


def check(faults: Mapping[str, str | None]) -> None:
    """Raise InvalidRequest naming each field that has a fault, and what it must be."""
    wrong = [FieldError(name, fault) for name, fault in faults.items() if fault]
    if wrong:
        problems = "; ".join(f"{one.field} {one.message}" for one in wrong)
        raise InvalidRequest(f"station: {problems}", errors=wrong)
