"""What the pattern page shows: each piece in its usual form, and in its most awkward one.

Long, because it is a list: each piece of the console, twice.
"""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from console.chalicelib import charts
from console.chalicelib.calls import CallLine
from console.chalicelib.differences import DiffLine
from console.chalicelib.flowchart import Flowchart, flowchart
from console.chalicelib.forms import pretty
from console.chalicelib.pages import ErrorPage
from console.chalicelib.parts import (
    Age,
    AlertNote,
    Choice,
    Confirm,
    Empty,
    Fact,
    Field,
    Heading,
    Hidden,
    Link,
    Option,
    Pager,
    StepBranch,
    Tab,
    Text,
)
from console.chalicelib.story import QueueSpan, Stretch, Strip
from console.chalicelib.views import columns, task_rows
from console.chalicelib.views.charting import Charts, MarkNote
from console.chalicelib.views.columns import Columns
from console.chalicelib.views.confirm import Sample
from console.chalicelib.views.errors import ErrorRow, GroupQueue
from console.chalicelib.views.pipelines import FlowRow
from console.chalicelib.views.queue import Figures, ScheduleRow
from console.chalicelib.views.queues import QueueRow
from console.chalicelib.views.schedules import RunOutcome, Runs, ScheduledRun, ScheduleLine
from console.chalicelib.views.selections import SeenTask
from console.chalicelib.views.settings import Difference
from console.chalicelib.views.task import AttemptRow, HopRow, ReasonRow, TurnRow
from console.chalicelib.views.task_list import TaskList
from console.chalicelib.views.task_rows import TaskRow
from console.chalicelib.views.trouble import Rank, Trouble, TroubleReason
from console.chalicelib.views.workers import AtWork, WorkerLoad, WorkerRow
from headrace.domain.errors import FieldError, InvalidRequest
from headrace.domain.task import Status
from headrace.domain.worker import WorkerStanding
from headrace.history.flows import Flow
from headrace.history.stats import EventRates

LONG: Final = "tsk_01kx3v9m2p4q6r8s0t2v4w6y8z"
WIDE: Final = (
    "city.sensors.air-quality.observed.north-eastern-districts.normalised-and-deduplicated"
)
RIGHT_TO_LEFT: Final = "مهمة فشلت بسبب انتهاء المهلة"
EMOJI: Final = "🚰🌊👩🏽‍🔧"
_WORDS: Final = {
    "text": "<script>alert('no')</script> & \"quotes\"",
    "right to left": RIGHT_TO_LEFT,
    "emoji": EMOJI,
    "big": 12345678901234567890,
}
_ERROR: Final = "TimeoutError: " + "no answer from the broker after 30 s; "


def fields(form: str) -> tuple[Field, ...]:
    """Return a field of each kind, with names of *form*'s own."""
    every = (
        Field("p1", "Text", "as typed", hint="what to type"),
        Field("p2", "Wrong", "12 apples", "number", error="must be a whole number from 0 to 100"),
        Field("p3", "Choice", "", "select",
              options=(Option("", "one"), Option("2", "two", chosen=True))),
        Field("p4", "Instant, UTC", "2026-11-21T08:00", "datetime-local"),
        Field("p5", "Key", "", "password", required=True, width="l"),
        Field("p6", "Short", "5", width="s"),
        Field("p7", "JSON", '{"a": 1}', "textarea", width="xl"),
    )  # fmt: skip
    return tuple(replace(field, name=f"{form}-{field.name}") for field in every)


def texts() -> tuple[Text, ...]:
    """Return a payload that is shown whole, and one that is folded."""
    payload = json.dumps(_WORDS, ensure_ascii=False)
    return (
        Text("Payload", payload, pretty(payload), len(payload.encode()), ""),
        Text("Long payload", "x" * 9_000, "x" * 9_000, 9_000, "x" * 300 + "…"),
    )


def groups(now: datetime, here: str) -> tuple[ErrorRow, ...]:
    """Return groups of errors."""
    faults = (("TimeoutError", "no answer", 1), ("", RIGHT_TO_LEFT, 214), ("", _ERROR * 9, 10**6))
    return tuple(
        ErrorRow(
            kind, message, count, count // 2, now - timedelta(minutes=count), now,
            charts.spark([0, 2, 5], of="failures", per="5 min"),
            charts.spark([], of="failures", per="1 h"),
            (GroupQueue("mail", here, count, 0), GroupQueue(WIDE, here, count, 7))[:count],
            "and 1 queue more", "ada:1 (2.3.1)", "mail.send", LONG, here,
            (Hidden("queue", "mail"),),
        )
        for kind, message, count in faults
    )  # fmt: skip


def lines() -> tuple[DiffLine, ...]:
    """Return what differs in a payload, with each kind of line."""
    kinds = ("skip", "same", "gone", "new", "same")
    return tuple(DiffLine(kind, f'  "{kind}": "{RIGHT_TO_LEFT} {EMOJI}",') for kind in kinds)


def differences() -> tuple[Difference, ...]:
    """Return changes of settings: by one, by the other, by both."""
    return (
        Difference("Lease", "30s", None, "45s"),
        Difference("Retries", "5", "7", None),
        Difference("Description", "", "Letters", f"{WIDE}, {RIGHT_TO_LEFT} {EMOJI}"),
    )


def decision(here: str) -> Confirm:
    """Return a form with several buttons."""
    target = Field("decision-p1", "To queue", "archive", width="l")
    few = Choice("few", "Delete only 5", danger=True)
    every = Choice("all", "Delete 1\u202f000\u202f000 tasks", danger=True)
    return Confirm(here, (few, every), Link("Cancel", here), (target,))


def seen(here: str) -> tuple[SeenTask, ...]:
    """Return tasks of a dry run."""
    return (SeenTask(LONG, here, "mail", _ERROR), SeenTask(LONG, here, WIDE, RIGHT_TO_LEFT))


def steps(here: str) -> tuple[StepBranch, ...]:
    """Return steps of a workflow: one of each kind, and names of any length."""
    link = Link(LONG, here)
    last = StepBranch(
        WIDE, None, WIDE, None, "", f"{WIDE}, {WIDE} and 95 more", "3 of 97 have ended"
    )
    dead = StepBranch("", link, "mail", Status.DEAD, "cancelled", "", "")
    gone = StepBranch("count", link, "mail", None, "", "", "", next=(last,))
    return (StepBranch("load", link, "mail", Status.SUCCEEDED, "", "", "", next=(dead, gone)), last)


def meant(here: str) -> tuple[Sample, ...]:
    """Return tasks that were ticked."""
    return (Sample(LONG, here, ""), Sample(LONG, here, "a worker has it"))


def turns(now: datetime) -> tuple[TurnRow, ...]:
    """Return what happened between attempts."""
    return (
        TurnRow("restarted", None, None, None),
        TurnRow("moved", now - timedelta(hours=1), Link("mail", "#"), Link("another queue", "")),
    )


def attempts(now: datetime) -> tuple[AttemptRow, ...]:
    """Return the attempts with their outcomes, the newest first."""
    ended = (
        (Status.INFLIGHT, "running since", "", ""),
        (Status.SUCCEEDED, "succeeded", "", ""),
        (Status.DEAD, "lease expired", "", ""),
        (Status.DEAD, "failed", "TimeoutError", f"no answer {RIGHT_TO_LEFT} {EMOJI}"),
        (Status.DEAD, "failed", "TimeoutError", _ERROR * 20),
    )
    return tuple(
        AttemptRow(
            len(ended) - place, word, status, now - timedelta(minutes=place * 7),
            "host-17.eu-west-3.example:4711", None if place == 0 else place * 1.7, kind, message,
            "Traceback (most recent call last):\n  …" if kind else "",
            "raise TimeoutError()" if kind else "", unfolded=place == 3,
        )
        for place, (status, word, kind, message) in enumerate(ended)
    )  # fmt: skip


def life(now: datetime) -> Strip:
    """Return a life to scale, with everything that can be drawn."""
    kinds = ("wait", "backoff", "run-failed", "run-succeeded", "run-inflight", "unknown")
    stretches = tuple(
        Stretch(kind, place * 120.0, 60.0 + place, f"{kind} for a while")
        for place, kind in enumerate(kinds)
    )
    queues = (QueueSpan("mail", 0.0, 300.0, "mail"), QueueSpan(WIDE, 300.0, 420.0, WIDE[:55]))
    began = now - timedelta(hours=2)
    return Strip(stretches, queues, began, now, 7200.0, "It waited, and ran.", kinds)


def reasons(now: datetime) -> tuple[ReasonRow, ...]:
    """Return why a task waits."""
    return (
        ReasonRow("scheduled", "The task is not due yet.", now + timedelta(minutes=2)),
        ReasonRow("paused", "Deliveries of queue mail are paused.", None),
    )


def trail(now: datetime, here: str) -> tuple[HopRow, ...]:
    """Return the way of a task."""
    return (
        HopRow("a", here, now - timedelta(hours=3)),
        HopRow("another queue", None, now - timedelta(hours=2)),
        HopRow(WIDE, None, None),
    )


def figures() -> Figures:
    """Return how a queue is doing."""
    rates = (Fact("enqueued", "1\u202f234/s"), Fact("failed", "0/s"))
    return Figures(Age(12.0), Age(4_000.0, "bad", "over 10 min"), rates, "at most 20 in flight")


def problem(here: str) -> ErrorPage:
    """Return a sample of the error page."""
    error = InvalidRequest("the filter makes no sense")
    page = ErrorPage.of(error, request_id="b1946ac9-2d9e", acted=True, way_on=Link("Go on", here))
    return replace(page, fields=(FieldError("attempts", "must be a whole number from 0 to 100"),))


def runs(now: datetime) -> Runs:
    """Return runs to come."""
    return Runs(
        "Europe/Madrid", (ScheduledRun(now + timedelta(hours=1), "Sat 2026-11-21 09:00:00 CET"),)
    )


def outcomes(now: datetime, here: str) -> tuple[RunOutcome | None, ...]:
    """Return how runs of schedules ended."""
    return (
        None,
        RunOutcome(now, "its task is not kept any more", None, None),
        RunOutcome(now, "exhausted, run by hand", Status.DEAD, here),
        *(RunOutcome(now, "", status, here) for status in Status),
    )


def schedules(now: datetime, here: str) -> tuple[ScheduleLine, ...]:
    """Return schedules among others."""
    soon, never = runs(now), Runs("", ())
    last = RunOutcome(now, "", Status.SUCCEEDED, here)
    mail, wide = Link("mail", here), Link(WIDE, here)
    return (
        ScheduleLine(
            mail, mail, "every day at 03:00", "0 3 * * *", paused=False, runs=soon, last=last
        ),
        ScheduleLine(wide, wide, "every 15 min", "", paused=True, runs=never, last=None),
    )


def own_schedules(now: datetime, here: str) -> tuple[ScheduleRow, ...]:
    """Return the schedules of a queue, in short."""
    return (
        ScheduleRow("nightly", here, "every day at 03:00", now + timedelta(hours=3), paused=False),
        ScheduleRow(WIDE, here, "every minute", None, paused=True),
    )


def flow_rows(here: str) -> tuple[FlowRow, ...]:
    """Return flows as a table has them."""
    return (
        FlowRow(Link("a", here), Link("b", here), 0, 7),
        FlowRow(Link("b", here), Link(WIDE, here), 98_765, 1_000_000),
    )


def drawn(now: datetime, here: str) -> Charts:
    """Return charts: several lines and what they are compared with, gaps, a million, nothing."""
    times = [f"{hour:02}:00" for hour in range(24)]
    steep = [1_000_000 / (1 + hour) for hour in range(24)]
    names = ("enqueued", "started", "succeeded", "failed", "moved on")
    lines = [
        charts.ChartLine(name, [hour % (n + 3) for hour in range(24)], before=[n] * 24)
        for n, name in enumerate(names)
    ]
    gaps = charts.ChartLine("p99", [0.25 if hour % 5 else None for hour in range(24)])
    none = charts.ChartLine("p50", [None] * 24)
    notes = (
        MarkNote("pause", "paused by ada", now),
        MarkNote("edit", "settings edited by somebody whose name is long", now),
        MarkNote("deploy", "workers of version 2026.11.24-1", now),
    )
    marks = [charts.Mark(n / 4, note.kind, note.text) for n, note in enumerate(notes, 1)]
    tabs = (Tab("Last hour", here, current=True), Tab("Last day", here))
    return Charts(
        all=(
            charts.chart("Five lines", lines, times=times, counts="tasks a minute",
                         unit=" a minute", compared="a day before", marks=marks),
            charts.chart("Gaps", [none, gaps], times=times, axis=charts.LENGTHS),
            charts.chart("A million", [charts.ChartLine("waiting", steep)], times=times,
                         filled=True),
            charts.chart("Nothing", [charts.ChartLine("waiting", [0] * 24)], times=times,
                         filled=True),
        ),
        spans=tabs,
        nearby=tabs[1:],
        comparisons=tabs,
        since=now,
        last=now,
        until=now,
        fixed=True,
        gaps=True,
        marks=notes,
        compared="a day before",
        wrong="must be before to",
    )  # fmt: skip


def flows(here: str) -> Flowchart:
    """Return queues that feed each other, in a circle too."""
    edges = (("a", "b"), ("b", "c"), ("b", WIDE), ("x", "c"), ("c", "a"))
    flows = [Flow(*edge, 10**place, 10 ** (place + 1)) for place, edge in enumerate(edges)]
    return flowchart(flows, {"a": 1_000_000}, dict.fromkeys(("a", "b", "c", "x", WIDE), here))


def troubles(now: datetime, here: str) -> tuple[Trouble, ...]:
    """Return queues with one thing wrong, and with several."""
    hour = timedelta(hours=1)
    stalled = "1\u202f200 ready, and nothing was started in the last minute: its limit is reached"
    paused = TroubleReason(
        Rank.PAUSED, "paused", "by ada, 4 ready meanwhile", now - hour, now + hour
    )
    return (
        Trouble("mail", here, (TroubleReason(Rank.STALLED, "stalled", stalled),)),
        Trouble(
            WIDE, here, (TroubleReason(Rank.FAILING, "failing", "34 % of attempts fail"), paused)
        ),
        Trouble("billing", here, (paused,)),
    )


def headings(here: str) -> tuple[Heading, ...]:
    """Return the heads of the table of queues, which is sorted by one of them."""
    states = tuple(Heading(one.value.capitalize(), here, sign=one.value.lower()) for one in Status)
    rest = ("Oldest ready", "In /s", "Out /s", "Failed /s", "In 5 min")
    return (
        Heading("Queue", here, number=False),
        *states[:-1],
        Heading("Dead", here, "descending", "dead"),
        *(Heading(text, here, title=text) for text in rest),
        Heading("Started, last hour", here, number=False),
    )


def queues(now: datetime, here: str) -> tuple[QueueRow, ...]:
    """Return queues with nothing, and with much."""
    busy = [1_000_000 - n * n for n in range(12)]
    spoken = (("none", 0, [0] * 12), ("many", 1_000_000, busy), (WIDE, 1_000_000_000, busy))
    return tuple(
        QueueRow(
            name=name,
            url=here,
            ready_url=here,
            dead_url=here,
            counts=dict.fromkeys(Status, count),
            cancelled=count // 3,
            oldest=Age(4_000.0, "bad", "over 10 min") if count else None,
            rates=EventRates(count / 60, 0.0, count / 7e6, count / 9e8),
            spark=charts.spark(values, of="started", per="5 min"),
            paused=count > 0,
            resume_at=now + timedelta(hours=2),
            limited="at most 20 in flight" if name == WIDE else "",
            alerts=(AlertNote("oldest ready for 5 min", now),) if name == WIDE else (),
            silent=name == "many",
            grown="+1\u202f234" if count else "",
            died="+12" if name == WIDE else "",
        )
        for name, count, values in spoken
    )


def heads(of: Columns[Any], usual: str, here: str) -> tuple[Heading, ...]:
    """Return the heads of a list that is sorted."""
    return tuple(columns.headings(of, "", usual, whole=True, url=lambda _: here))


def workers(now: datetime, here: str) -> tuple[WorkerRow, ...]:
    """Return a worker of each standing, with little and with much to do."""
    at_work = tuple(
        AtWork(f"{LONG[:-1]}{n}", here, Link("mail", here), Age(n * 400.0), n) for n in range(1, 4)
    )
    return tuple(
        WorkerRow(
            name=name,
            url=here,
            standing=standing,
            seen_at=now - timedelta(seconds=silent),
            asked="asked to take no more" if silent == 90 else "",
            host=name.partition(":")[0],
            version="2026.11.24-1",
            queues=(Link("mail", here), Link(WIDE, here)),
            load=load,
            tasks=at_work if load and load.running else (),
            more="and 9 997 more, as it said" if load and load.running else "",
        )
        for name, standing, silent, load in (
            (
                "host-17.eu-west-3.example:4711",
                WorkerStanding.ALIVE,
                12,
                WorkerLoad(10_000, 10_000),
            ),
            (f"{WIDE}:90", WorkerStanding.LATE, 90, WorkerLoad(0, 8)),
            ("ada:1", WorkerStanding.GONE, 1_800, None),
        )
    )


def tasks(now: datetime, here: str) -> TaskList:
    """Return a task in each state."""
    rows = tuple(
        TaskRow(
            id=LONG[:-1] + str(place),
            url=here,
            status=status,
            dead_reason="exhausted" if status is Status.DEAD else "",
            at=now - timedelta(minutes=place * 7),
            at_means="due",
            attempts=place,
            worker="host-17.eu-west-3.example:4711",
            tags=(Link("service=smartcity", here), Link(f"path={WIDE}", here)),
            error=_ERROR * place,
            call=CallLine(
                "billing.invoices.remind" if place else "", '(to="ada@example.org", n=7)'
            ),
        )
        for place, status in enumerate(Status)
    )
    buttons = (Choice("restart", "Restart…"), Choice("delete", "Delete…", danger=True))
    heads = task_rows.headings(
        "Due", "-worker", order="", whole=True, ranked=False, url=lambda *_: here
    )
    return TaskList(rows, tuple(heads), here, buttons, Pager("5 tasks"), Empty(""))
