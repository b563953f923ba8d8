"""What the pattern page shows: each element of the console once."""

from datetime import timedelta
from typing import Final

from console.chalicelib import charts, diagram, urls
from console.chalicelib.pages.frame import Flash
from console.chalicelib.pages.parts import (
    Age,
    Button,
    Choice,
    Confirm,
    Empty,
    Fact,
    Link,
    Pager,
    Tab,
)
from console.chalicelib.pages.pattern import PatternPage
from console.chalicelib.pages.queue import FilterForm
from console.chalicelib.request_context import RequestContext
from console.chalicelib.views import pattern_samples as samples
from console.chalicelib.views.queues import crumb
from headrace.domain.task import Status

_COUNTS: Final = (0, 7, 1_234, 98_765, 1_000_000)
_AGES: Final = (-86_400, -3_600, -90, 0, 12, 300, 7_200, 400_000)  # seconds


def page(context: RequestContext) -> PatternPage:
    """Return the page with each element once."""
    here, now = context.url(urls.PATTERN), context.now
    tags = (Link("service=smartcity", here), Link(f"path={samples.WIDE}", here))
    return PatternPage(
        title="Pattern",
        crumbs=(crumb(context),),
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
        prefix=samples.fields("prefix")[0],
        buttons=(Button("Restart…", here), Button("Delete…", here, danger=True)),
        choices=(Choice("restart", "Restart…"), Choice("delete", "Delete…", danger=True)),
        confirm=Confirm(here, "Restart 214 tasks", here, fields=samples.fields("confirm")[:1]),
        danger=Confirm(here, "Delete 214 tasks", here, danger=True),
        dropped=Confirm(here, "Pause", "", fields=samples.fields("dropped")[2:3]),
        door=Confirm(here, "Sign in", "", fields=samples.fields("door")[4:5]),
        flashes=(
            Flash("done", "214 tasks restarted."),
            Flash("failed", "3 tasks deleted, 2 left alone: a worker has it."),
        ),
        empty=Empty("Queues would be here, one in each row.", "headrace queue create mail"),
        problem=samples.problem(here),
        decision=samples.decision(here),
        done=_COUNTS[2],
        count=_COUNTS[3],
        seen=samples.seen(here),
        meant=samples.meant(here),
        more="and 209 more",
        differences=samples.differences(),
        queues=samples.queues(now, here),
        tasks=samples.tasks(now, here),
        pager=Pager("50 tasks", here, here),
        groups=samples.groups(now, here),
        facts=(
            Fact("Lease", "30 s"),
            Fact("Created", at=now - timedelta(hours=2)),
            Fact("Dedupe key", "order-4711", code=True),
            Fact("A name that takes more room than others", samples.WIDE),
        ),
        attempts=samples.attempts(now),
        reasons=samples.reasons(now),
        trail=samples.trail(now, here),
        secret=f"hr_{samples.LONG}{samples.LONG}",
        sparks=(
            charts.spark([0] * 12, of="started", per="5 min"),
            charts.spark([n % 7 * n for n in range(12)], of="started", per="5 min"),
            charts.spark([1_000_000] * 12, of="started", per="5 min"),
        ),
        diagrams=tuple(diagram.lifecycle(status) for status in Status),
        charts=samples.drawn(),
        flows=samples.flows(here),
        flow_rows=samples.flow_rows(here),
        runs=samples.runs(now),
        when="every day at 09:00, Europe/Madrid time",
        outcomes=samples.outcomes(now, here),
        schedules=samples.schedules(now, here),
        own_schedules=samples.own_schedules(now, here),
        texts=samples.texts(),
    )
