"""A queue's settings, to be changed."""

from dataclasses import dataclass
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Confirm, Field, Hidden, Link


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields that belong together."""

    title: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPage(Page):
    """The form, as stored or as typed."""

    template: ClassVar[str] = "settings.html"
    action: str
    back: str
    hidden: tuple[Hidden, ...]
    groups: tuple[FieldGroup, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting before and after; ``theirs`` is what somebody else has made of it meanwhile."""

    name: str
    before: str
    theirs: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPage(Page):
    """What would change; ``conflict`` when somebody else has saved meanwhile."""

    template: ClassVar[str] = "settings_diff.html"
    summary: str
    conflict: bool
    rows: tuple[Difference, ...]
    form: Confirm | None
    again: Link
