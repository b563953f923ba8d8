"""The parts of table cells; the macro ``cell`` draws each kind."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self, TypeAlias

from headrace.domain.task import Status

from . import formatting
from .charts import Spark
from .parts import Age, Confirm, Heading, Link


@dataclass(frozen=True, slots=True)
class Note:
    """A short remark in a cell; ``level`` is empty, warn or bad."""

    text: "Cell"
    level: str = ""


@dataclass(frozen=True, slots=True)
class Dim:
    """Text of less weight in a cell."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """Text in monospace."""

    text: str


@dataclass(frozen=True, slots=True)
class Clip:
    """Text of one line, cut where the column ends; ``beneath`` another row, it is set in."""

    text: str
    url: str = ""
    strong: bool = False
    beneath: bool = False


@dataclass(frozen=True, slots=True)
class Tag:
    """A link that looks like a tag."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Id:
    """An id, cut in the middle, with a button that copies it."""

    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Badge:
    """A state with its sign, and a note beside it."""

    status: Status
    note: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in words, with its exact value as a title, and a link."""

    text: str
    title: str = ""
    url: str = ""
    label: str = ""
    zero: bool = False
    bad: bool = False

    @classmethod
    def of(cls, number: int, *, url: str = "", label: str = "", bad: bool = False) -> Self:
        """Return *number* in short; a long one has all its digits in the title."""
        short, exact = formatting.short_number(number), formatting.number(number)
        return cls(short, exact if exact != short else "", url, label, not number, bad)


@dataclass(frozen=True, slots=True)
class Meter:
    """The used share of something, as numbers and as a bar; ``words`` name the unit."""

    used: int
    most: int
    words: str


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run of a schedule: the instant, and the local time in its zone."""

    at: datetime
    local: str


@dataclass(frozen=True, slots=True)
class Runs:
    """The next runs; ``zone`` is the zone of the local times, empty for UTC."""

    zone: str
    runs: tuple[ScheduledRun, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Cells below each other."""

    all: "tuple[Cell, ...]"


@dataclass(frozen=True, slots=True)
class Fold:
    """A cell with a part that unfolds below it."""

    head: "Cell"
    body: "Cell"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the heads of its columns, and as many cells in each row."""

    label: str
    headings: tuple[Heading, ...]
    rows: "tuple[tuple[Cell, ...], ...]"


Cell: TypeAlias = (
    "str | float | datetime | Status | Link | Note | Dim | Code | Tag | Id | Badge | Meter"
    " | Figure | Spark | Clip | Age | Lines | Fold | Runs | Confirm"
    " | tuple[Cell, ...] | None"
)
"""A tuple is several cells beside each other."""
