"""Transforms in plain Python: a function of one task, guarded so that its errors stay its own.

>>> @guard(retry_on=(TimeoutError,))
... def normalised(task):
...     reading = task.payload["reading"]
...     return Move({"celsius": (reading - 32) / 1.8})
>>> Station(queue="raw", to="clean", transform=normalised)
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Final, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.spark.sources.decode import schema_of
from headrace.spark.sources.rows import COLUMNS, QUEUE_COLUMN, encodable
from headrace.spark.sources.rows import SPAWN as _SPAWN
from headrace.spark.stations.transforms import Transform

_KEY: Final = "id", "lease", QUEUE_COLUMN
_DDL: Final = ", ".join(
    [*(f"{name} {kind}" for name, kind in COLUMNS.items()), f"{QUEUE_COLUMN} string"]
)
_ARROW: Final = schema_of(_DDL)
_SAME: Final = object()


@dataclass(frozen=True, slots=True)
class Taken:
    """A task as a guarded function is given it; ``payload`` is decoded."""

    id: str
    queue: str
    payload: Any
    tags: dict[str, str]
    attempts: int
    created_at: datetime
    scheduled_at: datetime
    priority: str | None = None
    group_key: str | None = None


class Outcome(Protocol):
    """The outcome of a task: a row of the settling frame."""

    def row(self) -> dict[str, Any]:
        """Return the columns besides id and lease."""


@dataclass(frozen=True, slots=True)
class _Row:
    """An outcome whose fields are columns; a payload that is not given stays."""

    action: ClassVar[str]

    def row(self) -> dict[str, Any]:
        """Return the columns besides id and lease."""
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        if "payload" in columns:
            given = columns["payload"]
            columns["payload"] = None if given is _SAME else _dump(given)
        return {"action": self.action, **columns}


@dataclass(frozen=True, slots=True)
class Move(_Row):
    """Move the task on, to the station's own target unless *to_queue* says another."""

    action: ClassVar[str] = "move"
    payload: Any = _SAME
    to_queue: str | None = None
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Succeed(_Row):
    """The task is done."""

    action: ClassVar[str] = "succeed"


@dataclass(frozen=True, slots=True)
class Fail(_Row):
    """The task is dead, for this reason."""

    action: ClassVar[str] = "fail"
    error: str


@dataclass(frozen=True, slots=True)
class Retry(_Row):
    """The attempt failed; the task comes again after a delay, by default the queue's backoff.

    For stations what `headrace.Retry` is for task functions, returned and not raised.
    """

    action: ClassVar[str] = "retry"
    error: str
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Release(_Row):
    """Give the task back, no attempt used."""

    action: ClassVar[str] = "release"
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Spawn(_Row):
    """Create another task, in the transaction that settles this one."""

    action: ClassVar[str] = _SPAWN
    payload: Any
    to_queue: str | None = None
    delay_seconds: float | None = None
    priority: str | None = None
    group_key: str | None = None


Function = Callable[[Taken], "Outcome | Iterable[Outcome] | None"]


def guard(*, retry_on: tuple[type[Exception], ...] = ()) -> Callable[[Function], Transform]:
    """Return a decorator that makes a transform of a function of one task.

    The function returns an outcome, or several (spawns, and one that settles the task), or None,
    which drops the task: it counts an attempt and comes again.  An error of *retry_on* fails the
    attempt, any other is the end of the task, and so is an outcome that no row can be made of;
    all leave the rest of the batch alone.
    """

    def decorate(function: Function) -> Transform:
        return partial(_transformed, function, retry_on)

    return decorate


def _transformed(
    function: Function, retry_on: tuple[type[Exception], ...], frame: DataFrame
) -> DataFrame:
    return frame.mapInArrow(partial(_mapped, function, retry_on), _DDL)


def _mapped(
    function: Function, retry_on: tuple[type[Exception], ...], batches: Iterable[Any]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        made: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            key = {name: row[name] for name in _KEY}
            made += [{**outcome, **key} for outcome in _outcomes(function, retry_on, row)]
        yield pa.RecordBatch.from_pylist(made, schema=_ARROW)


def _outcomes(
    function: Function, retry_on: tuple[type[Exception], ...], row: dict[str, Any]
) -> list[dict[str, Any]]:
    try:
        try:
            several = _called(function, row)
        except retry_on as error:
            return [Retry(_failure(error)).row()]
        return [_row(outcome) for outcome in several]
    except Exception as error:  # noqa: BLE001 (whatever a task's own code raises or returns)
        return [Fail(_failure(error)).row()]


def _called(function: Function, row: dict[str, Any]) -> list[Outcome]:
    given = function(
        Taken(
            row["id"],
            row["queue"],
            msgspec.json.decode(row["payload"]),
            dict(row["tags"] or ()),
            row["attempts"],
            row["created_at"],
            row["scheduled_at"],
            row.get("priority"),
            row.get("group_key"),
        )
    )
    if given is None:
        return []
    return list(given) if isinstance(given, Iterable) else [given]


def _failure(error: Exception) -> str:
    name = type(error).__name__
    try:
        return encodable(f"{name}: {error}")
    except Exception:  # noqa: BLE001 (whatever its __str__ raises)
        return name


def _row(outcome: Outcome) -> dict[str, Any]:
    """Return the columns of *outcome*, all of which Arrow can take.

    Raises TypeError and ValueError naming what is wrong, and what JSON cannot say.
    """
    kind = type(outcome).__name__
    if not callable(getattr(outcome, "row", None)):
        message = f"a guarded function returns outcomes (Move, Succeed, …) or None, not {kind}"
        raise TypeError(message)
    return {name: _value(f"{kind}.{name}", value) for name, value in outcome.row().items()}


def _value(field: str, value: object) -> str | float | None:
    """The value of column *field*, if it is of the column's type."""
    if value is None:
        return None
    name = field.rpartition(".")[2]
    if COLUMNS.get(name) == "double":
        if isinstance(value, bool) or not isinstance(value, Real):
            message = f"{field} must be a number of seconds, not {type(value).__name__}"
            raise TypeError(message)
        return float(value)
    if not isinstance(value, str):
        message = f"{field} must be text, not {type(value).__name__}"
        raise TypeError(message)
    if name == "error":
        return encodable(value)
    if encodable(value) != value:
        message = f"{field} must be text that UTF-8 can say, without lone surrogates"
        raise ValueError(message)
    return value


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
