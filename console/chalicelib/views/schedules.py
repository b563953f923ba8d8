"""Schedules: every one, one, and what may be done to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from headrace.domain.access import Permission
from headrace.domain.errors import NotFound
from headrace.domain.schedule import Missed, Schedule, ScheduleSettings
from headrace.domain.task import DedupeUntil, OnExpiry, Status
from headrace.domain.task_fields import SetBy, texts
from headrace.domain.ticks import zone
from headrace.domain.times import duration_text
from headrace.ops.scheduling.schedules import LastRun
from headrace.ops.tasks.enqueue import EnqueueOutcome

from .. import formatting, urls
from ..cron_words import spoken
from ..pages import Flash, Page
from ..parts import Empty, Fact, Heading, Link, Pager, SearchBox, Text
from ..request_context import BACK, RequestContext, each
from ..routes import Redirect, Reply, routes
from .columns import Column, Columns, times
from .confirm import Question, ask
from .list_search import ListSearch
from .navigation import crumb, queue_link, tag_links
from .search_box import list_box

SHOWN_RUNS: Final = 5
MISSED_TEXTS: Final = {
    Missed.LATEST: "run the latest",
    Missed.ALL: "run all, at most 100",
    Missed.SKIP: "skip them",
}
KEY_HELD_TEXTS: Final = {DedupeUntil.END: "the task ends", DedupeUntil.START: "the task starts"}
ON_EXPIRY_TEXTS: Final = {OnExpiry.DEAD: "dead letter", OnExpiry.DROP: "remove it"}


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
    search: SearchBox
    headings: tuple[Heading, ...]
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
    actions: tuple[Link, ...]
    runs: Runs
    last: RunOutcome | None
    facts: tuple[Fact, ...]
    tags: tuple[Link, ...]
    text: Text | None
    withheld: str


@dataclass(frozen=True, slots=True)
class _Action:
    """What may be done to a schedule as it stands."""

    name: str
    verb: str
    detail: str
    danger: bool = False

    def fits(self, settings: ScheduleSettings) -> bool:
        """Tell whether it makes sense for a schedule with these settings."""
        return {"pause": not settings.paused, "resume": settings.paused}.get(self.name, True)


_ACTIONS: Final[Mapping[str, _Action]] = {
    each.name: each
    for each in (
        _Action("run", "Run now",
                "One task is enqueued, due at once. The runs to come stay as they are."),
        _Action("pause", "Pause",
                "No more runs, and none made up for later. What is enqueued ahead, for the next "
                "three minutes, is taken back."),
        _Action("resume", "Resume", "It runs again from its next time on. Nothing is made up for."),
        _Action("delete", "Delete",
                "It is gone for good, and its tasks that are not due yet are taken back. Tasks "
                "that are due stay.", danger=True),
    )
}  # fmt: skip


def schedules_crumb(context: RequestContext) -> Link:
    """Return the crumb that leads to all schedules."""
    return crumb(context, "Schedules", urls.SCHEDULES)


def runs_of(settings: ScheduleSettings, runs: Iterable[datetime]) -> Runs:
    """Return runs as they are shown: by the clocks of the schedule's zone, too."""
    if settings.cron is None or settings.timezone == "UTC":
        return Runs("", tuple(ScheduledRun(at, "") for at in runs))
    place: ZoneInfo = zone(settings.timezone)
    return Runs(
        settings.timezone,
        tuple(ScheduledRun(at, f"{at.astimezone(place):%a %Y-%m-%d %H:%M:%S %Z}") for at in runs),
    )


def when(settings: ScheduleSettings) -> str:
    """Return when a schedule with these settings runs, in words."""
    return spoken(settings.cron, settings.every_seconds, settings.timezone)


def _next_run(row: ScheduleLine) -> datetime | None:
    return row.runs.runs[0].at if row.runs.runs else None


COLUMNS: Final[Columns[ScheduleLine]] = {
    "name": Column("Schedule", lambda row: (row.name.text, row.queue.text)),
    "queue": Column("Queue", lambda row: (row.queue.text, row.name.text)),
    "when": Column("When", lambda row: row.when),
    "next": times("Next runs", _next_run),
    "last": times("Last run", lambda row: row.last.at if row.last else None),
}


@routes.get(urls.SCHEDULES, Permission.READ)
def show_all(context: RequestContext) -> Reply:
    """Show a page of schedules."""
    wanted: ListSearch[Schedule] = ListSearch(context, "schedules")
    page = wanted.look(
        lambda where, limit, cursor: context.use.schedules.list(
            where=where, limit=limit, cursor=cursor
        )
    )
    rows = each(lambda schedule: _line(context, schedule), page.shown)
    return SchedulesPage(
        title="Schedules",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        headings=wanted.headings(COLUMNS, "queue"),
        rows=wanted.rows(COLUMNS, rows),
        create=context.url(urls.CREATE_SCHEDULE, context.onward)
        if context.allows(Permission.OPERATE)
        else None,
        pager=wanted.pager(len(rows)),
        empty=wanted.empty(
            Empty(
                "Schedules would be here, one in each row.",
                "headrace schedule put mail nightly --cron '0 3 * * *'",
            )
        ),
    )


@routes.get(urls.SCHEDULE, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a schedule."""
    schedule = _schedule(context)
    settings = schedule.settings
    details = context.allows(Permission.DETAILS, schedule.queue)
    last = context.use.schedules.last_run(schedule)
    return SchedulePage(
        title=f"{schedule.name} of {schedule.queue}",
        crumbs=_crumbs(context, schedule),
        name=schedule.name,
        queue=queue_link(context, schedule.queue),
        when=when(settings),
        paused=settings.paused,
        actions=_buttons(context, schedule),
        runs=_runs(context, schedule),
        last=_outcome(context, last) if last else None,
        facts=_facts(schedule),
        tags=tag_links(context, schedule.queue, settings.tags),
        text=Text.of("Payload", settings.payload) if details else None,
        withheld="" if details else f"The payload is not shown to {context.by.role.value} keys.",
    )


@routes.get(urls.SCHEDULE_ACTION, Permission.OPERATE)
def ask_first(context: RequestContext) -> Reply:
    """Say what an action would do, and ask whether to do it."""
    action, schedule = _action(context), _schedule(context)
    back = {BACK: context.back}
    here = context.url(urls.SCHEDULE, back, queue=schedule.queue, name=schedule.name)
    fits = action.fits(schedule.settings)
    already = "paused already" if action.name == "pause" else "not paused"
    whole = formatting.upon(action.verb, f"schedule {schedule.name} of {schedule.queue}")
    question = Question(
        title=f"{formatting.upon(action.verb, 'schedule')}?",
        question=f"{whole}?",
        detail=action.detail if fits else f"It is {already}.",
        action=context.url(
            urls.SCHEDULE_ACTION, queue=schedule.queue, name=schedule.name, action=action.name
        ),
        button=formatting.upon(action.verb, "this schedule"),
        danger=action.danger,
        possible=fits,
    )
    way = (*_crumbs(context, schedule), Link(schedule.name, here))
    return ask(question, way, back=Link("Back to the schedule", here))


@routes.post(urls.SCHEDULE_ACTION, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Do it."""
    action, schedule, use = _action(context), _schedule(context), context.use.schedules
    back = {BACK: context.back}
    here = context.url(urls.SCHEDULE, back, queue=schedule.queue, name=schedule.name)
    if action.name == "delete":
        use.delete(schedule.queue, schedule.name)
        done = Flash("done", f"Schedule {schedule.name} of {schedule.queue} is deleted.")
        return Redirect(context.back or context.url(urls.SCHEDULES), done)
    if action.name == "run":
        made = use.run(schedule.queue, schedule.name)
        if made.outcome is EnqueueOutcome.CREATED and made.id:
            done = Flash("done", f"Schedule {schedule.name} made this task, due now.")
            return Redirect(context.url(urls.TASK, id=made.id), done)
        held = f"Nothing was enqueued: task {made.id} holds the dedupe key."
        return Redirect(here, Flash("failed", held))
    paused = action.name == "pause"
    use.put(schedule.queue, schedule.name, replace(schedule.settings, paused=paused))
    return Redirect(
        here, Flash("done", f"Schedule {schedule.name} {'is paused' if paused else 'runs again'}.")
    )


def _schedule(context: RequestContext) -> Schedule:
    return context.use.schedules.get(context.queue, context.request.names["name"]).schedule


def _action(context: RequestContext) -> _Action:
    name = context.request.names["action"]
    if name not in _ACTIONS:
        raise NotFound(f"there is no action {name[:40]}")
    return _ACTIONS[name]


def _buttons(context: RequestContext, schedule: Schedule) -> tuple[Link, ...]:
    if not context.allows(Permission.OPERATE, schedule.queue):
        return ()
    queue, name, back = schedule.queue, schedule.name, {BACK: context.back}
    return (
        Link("Edit…", context.url(urls.EDIT_SCHEDULE, back, queue=queue, name=name)),
        *(
            Link(
                f"{action.verb}…",
                context.url(urls.SCHEDULE_ACTION, back, queue=queue, name=name, action=action.name),
                danger=action.danger,
            )
            for action in _ACTIONS.values()
            if action.fits(schedule.settings)
        ),
    )


def _line(context: RequestContext, schedule: Schedule) -> ScheduleLine:
    settings = schedule.settings
    last = context.use.schedules.last_run(schedule)
    runs = when(settings)
    shown = settings.cron or ""
    return ScheduleLine(
        queue=queue_link(context, schedule.queue),
        name=Link(
            schedule.name,
            context.url(urls.SCHEDULE, context.onward, queue=schedule.queue, name=schedule.name),
        ),
        when=runs,
        expression="" if runs.startswith(shown) else shown,
        paused=settings.paused,
        runs=_runs(context, schedule),
        last=_outcome(context, last) if last else None,
    )


def _runs(context: RequestContext, schedule: Schedule) -> Runs:
    if schedule.settings.paused:
        return Runs("", ())
    return runs_of(schedule.settings, context.use.schedules.coming(schedule, SHOWN_RUNS))


def _crumbs(context: RequestContext, schedule: Schedule) -> tuple[Link, ...]:
    return (schedules_crumb(context), queue_link(context, schedule.queue))


def _outcome(context: RequestContext, last: LastRun) -> RunOutcome:
    by_hand = "run by hand" if last.by_hand else ""
    if last.task is None:
        text = ", ".join(filter(None, (by_hand, "its task is not kept any more")))
        return RunOutcome(last.at, text, None, None)
    status = last.task.status(context.now)
    reason = last.task.dead_reason if status is Status.DEAD else ""
    text = ", ".join(filter(None, (reason, by_hand)))
    return RunOutcome(last.at, text, status, context.url(urls.TASK, id=last.task.id))


def _facts(schedule: Schedule) -> tuple[Fact, ...]:
    settings = schedule.settings
    keepalive = settings.keepalive_timeout_in_seconds
    retry = settings.retry_strategy
    every = (
        Fact("Cron", settings.cron, code=True) if settings.cron else None,
        Fact("Time zone", settings.timezone) if settings.cron else None,
        Fact("Every", duration_text(settings.every_seconds)) if settings.every_seconds else None,
        *(
            Fact(one.title, text)
            for one in texts(SetBy.SCHEDULE)
            if (text := getattr(settings, one.api_name))
        ),
        Fact("Key held until", KEY_HELD_TEXTS[settings.dedupe_until])
        if settings.dedupe_key
        else None,
        Fact("Priority", settings.priority) if settings.priority else None,
        Fact("Expires", _expiry(settings)),
        Fact("When expired", ON_EXPIRY_TEXTS[settings.on_expiry]),
        Fact("Missed runs", MISSED_TEXTS[settings.missed]),
        Fact("Lease", "as the queue says" if keepalive is None else duration_text(keepalive)),
        Fact("Retries", "as the queue says" if retry is None else formatting.retries(retry)),
        Fact("Created", at=schedule.created_at),
        Fact("Changed", at=schedule.updated_at),
    )
    return tuple(fact for fact in every if fact is not None)


def _expiry(settings: ScheduleSettings) -> str:
    seconds = settings.expires_in_seconds
    if seconds is None:
        return "as the queue says"
    return f"{duration_text(seconds)} after it is due" if seconds else "never"
