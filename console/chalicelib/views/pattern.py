"""The pattern page: for whoever changes how the console looks."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Final

from console.chalicelib import charts, diagram, urls, words
from console.chalicelib.flowchart import flowchart
from console.chalicelib.forms import pretty
from console.chalicelib.pages.frame import Flash
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
    Option,
    Pager,
    Tab,
)
from console.chalicelib.pages.pattern import PatternPage
from console.chalicelib.pages.pipelines import Flowchart
from console.chalicelib.pages.queue import FilterForm, TaskList, TaskRow
from console.chalicelib.pages.queues import QueueRow
from console.chalicelib.pages.schedules import Outcome, Run, Runs
from console.chalicelib.pages.task import Text
from console.chalicelib.routes import Reply, Routes
from console.chalicelib.views.queues import crumb
from console.chalicelib.visit import Visit
from headrace.domain.access import Permission
from headrace.domain.task import Status
from headrace.ops.flows import Flow

routes: Final = Routes()
_COUNTS: Final = (0, 7, 1_234, 98_765, 1_000_000)
_AGES: Final = (-86_400, -3_600, -90, 0, 12, 300, 7_200, 400_000)  # seconds
_LONG: Final = "tsk_01kx3v9m2p4q6r8s0t2v4w6y8z"
_WIDE: Final = (
    "city.sensors.air-quality.observed.north-eastern-districts.normalised-and-deduplicated"
)
_WORDS: Final = {
    "text": "<script>alert('no')</script> & \"quotes\"",
    "right to left": "مهمة فشلت بسبب انتهاء المهلة",
    "emoji": "🚰🌊👩🏽‍🔧",
    "big": 12345678901234567890,
}


@routes.get(urls.PATTERN, Permission.ADMINISTER)
def show(visit: Visit) -> Reply:
    """Show each element once."""
    here = visit.url(urls.PATTERN)
    payload = json.dumps(_WORDS, ensure_ascii=False)
    fields = (
        Field("p1", "Text", "as typed", hint="what to type"),
        Field("p2", "Wrong", "12 apples", "number", error="must be a whole number from 0 to 100"),
        Field("p3", "Choice", "", "select", options=(Option("", "one"), Option("2", "two", True))),  # noqa: FBT003  chosen
        Field("p4", "Instant, UTC", "2026-11-21T08:00", "datetime-local"),
        Field("p5", "Key", "", "password", required=True, width="l"),
    )
    return PatternPage(
        title="Pattern",
        crumbs=(crumb(visit),),
        here=here,
        statuses=tuple(Status),
        numbers=_COUNTS,
        times=tuple(visit.now - timedelta(seconds=age) for age in _AGES),
        ages=(Age(12.0), Age(61.0, "warn", "over 1 min"), Age(4_000.0, "bad", "over 10 min")),
        tabs=(
            Tab("All", here, current=True, count=sum(_COUNTS)),
            *(
                Tab(status.value.lower(), here, count=count, status=status)
                for status, count in zip(Status, _COUNTS, strict=True)
            ),
        ),
        fields=fields,
        filter=FilterForm(here, _renamed(fields[:3], "filter"), (), here, open=True),
        buttons=(Button("Restart…", here), Button("Delete…", here, danger=True)),
        confirm=Confirm(here, "Restart 214 tasks", here, fields=_renamed(fields[:1], "confirm")),
        danger=Confirm(here, "Delete 214 tasks", here, danger=True),
        facts=(
            Fact("Lease", "30 s"),
            Fact("Created", at=visit.now - timedelta(hours=2)),
            Fact("Dedupe key", "order-4711", code=True),
            Fact("A name that takes more room than others", _WIDE),
        ),
        flashes=(
            Flash("done", "214 tasks restarted."),
            Flash("failed", "3 tasks deleted, 2 left alone: a worker has it."),
        ),
        empty=Empty("Queues would be here, one in each row.", "headrace queue create mail"),
        pager=Pager("50 tasks", here, here),
        sparks=(
            charts.spark([0] * 12, of="started", per="5 min"),
            charts.spark([n % 7 * n for n in range(12)], of="started", per="5 min"),
            charts.spark([1_000_000] * 12, of="started", per="5 min"),
        ),
        diagrams=tuple(diagram.lifecycle(status) for status in Status),
        texts=(
            Text("Payload", payload, pretty(payload), len(payload.encode()), ""),
            Text("Long payload", "x" * 9_000, "x" * 9_000, 9_000, "x" * 300 + "…"),
        ),
        queues=_queues(visit, here),
        tasks=_tasks(visit, here),
        charts=_charts(),
        flows=_flows(here),
        runs=Runs("Europe/Madrid", (Run(visit.now, "Sat 2026-11-21 09:00:00 CET"),)),
        outcomes=(
            None,
            Outcome(visit.now, "run by hand", None, None),
            *(Outcome(visit.now, "", status, here) for status in Status),
        ),
        long_id=_LONG,
    )


def _charts() -> tuple[Chart, ...]:
    times = [f"{hour:02}:00" for hour in range(24)]
    steep = [1_000_000 / (1 + hour) for hour in range(24)]
    names = ("enqueued", "started", "succeeded", "failed")
    four = [
        charts.Line(name, [hour % (n + 3) for hour in range(24)]) for n, name in enumerate(names)
    ]
    gaps = charts.Line("p99", [0.25 if hour % 5 else None for hour in range(24)])
    none = charts.Line("p50", [None] * 24)
    return (
        charts.chart("Four lines", four, times=times, said=words.number, unit=" a minute"),
        charts.chart("Gaps", [none, gaps], times=times, said=words.duration),
        charts.chart("A million", [charts.Line("waiting", steep)], times=times,
                     said=words.number, filled=True),
        charts.chart("Nothing", [charts.Line("waiting", [0] * 24)], times=times,
                     said=words.number, filled=True),
    )  # fmt: skip


def _flows(here: str) -> Flowchart:
    edges = (("a", "b"), ("b", "c"), ("b", _WIDE), ("x", "c"), ("c", "a"))
    flows = [Flow(*edge, 10**place, 10 ** (place + 1)) for place, edge in enumerate(edges)]
    return flowchart(flows, {"a": 1_000_000}, dict.fromkeys(("a", "b", "c", "x", _WIDE), here))


def _renamed(fields: tuple[Field, ...], form: str) -> tuple[Field, ...]:
    return tuple(replace(field, name=f"{form}-{field.name}") for field in fields)


def _queues(visit: Visit, here: str) -> tuple[QueueRow, ...]:
    busy = [1_000_000 - n * n for n in range(12)]
    spoken = (("none", 0, [0] * 12), ("many", 1_000_000, busy), (_WIDE, 1_000_000_000, busy))
    return tuple(
        QueueRow(
            name=name,
            url=here,
            ready_url=here,
            dead_url=here,
            description="",
            scheduled=count,
            ready=count,
            inflight=count,
            succeeded=count,
            dead=count,
            oldest=Age(4_000.0, "bad", "over 10 min") if count else None,
            enqueued_rate=count / 60,
            succeeded_rate=count / 7e6,
            failed_rate=count / 9e8,
            spark=charts.spark(values, of="started", per="5 min"),
            paused=count > 0,
            resume_at=visit.now + timedelta(hours=2),
            limited="at most 20 in flight" if name == _WIDE else "",
        )
        for name, count, values in spoken
    )


def _tasks(visit: Visit, here: str) -> TaskList:
    rows = tuple(
        TaskRow(
            id=_LONG[:-1] + str(place),
            url=here,
            status=status,
            dead_reason="exhausted" if status is Status.DEAD else "",
            at=visit.now - timedelta(minutes=place * 7),
            at_means="due",
            attempts=place,
            worker="host-17.eu-west-3.example:4711",
            tags=(Link("service=smartcity", here), Link(f"path={_WIDE}", here)),
            error="TimeoutError: " + "no answer from the broker after 30 s; " * place,
            age=visit.now - timedelta(hours=place),
        )
        for place, status in enumerate(Status)
    )
    buttons = (Choice("restart", "Restart…"), Choice("delete", "Delete…", danger=True))
    return TaskList(rows, "When", None, buttons, Pager("5 tasks"), Empty(""))
