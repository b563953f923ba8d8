"""Schedules: every one, one, and what may be done to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from headrace.domain.access import Permission
from headrace.domain.errors import NotFound
from headrace.domain.schedule import Missed, Schedule, ScheduleSettings
from headrace.domain.task import DedupeUntil, OnExpiry, Status
from headrace.domain.task_fields import SetBy, texts
from headrace.domain.ticks import zone
from headrace.domain.times import duration_text
from headrace.ops.scheduling.cron import cron_in_words
from headrace.ops.scheduling.schedules import LastRun
from headrace.ops.tasks.enqueue import EnqueueOutcome

from .. import formatting, urls
from ..cells import Badge, Cell, Dim, Fold, Note, Runs, ScheduledRun
from ..pages import Flash, Page
from ..parts import Empty, Fact, Link, Text
from ..request_context import BACK, RequestContext, each
from ..routes import Redirect, Reply, routes
from .columns import Column, Columns, times
from .confirm import ask
from .list_page import list_page
from .list_search import ListSearch
from .navigation import crumb, queue_link, tag_links

SHOWN_RUNS: Final = 5
MISSED_TEXTS: Final = {
    Missed.LATEST: "run the latest",
    Missed.ALL: "run all, at most 100",
    Missed.SKIP: "skip them",
}
KEY_HELD_TEXTS: Final = {DedupeUntil.END: "the task ends", DedupeUntil.START: "the task starts"}
ON_EXPIRY_TEXTS: Final = {OnExpiry.DEAD: "dead letter", OnExpiry.DROP: "remove it"}


@dataclass(frozen=True, slots=True)
class _Action:
    """What may be done to a schedule as it stands."""

    name: str
    verb: str
    detail: str
    danger: bool = False

    def fits(self, settings: ScheduleSettings) -> bool:
        """Return whether the action is possible for a schedule with these settings."""
        return {"pause": not settings.paused, "resume": settings.paused}.get(self.name, True)


_ACTIONS: Final[Mapping[str, _Action]] = {
    each.name: each
    for each in (
        _Action("run", "Run now",
                "Enqueues one task, due now. The next runs stay as they are."),
        _Action("pause", "Pause",
                "Stops all runs; missed runs are skipped. Tasks that are enqueued for the next "
                "three minutes are removed."),
        _Action("resume", "Resume", "Runs again from its next time on. Missed runs are skipped."),
        _Action("delete", "Delete",
                "Deletes the schedule, and its tasks that are not due yet. Tasks that are due "
                "stay. This cannot be undone.", danger=True),
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
    if settings.cron is None:
        return f"every {duration_text(settings.every_seconds or 0)}"
    zone = "" if settings.timezone == "UTC" else f", {settings.timezone} time"
    return f"{cron_in_words(settings.cron)}{zone}"


@dataclass(frozen=True, slots=True)
class _Row:
    """A schedule of the list, with its next runs and its last one."""

    schedule: Schedule
    runs: Runs
    last: LastRun | None


def _columns(context: RequestContext) -> Columns[_Row]:
    def name(row: _Row) -> Cell:
        one = row.schedule
        url = context.url(urls.SCHEDULE, context.onward, queue=one.queue, name=one.name)
        return Link(one.name, url), Note("paused", "warn") if one.settings.paused else None

    def times_of(row: _Row) -> Cell:
        words, cron = when(row.schedule.settings), row.schedule.settings.cron or ""
        return words if words.startswith(cron) else (words, Dim(cron))

    def coming(row: _Row) -> Cell:
        if row.runs.runs:
            return Fold(row.runs.runs[0].at, row.runs)
        return Dim("none while paused" if row.schedule.settings.paused else "no next run")

    return {
        "name": Column("Schedule", lambda row: (row.schedule.name, row.schedule.queue), name),
        "queue": Column(
            "Queue",
            lambda row: (row.schedule.queue, row.schedule.name),
            lambda row: queue_link(context, row.schedule.queue),
        ),
        "when": Column("When", lambda row: when(row.schedule.settings), times_of),
        "next": times(
            "Next runs", lambda row: row.runs.runs[0].at if row.runs.runs else None, coming
        ),
        "last": times(
            "Last run",
            lambda row: row.last.at if row.last else None,
            lambda row: _outcome(context, row.last),
        ),
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
    last_run = context.use.schedules.last_run
    rows = each(lambda one: _Row(one, _runs(context, one), last_run(one)), page.shown)
    create = Link("Create a schedule", context.url(urls.CREATE_SCHEDULE, context.onward))
    return list_page(
        context,
        wanted,
        page.shown,
        _columns(context),
        rows,
        title="Schedules",
        usual="queue",
        empty=Empty("No schedules yet.", "headrace schedule put mail nightly --cron '0 3 * * *'"),
        buttons=(create,) if context.allows(Permission.OPERATE) else (),
    )


@routes.get(urls.SCHEDULE, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a schedule."""
    schedule = _schedule(context)
    settings = schedule.settings
    details = context.allows(Permission.DETAILS, schedule.queue)
    return Page(
        "schedule.html",
        title=f"{schedule.name} of {schedule.queue}",
        crumbs=_crumbs(context, schedule),
        name=schedule.name,
        queue=queue_link(context, schedule.queue),
        when=when(settings),
        paused=settings.paused,
        actions=_buttons(context, schedule),
        runs=_runs(context, schedule),
        last=_outcome(context, context.use.schedules.last_run(schedule)),
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
    return ask(
        (*_crumbs(context, schedule), Link(schedule.name, here)),
        title=f"{formatting.upon(action.verb, 'schedule')}?",
        question=f"{whole}?",
        detail=action.detail if fits else f"It is {already}.",
        action=context.url(
            urls.SCHEDULE_ACTION, queue=schedule.queue, name=schedule.name, action=action.name
        ),
        button=formatting.upon(action.verb, "this schedule"),
        danger=action.danger,
        possible=fits,
        back=Link("Back to the schedule", here),
    )


@routes.post(urls.SCHEDULE_ACTION, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Do it."""
    action, schedule, use = _action(context), _schedule(context), context.use.schedules
    back = {BACK: context.back}
    here = context.url(urls.SCHEDULE, back, queue=schedule.queue, name=schedule.name)
    if action.name == "delete":
        use.delete(schedule.queue, schedule.name)
        done = Flash("done", f"Schedule {schedule.name} of {schedule.queue} deleted.")
        return Redirect(context.back or context.url(urls.SCHEDULES), done)
    if action.name == "run":
        made = use.run(schedule.queue, schedule.name)
        if made.outcome is EnqueueOutcome.CREATED and made.id:
            done = Flash("done", f"Schedule {schedule.name} enqueued this task, due now.")
            return Redirect(context.url(urls.TASK, id=made.id), done)
        held = f"Nothing was enqueued: task {made.id} holds the dedupe key."
        return Redirect(here, Flash("failed", held))
    paused = action.name == "pause"
    use.put(schedule.queue, schedule.name, replace(schedule.settings, paused=paused))
    return Redirect(
        here, Flash("done", f"Schedule {schedule.name} {'paused' if paused else 'resumed'}.")
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


def _runs(context: RequestContext, schedule: Schedule) -> Runs:
    if schedule.settings.paused:
        return Runs("", ())
    return runs_of(schedule.settings, context.use.schedules.coming(schedule, SHOWN_RUNS))


def _crumbs(context: RequestContext, schedule: Schedule) -> tuple[Link, ...]:
    return (schedules_crumb(context), queue_link(context, schedule.queue))


def _outcome(context: RequestContext, last: LastRun | None) -> Cell:
    """Return when the last run was, and the state of its task."""
    if last is None:
        return Dim("none yet")
    by_hand = "run by hand" if last.by_hand else ""
    if last.task is None:
        return last.at, Dim(", ".join(filter(None, (by_hand, "its task is no longer kept"))))
    status = last.task.status(context.now)
    reason = last.task.dead_reason if status is Status.DEAD else ""
    text = ", ".join(filter(None, (reason, by_hand)))
    return last.at, Badge(status, text, context.url(urls.TASK, id=last.task.id))


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
        Fact("Lease", "the queue's setting" if keepalive is None else duration_text(keepalive)),
        Fact("Retries", "the queue's setting" if retry is None else formatting.retries(retry)),
        Fact("Created", at=schedule.created_at),
        Fact("Changed", at=schedule.updated_at),
    )
    return tuple(fact for fact in every if fact is not None)


def _expiry(settings: ScheduleSettings) -> str:
    seconds = settings.expires_in_seconds
    if seconds is None:
        return "the queue's setting"
    return f"{duration_text(seconds)} after it is due" if seconds else "never"
