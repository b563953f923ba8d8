"""Schedules: all of them, one, and the form that makes or changes one."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import Button, Empty, Fact, Field, Link, Pager
from console.chalicelib.pages.task import Text
from headrace.domain.task import Status


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run to come: the instant, and what clocks show then where the schedule lives."""

    at: datetime
    local: str


@dataclass(frozen=True, slots=True)
class Runs:
    """The next runs; ``zone`` is what ``local`` of each is in, empty for UTC."""

    zone: str
    runs: tuple[ScheduledRun, ...]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The latest run: when, and what became of its task (None where that is not known)."""

    at: datetime
    words: str
    status: Status | None
    url: str | None


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """One schedule among others; ``expression`` where ``when`` is in words."""

    queue: Link
    name: Link
    when: str
    expression: str
    paused: bool
    runs: Runs
    last: RunOutcome | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulesPage(Page):
    """Every schedule that the visitor may see."""

    template: ClassVar[str] = "schedules.html"
    rows: tuple[ScheduleLine, ...]
    create: str | None
    pager: Pager
    empty: Empty


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage(Page):
    """One schedule: when, what, and how it went."""

    template: ClassVar[str] = "schedule.html"
    name: str
    queue: Link
    when: str
    paused: bool
    actions: tuple[Button, ...]
    runs: Runs
    last: RunOutcome | None
    facts: tuple[Fact, ...]
    tags: tuple[Link, ...]
    text: Text | None
    withheld: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFormPage(Page):
    """The form, with the runs that what is typed would lead to, once that was asked."""

    template: ClassVar[str] = "schedule_form.html"
    action: str
    back: str
    save: str
    timing: tuple[Field, ...]
    content: tuple[Field, ...]
    limits: tuple[Field, ...]
    retries: tuple[Field, ...]
    when: str
    runs: Runs | None
