"""The pattern page: each element of the console once, in each of its forms.

For whoever changes how the console looks.  It is drawn with the console's own templates, and is no
part of what is deployed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from jinja2 import Environment, FileSystemLoader

from console.chalicelib import charts, diagram, urls
from console.chalicelib.charts import Spark
from console.chalicelib.diagram import Diagram
from console.chalicelib.differences import DiffLine
from console.chalicelib.flowchart import Flowchart
from console.chalicelib.pages import ErrorPage, Flash, Frame, Page, PageCost, Who
from console.chalicelib.parts import (
    Age,
    Choice,
    Confirm,
    Empty,
    Fact,
    Field,
    FilterForm,
    Heading,
    Link,
    Pager,
    SearchBox,
    StepBranch,
    Tab,
    Text,
    UnfinishedLook,
)
from console.chalicelib.render import TEMPLATES, environment
from console.chalicelib.snippets import Snippet, of_list
from console.chalicelib.story import Strip
from console.chalicelib.urls import Urls
from console.chalicelib.views import schedules, workers
from console.chalicelib.views.charting import Charts
from console.chalicelib.views.confirm import Sample
from console.chalicelib.views.errors import ErrorRow
from console.chalicelib.views.pipelines import FlowRow
from console.chalicelib.views.queue import Figures, ScheduleRow
from console.chalicelib.views.queues import QueueRow
from console.chalicelib.views.schedules import RunOutcome, Runs, ScheduleLine
from console.chalicelib.views.selections import SeenTask
from console.chalicelib.views.settings import Difference
from console.chalicelib.views.static import assets
from console.chalicelib.views.task import AttemptRow, HopRow, ReasonRow, TurnRow
from console.chalicelib.views.task_list import TaskList
from console.chalicelib.views.trouble import Trouble
from console.chalicelib.views.workers import WorkerRow
from headrace.domain.filters import TaskFilter
from headrace.domain.task import Status
from headrace.testing.conditions import START
from tests.console.pattern import samples

PATH: Final = f"{urls.ROOT}/pattern"
"""Where tests of the look show it."""

FOLDER: Final = Path(__file__).parent

_COUNTS: Final = (0, 7, 1_234, 98_765, 1_000_000)
_AGES: Final = (-86_400, -3_600, -90, 0, 12, 300, 7_200, 400_000)  # seconds


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
    search: SearchBox
    filter: FilterForm
    prefix: Field
    buttons: tuple[Link, ...]
    choices: tuple[Choice, ...]
    confirm: Confirm
    danger: Confirm
    dropped: Confirm
    door: Confirm
    flashes: tuple[Flash, ...]
    empty: Empty
    looking: UnfinishedLook
    problem: ErrorPage
    decision: Confirm
    done: int
    count: int
    steps: tuple[StepBranch, ...]
    seen: tuple[SeenTask, ...]
    meant: tuple[Sample, ...]
    more: str
    differences: tuple[Difference, ...]
    lines: tuple[DiffLine, ...]
    snippets: tuple[Snippet, ...]
    troubles: tuple[Trouble, ...]
    headings: tuple[Heading, ...]
    queues: tuple[QueueRow, ...]
    tasks: TaskList
    worker_heads: tuple[Heading, ...]
    workers: tuple[WorkerRow, ...]
    pager: Pager
    groups: tuple[ErrorRow, ...]
    facts: tuple[Fact, ...]
    life: Strip
    attempts: tuple[AttemptRow, ...]
    turns: tuple[TurnRow, ...]
    reasons: tuple[ReasonRow, ...]
    trail: tuple[HopRow, ...]
    secret: str
    sparks: tuple[Spark, ...]
    diagrams: tuple[Diagram, ...]
    charts: Charts
    flows: Flowchart
    flow_rows: tuple[FlowRow, ...]
    runs: Runs
    when: str
    outcomes: tuple[RunOutcome | None, ...]
    schedule_heads: tuple[Heading, ...]
    schedules: tuple[ScheduleLine, ...]
    own_schedules: tuple[ScheduleRow, ...]
    texts: tuple[Text, ...]


def html(now: datetime = START) -> str:
    """The pattern page as a browser gets it."""
    return (
        _environment()
        .get_template(PatternPage.template)
        .render(page=_page(now, PATH), frame=_frame(now))
    )


@cache
def _environment() -> Environment:
    return environment().overlay(loader=FileSystemLoader([FOLDER, TEMPLATES]))


def _frame(now: datetime) -> Frame:
    to = Urls().to
    style, script, icon, keys = (
        to(urls.STATIC, name=assets()[name].name)
        for name in ("console.css", "console.js", "icon.svg", "keys.js")
    )
    return Frame(
        now=now,
        environment="local",
        home=urls.ROOT,
        style=style,
        script=script,
        icon=icon,
        keys=keys,
        who=Who("the admin", "admin", "all queues", urls.SIGN_OUT),
        nav=(Link("Queues", urls.QUEUES), Link("Pattern", PATH, current=True)),
        search=urls.SEARCH,
        units=PageCost(0, 1.5, 12),
        request_id="b1946ac9-2d9e",
    )


def _page(now: datetime, here: str) -> PatternPage:
    tags = (Link("service=smartcity", here), Link(f"path={samples.WIDE}", here))
    cancel = Link("Cancel", here)
    return PatternPage(
        title="Pattern",
        crumbs=(Link("Queues", urls.QUEUES),),
        here=here,
        statuses=tuple(Status),
        numbers=_COUNTS,
        rates=(0, 0.004, 0.37, 12.5, 98_765.4),
        times=tuple(now - timedelta(seconds=age) for age in _AGES),
        ages=(Age(12.0), Age(61.0, "warn", "over 1 min"), Age(4_000.0, "bad", "over 10 min")),
        long_id=samples.LONG,
        tags=tags,
        tabs=(
            Tab("All", here, current=True, count=sum(_COUNTS)),
            *(
                Tab(status.value.lower(), here, count=count, status=status)
                for status, count in zip(Status, _COUNTS, strict=True)
            ),
        ),
        figures=samples.figures(),
        fields=samples.fields("alone"),
        filter=FilterForm(here, samples.fields("filter")[:3], (), here, open=True),
        search=SearchBox(
            here,
            'tag:to="a b"',
            terms=(Link('tag:to="a b"', here),),
            views=(Link("late", here),),
            clear=here,
            example="tag:to=…",
            keys=("state:", "tag:key=value"),
        ),
        prefix=samples.fields("prefix")[0],
        buttons=(Link("Restart…", here), Link("Delete…", here, danger=True)),
        choices=(Choice("restart", "Restart…"), Choice("delete", "Delete…", danger=True)),
        confirm=Confirm(
            here, (Choice("", "Restart 214 tasks"),), cancel, fields=samples.fields("confirm")[:1]
        ),
        danger=Confirm(here, (Choice("", "Delete 214 tasks", danger=True),), cancel),
        dropped=Confirm(here, (Choice("", "Pause"),), fields=samples.fields("dropped")[2:3]),
        door=Confirm(here, (Choice("", "Sign in"),), fields=samples.fields("door")[4:5]),
        flashes=(
            Flash("done", "214 tasks restarted."),
            Flash("failed", "3 tasks deleted, 2 left alone: a worker has it."),
        ),
        empty=Empty("Queues would be here, one in each row.", "headrace queue create mail"),
        looking=UnfinishedLook(
            750, 12_000, "None found yet: 750 of about 12 000 tasks looked at.", here
        ),
        problem=samples.problem(here),
        decision=samples.decision(here),
        done=_COUNTS[2],
        count=_COUNTS[3],
        steps=samples.steps(here),
        seen=samples.seen(here),
        meant=samples.meant(here),
        more="and 209 more",
        differences=samples.differences(),
        lines=samples.lines(),
        snippets=of_list(
            "mail", TaskFilter(states=("DEAD",), tags={"a": samples.WIDE}), descending=True
        ),
        troubles=samples.troubles(now, here),
        headings=samples.headings(here),
        queues=samples.queues(now, here),
        tasks=samples.tasks(now, here),
        worker_heads=samples.heads(workers.COLUMNS, "name", here),
        workers=samples.workers(now, here),
        pager=Pager("50 tasks", here, here),
        groups=samples.groups(now, here),
        facts=(
            Fact("Lease", "30s"),
            Fact("Created", at=now - timedelta(hours=2)),
            Fact("Dedupe key", "order-4711", code=True),
            Fact("A name that takes more room than others", samples.WIDE),
        ),
        life=samples.life(now),
        attempts=samples.attempts(now),
        turns=samples.turns(now),
        reasons=samples.reasons(now),
        trail=samples.trail(now, here),
        secret=f"hr_{samples.LONG}{samples.LONG}",
        sparks=(
            charts.spark([0] * 12, of="started", per="5 min"),
            charts.spark([n % 7 * n for n in range(12)], of="started", per="5 min"),
            charts.spark([1_000_000] * 12, of="started", per="5 min"),
        ),
        diagrams=tuple(diagram.lifecycle(status) for status in Status),
        charts=samples.drawn(now, here),
        flows=samples.flows(here),
        flow_rows=samples.flow_rows(here),
        runs=samples.runs(now),
        when="every day at 09:00, Europe/Madrid time",
        outcomes=samples.outcomes(now, here),
        schedule_heads=samples.heads(schedules.COLUMNS, "queue", here),
        schedules=samples.schedules(now, here),
        own_schedules=samples.own_schedules(now, here),
        texts=samples.texts(),
    )
