"""The pieces that pages are put together from; a macro of macros.html draws each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from console.chalicelib.forms import pretty
from headrace.domain.limits import utf8_bytes
from headrace.domain.task import Status

_UNFOLDED: Final = 2_000  # letters of a text that are shown at once


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
    """One of the buttons of a form: ``value`` is what it sends, nothing where it is alone."""

    value: str
    text: str
    danger: bool = False


@dataclass(frozen=True, slots=True)
class Confirm:
    """A form that says what it is about to do, and does it when it is sent.

    ``choices`` are its buttons, from the harmless to the grave; ``back`` leads to where nothing is
    done.
    """

    action: str
    choices: tuple[Choice, ...]
    back: Link | None = None
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
class FilterForm:
    """What may be asked of tasks; ``open`` when something is."""

    action: str
    fields: tuple[Field, ...]
    hidden: tuple[Hidden, ...]
    clear: str | None
    open: bool


@dataclass(frozen=True, slots=True)
class Text:
    """JSON as it came in: ``text`` letter by letter, ``laid_out`` with lines and indents.

    ``head`` is how it begins, where it is too long to show unfolded.
    """

    title: str
    text: str
    laid_out: str
    size: int
    head: str

    @classmethod
    def of(cls, title: str, text: str) -> Self:
        """Return *text* laid out, and folded if it is long."""
        laid_out = pretty(text)
        head = f"{laid_out[:300]}…" if len(laid_out) > _UNFOLDED else ""
        return cls(title, text, laid_out, utf8_bytes(text), head)
