"""Each element of the pages once, in each of its forms."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from console.chalicelib.pages.frame import Flash, Page
from console.chalicelib.pages.parts import (
    Age,
    Button,
    Chart,
    Confirm,
    Empty,
    Fact,
    Field,
    Pager,
    Spark,
    Tab,
)
from console.chalicelib.pages.pipelines import Flowchart
from console.chalicelib.pages.queue import FilterForm, TaskList
from console.chalicelib.pages.queues import QueueRow
from console.chalicelib.pages.schedules import Outcome, Runs
from console.chalicelib.pages.task import Diagram, Text
from headrace.domain.task import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternPage(Page):
    """The pattern page."""

    template: ClassVar[str] = "pattern.html"
    here: str
    statuses: tuple[Status, ...]
    numbers: tuple[int, ...]
    times: tuple[datetime, ...]
    ages: tuple[Age, ...]
    tabs: tuple[Tab, ...]
    fields: tuple[Field, ...]
    filter: FilterForm
    buttons: tuple[Button, ...]
    confirm: Confirm
    danger: Confirm
    facts: tuple[Fact, ...]
    flashes: tuple[Flash, ...]
    empty: Empty
    pager: Pager
    sparks: tuple[Spark, ...]
    diagrams: tuple[Diagram, ...]
    texts: tuple[Text, ...]
    queues: tuple[QueueRow, ...]
    tasks: TaskList
    charts: tuple[Chart, ...]
    flows: Flowchart
    runs: Runs
    outcomes: tuple[Outcome | None, ...]
    long_id: str
