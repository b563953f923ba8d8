"""One queue."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Page
from console.chalicelib.pages.parts import (
    Age,
    Button,
    Chart,
    Choice,
    Confirm,
    Empty,
    Fact,
    Field,
    Hidden,
    Link,
    Pager,
    Tab,
)
from headrace.domain.task import Status


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in a list; ``at`` is its state's own time, ``at_means`` says which."""

    id: str
    url: str
    status: Status
    dead_reason: str
    at: datetime
    at_means: str
    attempts: int
    worker: str
    tags: tuple[Link, ...]
    error: str
    age: datetime


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule in short."""

    name: str
    url: str
    when: str
    next_run_at: datetime | None
    paused: bool


@dataclass(frozen=True, slots=True)
class TaskList:
    """The tasks that a filter means; ``actions`` are for those that are ticked.

    ``matching`` is where an action on all that match begins, which ``matching_actions`` offer.
    """

    rows: tuple[TaskRow, ...]
    time_heading: str
    select: str | None
    actions: tuple[Choice, ...]
    pager: Pager
    empty: Empty
    matching: str | None = None
    matching_actions: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """How a queue is doing, in a line."""

    oldest: Age | None
    oldest_inflight: Age | None
    rates: tuple[Fact, ...]
    limited: str


@dataclass(frozen=True, slots=True)
class FilterForm:
    """What may be asked of tasks; ``open`` when something is."""

    action: str
    fields: tuple[Field, ...]
    hidden: tuple[Hidden, ...]
    clear: str | None
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage(Page):
    """How a queue is doing, its tasks, and what it is set to."""

    template: ClassVar[str] = "queue.html"
    name: str
    description: str
    paused: bool
    resume_at: datetime | None
    pause: Confirm | None
    resume: Confirm | None
    recount: Confirm | None
    tabs: tuple[Tab, ...]
    as_of: datetime
    figures: Figures
    spans: tuple[Tab, ...]
    charts: tuple[Chart, ...]
    gaps: bool
    filter: FilterForm | None
    tasks: TaskList | None
    settings: tuple[Fact, ...]
    setting_actions: tuple[Button, ...]
    schedules: tuple[ScheduleRow, ...]
    create_schedule: str | None
    no_schedules: Empty
