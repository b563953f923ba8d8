"""The pieces that pages share; a macro of macros.html draws each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from headrace.domain.limits import utf8_bytes
from headrace.domain.task import Status

from .forms import pretty

_UNFOLDED: Final = 2_000  # letters of a text that are shown at once


@dataclass(frozen=True, slots=True)
class Link:
    """A link; ``current`` when it leads to the page that it is on.

    ``danger`` when what it begins, behind a confirmation, cannot be undone.  ``label`` is what a
    screen reader says instead of the text.
    """

    text: str
    url: str
    current: bool = False
    danger: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Tab:
    """One of several views of the same thing, with the number of its things (None: unknown).

    ``note`` says what to know of that number.
    """

    text: str
    url: str
    current: bool = False
    count: int | None = None
    status: Status | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """One of the choices of a field."""

    value: str
    text: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form, as typed, with its error.

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
    rows: int = 8  #: of a textarea


@dataclass(frozen=True, slots=True)
class Hidden:
    """A hidden field."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A button of a form, and the value that it sends; empty for a form with one button.

    Without a ``label`` the text is its name.
    """

    value: str
    text: str
    danger: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Confirm:
    """A form that performs an action, with buttons that name it.

    ``choices`` are its buttons, the most dangerous last; ``back`` is the link to cancel.
    """

    action: str
    choices: tuple[Choice, ...]
    back: Link | None = None
    fields: tuple[Field, ...] = ()
    hidden: tuple[Hidden, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and its value; ``at`` is shown as a time after the text, ``code`` in monospace.

    ``url`` is where the text leads.
    """

    name: str
    text: str = ""
    at: datetime | None = None
    code: bool = False
    url: str = ""


@dataclass(frozen=True, slots=True)
class AlertNote:
    """An alert that is on, in words; *recovers* when its value is below the limit again."""

    text: str
    since: datetime
    recovers: bool = False


@dataclass(frozen=True, slots=True)
class Age:
    """How long something has waited; ``level`` is ok, warn or bad, ``why`` names the threshold."""

    seconds: float
    level: str = "ok"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """The text of an empty list, and the command that fills it."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class SearchBox:
    """The search box above a list: the query as typed, its error, and its terms.

    ``terms`` are links to the same list without that term; ``suggestions`` are terms that
    a script completes; ``hidden`` is what the address keeps besides the query.  ``things`` names
    the rows, ``keys`` are the beginnings of terms, and ``example`` is a query.
    """

    action: str
    text: str
    error: str = ""
    terms: tuple[Link, ...] = ()
    suggestions: tuple[str, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    clear: str | None = None
    things: str = "tasks"
    example: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnfinishedLook:
    """How far an unfinished search is, and the address where it continues.

    ``count`` is how many queues or tasks there are, None if that is not known.  It continues at a
    click if it ``waits``.
    """

    done: int
    count: int | None
    words: str
    next: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Pager:
    """Links to the other pages of a list; None for a page that does not exist.

    ``note`` is what there is to know of the order of its pages.
    """

    shown: str
    first: str | None = None
    next: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """JSON: ``text`` exactly as sent, ``laid_out`` with lines and indents.

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


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a column: ``url`` sorts by it, if it is not empty; ``order`` is how it is now."""

    text: str
    url: str
    order: str = ""  #: ascending or descending, as aria-sort says it
    sign: str = ""
    title: str = ""
    number: bool = True
    wide: bool = False
    hidden: bool = False
