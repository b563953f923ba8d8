"""Each element of the pages once, in each of its forms."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.acting import Sample
from console.chalicelib.pages.dead import DeadGroup
from console.chalicelib.pages.error import ErrorPage
from console.chalicelib.pages.frame import Flash, Page
from console.chalicelib.pages.matching import Decision, SeenTask
from console.chalicelib.pages.parts import (
    Age,
    Button,
    Chart,
    Choice,
    Confirm,
    Empty,
    Fact,
    Field,
    Link,
    Pager,
    Spark,
    Tab,
)
from console.chalicelib.pages.pipelines import Flowchart, FlowRow
from console.chalicelib.pages.queue import Figures, FilterForm, ScheduleRow, TaskList
from console.chalicelib.pages.queues import QueueRow
from console.chalicelib.pages.schedules import RunOutcome, Runs, ScheduleLine
from console.chalicelib.pages.settings import Difference
from console.chalicelib.pages.task import AttemptRow, Diagram, HopRow, ReasonRow, Text
from headrace.domain.task import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternPage(Page):
    """The pattern page."""

    template: ClassVar[str] = "pattern.html"
    here: str
    statuses: tuple[Status, ...]
    numbers: tuple[int, ...]
    rates: tuple[float, ...]
    times: tuple[datetime, ...]
    ages: tuple[Age, ...]
    long_id: str
    tags: tuple[Link, ...]
    tabs: tuple[Tab, ...]
    figures: Figures
    fields: tuple[Field, ...]
    filter: FilterForm
    prefix: Field
    buttons: tuple[Button, ...]
    choices: tuple[Choice, ...]
    confirm: Confirm
    danger: Confirm
    dropped: Confirm
    door: Confirm
    flashes: tuple[Flash, ...]
    empty: Empty
    problem: ErrorPage
    decision: Decision
    done: int
    count: int
    seen: tuple[SeenTask, ...]
    meant: tuple[Sample, ...]
    more: str
    differences: tuple[Difference, ...]
    queues: tuple[QueueRow, ...]
    tasks: TaskList
    pager: Pager
    groups: tuple[DeadGroup, ...]
    facts: tuple[Fact, ...]
    attempts: tuple[AttemptRow, ...]
    reasons: tuple[ReasonRow, ...]
    trail: tuple[HopRow, ...]
    secret: str
    sparks: tuple[Spark, ...]
    diagrams: tuple[Diagram, ...]
    charts: tuple[Chart, ...]
    flows: Flowchart
    flow_rows: tuple[FlowRow, ...]
    runs: Runs
    when: str
    outcomes: tuple[RunOutcome | None, ...]
    schedules: tuple[ScheduleLine, ...]
    own_schedules: tuple[ScheduleRow, ...]
    texts: tuple[Text, ...]
