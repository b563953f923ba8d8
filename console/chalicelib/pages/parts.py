"""The pieces that pages are put together from; a macro of macros.html draws each."""

from dataclasses import dataclass
from datetime import datetime

from headrace.domain.task import Status


@dataclass(frozen=True, slots=True)
class Link:
    """A link; ``current`` when it leads to where one is."""

    text: str
    url: str
    current: bool = False


@dataclass(frozen=True, slots=True)
class Tab:
    """One of several views of the same thing, with how many things it shows (None: not known)."""

    text: str
    url: str
    current: bool = False
    count: int | None = None
    status: Status | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One of the choices of a field."""

    value: str
    text: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form, as typed, and what is wrong with it.

    ``kind`` is text, number, password, datetime-local, select or textarea; ``options`` are the
    choices of a select, or suggestions.
    """

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    hint: str = ""
    error: str = ""
    required: bool = False
    options: tuple[Option, ...] = ()
    width: str = "m"  #: s, m or l


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value that a form carries unseen."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Button:
    """A link to where one is asked to confirm; ``danger`` when what it does cannot be undone."""

    text: str
    url: str
    danger: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several buttons of a form: ``value`` is what it sends as ``action``."""

    value: str
    text: str
    danger: bool = False


@dataclass(frozen=True, slots=True)
class Confirm:
    """A form that says what it is about to do, and does it when it is sent."""

    action: str
    button: str
    back: str
    danger: bool = False
    fields: tuple[Field, ...] = ()
    hidden: tuple[Hidden, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what it is; ``at`` is shown as a time after the text, ``code`` in monospace."""

    name: str
    text: str = ""
    at: datetime | None = None
    code: bool = False


@dataclass(frozen=True, slots=True)
class Age:
    """How long something has waited; ``level`` is ok, warn or bad, ``why`` names the threshold."""

    seconds: float
    level: str = "ok"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """What would be here, and the command that brings it."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Pager:
    """Where a list goes on; None where it does not."""

    shown: str
    first: str | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Spark:
    """A tiny chart: two SVG paths in a box of ``width`` by ``height``, and the same in words."""

    line: str
    area: str
    words: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: an SVG path, and the one below it where it is filled.

    ``style`` is how it is told from the others without colour: solid, dashed, dotted or thick.
    """

    name: str
    style: str
    path: str
    area: str = ""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """The numbers of one step, in the order of the lines, as text."""

    time: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time in a box of ``width`` by ``height``, in words, and as a table."""

    title: str
    words: str
    lines: tuple[Series, ...]
    grid: str
    top: str
    first: str
    rows: tuple[ChartRow, ...]
    width: int
    height: int
