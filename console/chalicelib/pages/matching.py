"""All tasks that a filter means: looked at, confirmed, acted on."""

from dataclasses import dataclass
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Choice, Fact, Field, Hidden, Link


@dataclass(frozen=True, slots=True)
class SeenTask:
    """A task of the set, and what it failed of."""

    id: str
    url: str
    queue: str
    error: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A form with several buttons, from the harmless to the grave; ``back`` does nothing."""

    action: str
    hidden: tuple[Hidden, ...]
    fields: tuple[Field, ...]
    choices: tuple[Choice, ...]
    back: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPage(Page):
    """How far it is; ``refresh`` is the address that takes it further, None when nothing does.

    ``done`` of ``count`` is drawn as a bar unless ``count`` is 0.
    """

    template: ClassVar[str] = "matched.html"
    question: str
    summary: str
    detail: str
    trouble: str
    filter: tuple[Fact, ...]
    numbers: tuple[Fact, ...]
    done: int
    count: int
    samples: tuple[SeenTask, ...]
    more: str
    decision: Decision
    refresh: str | None
