"""One task."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Button, Fact, Link
from headrace.domain.task import Status


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """Why a task is not running, and until when."""

    code: str
    text: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt and how it ended; ``run`` is seconds, None where it is not known."""

    number: int
    ended: str  #: failed, lease expired, succeeded, running
    status: Status
    at: datetime
    worker: str
    run: float | None
    type: str
    message: str
    detail: str


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


@dataclass(frozen=True, slots=True)
class Node:
    """One state in the diagram: where it is drawn, and whether the task is in it."""

    status: Status
    x: int
    y: int
    current: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """One move in the diagram, as an SVG path, with its word."""

    path: str
    word: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Diagram:
    """The lifecycle with the task in it, and the same in words; ``name`` is one of its own."""

    name: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    words: str


@dataclass(frozen=True, slots=True)
class HopRow:
    """A queue on the task's way; ``left`` is None for the one it is in."""

    queue: str
    url: str | None
    left: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage(Page):
    """Everything about a task that the visitor may see."""

    template: ClassVar[str] = "task.html"
    id: str
    queue: Link
    status: Status
    dead_reason: str
    diagram: Diagram
    reasons: tuple[ReasonRow, ...]
    actions: tuple[Button, ...]
    facts: tuple[Fact, ...]
    tags: tuple[Link, ...]
    attempts: tuple[AttemptRow, ...]
    earlier_errors: int
    trail: tuple[HopRow, ...]
    texts: tuple[Text, ...]
    withheld: str
