"""The settings of a station: its queues, transform and limits, checked when it is made."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.limits import KEEPALIVE_SECONDS, NAME_RE, number_fault, pattern_fault
from headrace.spark.sources.connect import StoreConnection
from headrace.spark.sources.options import queue_names, queue_pattern
from headrace.spark.sources.reading import NAMING, QueueReading
from headrace.spark.stations.transforms import Transform

_ROWS: Final = (1, 1_000_000)
_RATE: Final = (0.001, 1_000_000)
_OR: Final = f", or {' or '.join(NAMING[1:])}"
_ABOUT: Final = 100  # characters


@dataclass(frozen=True, kw_only=True)
class StationSettings:
    """A worker on Spark: *transform* receives the due tasks of *queue* and returns their outcomes.

    Instead of *queue* there may be several *queues*, or a *queue_pattern* with ``*`` and ``?``: a
    batch takes tasks of all of them under one lease, and the transform keeps the column ``queue``.

    The transform receives a frame with the columns of ``sources.leasing.SCHEMA``.  It returns one
    with ``id`` and ``lease`` unchanged, and some of ``action``, ``to_queue``, ``payload``,
    ``delay_seconds`` and ``error``.  Without an action a task moves to the queue *to*, or succeeds
    in a station without *to*.

    *max_rows* is the size of a batch, *rate* a limit of tasks a second.  *lease_seconds* is how
    long a dead station keeps its tasks.  If more than *max_poison* tasks of a batch make the
    transform fail, the station fails.  Asked to stop, it finishes its batch within *grace_seconds*
    or releases it.
    """

    transform: Transform
    queue: str | None = None
    queues: Sequence[str] | None = None
    queue_pattern: str | None = None
    to: str | None = None
    name: str | None = None
    max_rows: int = 5_000
    lease_seconds: float = 60.0
    rate: float | None = None
    max_poison: int = 20
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense.  Raises InvalidRequest naming field and limit."""
        rate, to, name = self.rate, self.to, self.name
        transform: object = self.transform
        check({
            **self._naming_faults(),
            "transform": None if callable(transform) else "must be a function of a DataFrame",
            "to": None if to is None
            else pattern_fault(to, NAME_RE) or self._circle(to),
            "name": None if name is None else pattern_fault(name, NAME_RE),
            "max_rows": number_fault(self.max_rows, _ROWS, whole=True),
            "lease_seconds": number_fault(self.lease_seconds, KEEPALIVE_SECONDS),
            "rate": None if rate is None else number_fault(rate, _RATE),
            "max_poison": number_fault(self.max_poison, (0, _ROWS[1]), whole=True),
            "grace_seconds": number_fault(self.grace_seconds, (0, KEEPALIVE_SECONDS[1])),
        })  # fmt: skip

    @property
    def worker(self) -> str:
        """Return the name under which this process takes tasks."""
        name = self.name or f"station.{self.about:.{_ABOUT}}"
        return f"{name}@{socket.gethostname()}:{os.getpid()}"

    @property
    def about(self) -> str:
        """The queues of the station, for people."""
        return self.queue or self.queue_pattern or ",".join(self.queues or ())

    def reading(self, connection: StoreConnection) -> QueueReading:
        """Return the read that the batches of the station make."""
        return QueueReading(
            connection,
            self.queue,
            None if self.queues is None else tuple(self.queues),
            self.queue_pattern,
            self.worker,
            self.max_rows,
            self.lease_seconds,
            self.rate,
        )

    def _naming_faults(self) -> dict[str, str | None]:
        given = [name for name in NAMING if getattr(self, name) is not None]
        if len(given) != 1:
            fault = f"has no meaning beside {given[0]}" if given else "must be given"
            return {given[1] if given else "queue": f"{fault}{'' if given else _OR}"}
        return {
            "queue": None if self.queue is None else pattern_fault(self.queue, NAME_RE),
            "queues": None if self.queues is None else _names_fault(self.queues),
            "queue_pattern": None
            if self.queue_pattern is None
            else _fault(queue_pattern, self.queue_pattern),
        }

    def _circle(self, to: str) -> str | None:
        """Return the fault of a target *to* that the station itself reads, or None."""
        if to == self.queue or to in (self.queues or ()):
            return "must be another queue than queue" if self.queue else "must not be among queues"
        circle = self.queue_pattern is not None and fnmatchcase(to, str(self.queue_pattern))
        return "must not be like queue_pattern" if circle else None


def _names_fault(names: object) -> str | None:
    """Return the fault of *names* of queues, or None."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        return f"must be names of queues, such as ['a', 'b'], not {names!r}"
    wrong = next((fault for name in names if (fault := pattern_fault(name, NAME_RE))), None)
    return wrong or _fault(queue_names, ",".join(names))


def _fault(parse: Callable[[str], object], given: object) -> str | None:
    """Return the fault that *parse* finds in a *given* text, or None."""
    if not isinstance(given, str):
        return f"must be text, not {given!r}"
    try:
        parse(given)
    except ValueError as error:
        return str(error)
    return None


def check(faults: Mapping[str, str | None]) -> None:
    """Raise InvalidRequest naming each field that has a fault, and what it must be."""
    wrong = [FieldError(name, fault) for name, fault in faults.items() if fault]
    if wrong:
        problems = "; ".join(f"{one.field} {one.message}" for one in wrong)
        raise InvalidRequest(f"station: {problems}", errors=wrong)
