"""Asking before acting."""

from dataclasses import dataclass
from typing import ClassVar

from console.chalicelib.pages import Page
from console.chalicelib.parts import Confirm, Link


@dataclass(frozen=True, slots=True)
class Sample:
    """A task that is meant, and why it will be left alone, if it will."""

    id: str
    url: str
    left_alone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPage(Page):
    """What will be done, to how many, to which; ``form`` does it."""

    template: ClassVar[str] = "confirm.html"
    question: str
    detail: str
    samples: tuple[Sample, ...]
    more: str
    form: Confirm | None
    back: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPage(Page):
    """A form and nothing else."""

    template: ClassVar[str] = "form.html"
    form: Confirm
    detail: str = ""
