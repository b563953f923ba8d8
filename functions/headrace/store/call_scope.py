"""Context of the calls in a block: their cost, their caller, and when they must end.

The cost that a restricted key is shown counts visible queues only.  The store charges for the task
that it finds under an id, also if that task is in another queue, so the measured cost would show
the size of that task.  If a call of a restricted key meets a task outside its queues, the cost is
computed instead, and the task outside counts as a missing one.  In all other cases it is measured.

Timeouts nest.  A request to the table takes at most CALL_SECONDS, and none begins that could take
longer than the call has left.  The function answers before Lambda ends it, and Lambda before API
Gateway's 29 seconds.  So if the table is slow, the answer is a 503 with the time for a retry.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, Final, Generic, Protocol, TypeVar

from headrace.domain.access import SERVICE, Principal
from headrace.domain.change import Change, Done, Outcome, Refused
from headrace.domain.errors import Forbidden, NotFound
from headrace.domain.ids import keyed_task_id, new_batch_id, new_task_id, new_undo_id
from headrace.domain.task import Task
from headrace.store.items import Value, to_item

T = TypeVar("T")


class during(Generic[T]):  # noqa: N801  a block, as those of contextlib
    """A block in which *variable* is *value*, for what every call goes through.

    A generator of `contextlib` takes five times as long.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T] | ContextVar[T | None], value: T) -> None:
        self._variable: ContextVar[Any] = variable
        self._value = value
        self._token: Token[Any] | None = None

    def __enter__(self) -> T:
        """Return the value."""
        self._token = self._variable.set(self._value)
        return self._value

    def __exit__(self, *_: object) -> None:
        """Let the variable be what it was."""
        if self._token is not None:
            self._variable.reset(self._token)


TRANSACTION: Final = 2
"""How often what is written in a transaction is counted."""

_KB: Final = 1024


def write_units(before: int, after: int = 0) -> int:
    """Return the units of one write by the item's bytes *before* and *after* it (0: none there)."""
    return -(-max(before, after) // _KB) or 1


def read_units(size: int, *, consistent: bool = True) -> float:
    """Return the units of one item, or of all that one query goes through, of *size* bytes."""
    return (-(-size // (4 * _KB)) or 1) * (1.0 if consistent else 0.5)


def entry_units(*, was: bool, is_: bool, moved: bool, changed: bool) -> int:
    """Return the write units of an index entry of less than a kilobyte.

    One for each entry that goes (*was*) or comes (*is_*), so two for one that is *moved* to
    another key; one for other fields of it that are *changed*.
    """
    if was and is_:
        return 2 if moved else int(changed)
    return int(was or is_)


@dataclass(slots=True)
class Meter:
    """What calls cost, in DynamoDB's write and read units."""

    write: float = 0.0
    read: float = 0.0


_METER: Final[ContextVar[Meter | None]] = ContextVar("headrace_meter", default=None)


def metered() -> during[Meter]:
    """Collect what the calls of this block, on this thread, cost."""
    return during(_METER, Meter())


def charge(*, write: float = 0.0, read: float = 0.0) -> None:
    """Add to the meter of the block that is being measured, if there is one."""
    meter = _METER.get()
    if meter is not None:
        meter.write += write
        meter.read += read


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of the current code, as the audit names it, and the id of the request.

    ``actor_id`` is the id of a key, None for the service.  ``patterns`` are those of the queues
    that the key is for.  ``principal`` is None if the caller needs no rights.
    """

    actor: str = SERVICE
    request_id: str | None = None
    actor_id: str | None = None
    patterns: tuple[str, ...] = ("*",)
    principal: Principal | None = None


_CALLER: Final[ContextVar[Caller]] = ContextVar("headrace_caller", default=Caller())  # noqa: B039  frozen


def calling(caller: Caller) -> during[Caller]:
    """Do a block on behalf of *caller*."""
    return during(_CALLER, caller)


def acting(principal: Principal, *, request_id: str | None = None) -> during[Caller]:
    """Do a block on behalf of *principal*, whose name the audit records.

    The cost that a principal for some queues is shown depends on these queues only.
    """
    name, patterns = principal.name, principal.patterns
    return calling(Caller(name, request_id, principal.key_id, patterns, principal))


def caller() -> Caller:
    """Return the caller of the current code."""
    return _CALLER.get()


def current_actor() -> Principal | None:
    """Return the principal of the current code; None for the service itself."""
    return _CALLER.get().principal


def restricted() -> bool:
    """Return whether the caller may not know all queues."""
    principal = _CALLER.get().principal
    return principal is not None and not principal.covers_all_queues


def visible(queue: str) -> bool:
    """Return whether the caller may know *queue*."""
    principal = _CALLER.get().principal
    return principal is None or principal.covers(queue)


def not_shown(missing: NotFound, refused: Forbidden) -> NotFound | Forbidden:
    """Return the error about what is not there, or is not shown to the caller.

    A restricted caller gets *refused* for both, and cannot tell one from the other.
    """
    return refused if restricted() else missing


@contextmanager
def flat_rate(*, write: float = 0.0, read: float = 1.0) -> Iterator[Meter]:
    """Run a block whose cost depends on queues that the caller may not know.

    A restricted caller is charged the final value of the meter, and not the measured cost.
    """
    rate = Meter(write, read)
    if not restricted():
        yield rate
        return
    with metered():
        yield rate
    charge(write=rate.write, read=rate.read)


class Draws:
    """Task ids for a request that may be repeated: the same in the same order, all of one time.

    They are derived under *secret*, so that no client can compute them from the request.
    """

    def __init__(self, secret: bytes, seed: str, born: datetime) -> None:
        self._secret, self._seed, self._born, self._number = secret, seed, born, 0

    def next(self) -> str:
        """Return the next task id."""
        self._number += 1
        return keyed_task_id(self._secret, self._born, ("request", self._seed, self._number))


_DRAWS: Final[ContextVar[Draws | None]] = ContextVar("headrace_draws", default=None)


def drawing(draws: Draws) -> during[Draws]:
    """Do a block that takes its new ids from *draws*, so that who does it again has the same."""
    return during(_DRAWS, draws)


def draw_task_id(now: datetime) -> str:
    """Return the id of a new task: a random one, or in a block of `drawing` the next of its."""
    draws = _DRAWS.get()
    return new_task_id(now) if draws is None else draws.next()


def draw_undo_id(now: datetime) -> str:
    """Return the id of a new undo, as ``draw_task_id`` does."""
    draws = _DRAWS.get()
    return new_undo_id(now) if draws is None else "und_" + draws.next().removeprefix("tsk_")


def draw_batch_id(now: datetime) -> str:
    """Return the id of a new batch, as ``draw_task_id`` does."""
    draws = _DRAWS.get()
    return new_batch_id(now) if draws is None else "bat_" + draws.next().removeprefix("tsk_")


CALL_SECONDS: Final = 5.0
"""What one request to the table takes at most, from connecting to its answer."""

ANSWER_SECONDS: Final = 2.0
"""The time for an answer after the last request to the table."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _RunningCall:
    """The call under way: how long its requests may take, and whether its client disconnected."""

    seconds_left: Callable[[], float]
    client_gone: Callable[[], bool] = _never


_CALL: Final[ContextVar[_RunningCall | None]] = ContextVar("headrace_call", default=None)


class Timed(Protocol):
    """The used part of the context object of a Lambda call.

    On one machine it also has ``client_gone()``, which returns whether the client disconnected.
    """

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda ends the call."""


def in_time(
    context: Timed, clock: Callable[[], float] = time.monotonic
) -> AbstractContextManager[object]:
    """Return a block for a call, whose requests to the table leave time to answer.

    The store begins no request that could take longer, and raises Unavailable instead.  *clock*
    counts seconds.  A context that ends no calls may return 0; then there is no end, and nothing
    waits.
    """
    left = context.get_remaining_time_in_millis() / 1000
    end = clock() + left - ANSWER_SECONDS if left > 0 else math.inf
    gone: Callable[[], bool] = getattr(context, "client_gone", _never)
    return during(_CALL, _RunningCall(lambda: end - clock(), gone))


def seconds_left() -> float:
    """Return how long the requests of a store may still take; infinity if there is no end."""
    call = _CALL.get()
    return math.inf if call is None else call.seconds_left()


def time_to_wait() -> float:
    """Return the seconds that the call may wait and still read the table once after that."""
    left = seconds_left()
    return 0.0 if left == math.inf else max(0.0, left - CALL_SECONDS)


def client_gone() -> bool:
    """Return whether the client of the call has disconnected; on Lambda it never has."""
    call = _CALL.get()
    return call is not None and call.client_gone()


_WRITE_BYTES: Final = 1024
_READ_BYTES: Final = 4096


def measured() -> AbstractContextManager[Meter]:
    """Return a block of a store that reads or changes tasks.

    It costs its caller what it charges; a restricted caller only what ``charge_changes`` or
    ``charge_tasks`` then say.
    """
    return metered() if restricted() else nullcontext(Meter())


def charge_changes(changes: Sequence[Change], outcomes: Sequence[Outcome], cost: Meter) -> None:
    """Charge a restricted caller for *changes*, whose measured cost is *cost*."""
    if not restricted():
        return
    if all(outcome.task is not None and visible(outcome.task.queue) for outcome in outcomes):
        charge(write=cost.write, read=cost.read)
        return
    for change, outcome in zip(changes, outcomes, strict=True):
        charge(write=_written(change, outcome), read=_read_back(outcome))


def charge_tasks(wanted: int, found: Iterable[Task], cost: Meter, *, consistent: bool) -> None:
    """Charge a restricted caller for a read of *wanted* ids, whose measured cost is *cost*."""
    if not restricted():
        return
    seen = [task for task in found if visible(task.queue)]
    if len(seen) == wanted:
        charge(read=cost.read)
        return
    units = wanted - len(seen) + sum(_units(task, _READ_BYTES) for task in seen)
    charge(read=units if consistent else units / 2)


def _written(change: Change, outcome: Outcome) -> float:
    """Return the write units of a change: the item, and its entries of the index."""
    twice = 2 if change.also else 1
    if isinstance(outcome, Refused) or not visible(outcome.task.queue):
        return twice * (1 + len(change.also))
    entries = 2 if "place" in change.put else int(change.insert is not None or change.gone)
    return twice * (_units(outcome.task, _WRITE_BYTES) + entries + len(change.also))


def _read_back(outcome: Outcome) -> float:
    """Return the read units of looking at what refused a change."""
    if isinstance(outcome, Done):
        return 0
    known = outcome.task is not None and visible(outcome.task.queue)
    return _units(outcome.task, _READ_BYTES) if known and outcome.task else 1


def _units(task: Task, step: int) -> int:
    size = sum(len(name) + _bytes(value) for name, value in to_item(task).items())
    return max(1, ceil(size / step))


def _bytes(value: Value) -> int:
    """Return about how many bytes DynamoDB counts for *value*."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode("utf-8", "surrogatepass"))
        case "M":
            return 3 + sum(len(name.encode()) + 1 + _bytes(part) for name, part in content.items())
        case "L":
            return 3 + sum(1 + _bytes(part) for part in content)
        case _:
            return len(content) // 2 + 1
