"""Asking before acting: one page for whatever changes something; what it asks is said as data."""

from dataclasses import dataclass
from typing import ClassVar

from console.chalicelib.pages import Page
from console.chalicelib.parts import Choice, Confirm, Field, Hidden, Link


@dataclass(frozen=True, slots=True)
class Sample:
    """A task that is meant, and why it will be left alone, if it will."""

    id: str
    url: str
    left_alone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What would be done, to how many, to which; *button* says it, and *action* does it.

    ``title`` is the question itself unless given; nothing is offered unless it is ``possible``.
    """

    question: str
    action: str
    button: str
    title: str = ""
    detail: str = ""
    danger: bool = False
    possible: bool = True
    fields: tuple[Field, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    samples: tuple[Sample, ...] = ()
    more: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPage(Page):
    """The question, and the form that answers it, or the way back."""

    template: ClassVar[str] = "confirm.html"
    prompt: Question
    form: Confirm | None
    back: Link


def ask(
    prompt: Question, crumbs: tuple[Link, ...], *, back: Link | None = None, status: int = 200
) -> ConfirmPage:
    """Return the page that asks; who does not want to goes *back*, else up to the last crumb."""
    back = back or crumbs[-1]
    form = Confirm(
        prompt.action,
        (Choice("", prompt.button, prompt.danger),),
        Link("Cancel", back.url),
        prompt.fields,
        prompt.hidden,
    )
    return ConfirmPage(
        title=prompt.title or prompt.question,
        http_status=status,
        crumbs=crumbs,
        prompt=prompt,
        form=form if prompt.possible else None,
        back=back,
    )
