"""One queue: how it is doing, its tasks, its settings; pause and resume."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from console.chalicelib import formatting, urls
from console.chalicelib.charts import Chart
from console.chalicelib.forms import Errors
from console.chalicelib.pages import Flash, Page
from console.chalicelib.parts import (
    Age,
    Button,
    Choice,
    Confirm,
    Empty,
    Fact,
    Field,
    FilterForm,
    Link,
    Option,
    Pager,
    Tab,
)
from console.chalicelib.request_context import RequestContext
from console.chalicelib.routes import Redirect, Reply, Routes
from console.chalicelib.views import charting, filtering, recounting, schedules
from console.chalicelib.views.acting import ACTIONS
from console.chalicelib.views.filtering import TaskQuery
from console.chalicelib.views.queues import crumb, limits_of, waiting
from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.queue import Queue
from headrace.domain.task import State, Status, Task
from headrace.history.stats import QueueStats

routes: Final = Routes()
_LOOK_AT: Final = 750  # tasks, where few fit: a page must not make one wait
_PAUSES: Final = (
    ("", "until someone resumes it"),
    ("900", "for 15 minutes"),
    ("3600", "for an hour"),
    ("14400", "for 4 hours"),
    ("86400", "for a day"),
)
_TIMES: Final = {
    "": "When",
    "SCHEDULED": "Due",
    "READY": "Due since",
    "INFLIGHT": "Lease granted until",
    "SUCCEEDED": "Succeeded",
    "DEAD": "Died",
}
_MEANS: Final = {
    State.ENQUEUED: "due",
    State.INFLIGHT: "lease granted until",
    State.SUCCEEDED: "succeeded",
    State.DEAD: "died",
}


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


@routes.get(urls.QUEUE, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a queue, and a page of the tasks that the address asks for."""
    use = context.use
    queue = use.queues.get(context.queue)
    stats = use.stats.of(queue.name)
    metrics = charting.wanted_metrics(context, queue.name)
    lists = context.allows(Permission.LIST, queue.name)
    wanted = TaskQuery(context)
    tasks = _tasks(context, queue, wanted) if lists else None
    operates = context.allows(Permission.OPERATE, queue.name)
    paused = queue.settings.dequeuing_settings.dequeuing_paused
    return QueuePage(
        title=queue.name,
        http_status=400 if wanted.errors else 200,
        crumbs=(crumb(context),),
        name=queue.name,
        description=queue.settings.description,
        paused=paused,
        resume_at=queue.resume_at,
        pause=_pause_form(context) if operates and not paused else None,
        resume=_resume_form(context) if operates and paused else None,
        recount=recounting.form(context, "Count anew") if operates else None,
        tabs=_tabs(context, stats, wanted),
        as_of=stats.as_of,
        figures=Figures(
            waiting(stats.age_of_oldest_ready),
            waiting(stats.age_of_oldest_inflight),
            _rates(stats),
            limits_of(queue),
        ),
        spans=charting.spans(context, wanted.query()),
        charts=charting.charts_of(metrics, stats),
        gaps=charting.gaps(metrics),
        filter=filtering.form(context, wanted) if lists else None,
        tasks=tasks,
        settings=_settings(queue),
        setting_actions=_setting_actions(context, queue.name),
        schedules=tuple(
            ScheduleRow(
                seen.schedule.name,
                context.url(urls.SCHEDULE, queue=queue.name, name=seen.schedule.name),
                schedules.when(seen.schedule.settings),
                seen.next_run_at,
                seen.schedule.settings.paused,
            )
            for seen in use.schedules.of_queue(queue)
        ),
        create_schedule=context.url(urls.CREATE_SCHEDULE, {"queue": queue.name})
        if operates
        else None,
        no_schedules=Empty(
            "Schedules would be here.",
            f"headrace schedule put {queue.name} nightly --cron '0 3 * * *'",
        ),
    )


@routes.post(urls.PAUSE, Permission.OPERATE)
def pause(context: RequestContext) -> Reply:
    """Stop deliveries, for good or for a time."""
    errors = Errors()
    seconds = errors.whole("resume_in", context.request.given("resume_in"), limits.PAUSE_SECONDS)
    if errors:
        raise InvalidRequest(f"resume_in {errors.of('resume_in')}")
    context.use.queues.pause(context.queue, resume_in_seconds=seconds)
    until = f" It resumes by itself in {formatting.duration(seconds)}." if seconds else ""
    done = Flash("done", f"Deliveries of {context.queue} are paused.{until}")
    return Redirect(context.url(urls.QUEUE, queue=context.queue), done)


@routes.post(urls.RESUME, Permission.OPERATE)
def resume(context: RequestContext) -> Reply:
    """Let deliveries go on."""
    context.use.queues.resume(context.queue)
    done = Flash("done", f"Deliveries of {context.queue} go on.")
    return Redirect(context.url(urls.QUEUE, queue=context.queue), done)


def _pause_form(context: RequestContext) -> Confirm:
    options = tuple(Option(value, text, value == "3600") for value, text in _PAUSES)
    field = Field("resume_in", "Pause deliveries", "3600", "select", options=options)
    return Confirm(
        action=context.url(urls.PAUSE, queue=context.queue),
        button="Pause",
        back="",
        fields=(field,),
    )


def _resume_form(context: RequestContext) -> Confirm:
    return Confirm(
        action=context.url(urls.RESUME, queue=context.queue), button="Resume deliveries", back=""
    )


def _tabs(context: RequestContext, stats: QueueStats, wanted: TaskQuery) -> tuple[Tab, ...]:
    def url(state: str) -> str:
        # The order goes back to what suits the state.
        return context.url(urls.QUEUE, wanted.query(state=state, order=""), queue=context.queue)

    every = Tab("All", url(""), not wanted.state, sum(stats.counts.values()))
    return (
        every,
        *(
            Tab(status.value.lower(), url(status), wanted.state == status, count, status)
            for status, count in stats.counts.items()
        ),
    )


def _tasks(context: RequestContext, queue: Queue, wanted: TaskQuery) -> TaskList:
    rows: tuple[TaskRow, ...] = ()
    cursor = None
    looked = _looked_before(context)
    if not wanted.errors:
        page = context.use.inspect.list(
            queue.name,
            wanted.where,
            descending=wanted.descending,
            limit=wanted.limit,
            cursor=context.request.param("cursor") or None,
            look_at=_LOOK_AT,
        )
        means = {} if wanted.state in _TIMES and wanted.state else _MEANS
        rows = tuple(_row(context, task, means) for task in page.tasks)
        cursor = page.cursor
        looked += page.looked_at
    operates = context.allows(Permission.OPERATE, queue.name)
    fits = [each for each in ACTIONS.values() if each.takes(wanted.state)]
    more = context.url(urls.QUEUE, wanted.query(cursor=cursor, looked=looked), queue=queue.name)
    so_far = f" found, {formatting.count_of(looked, 'task')} looked at" if wanted.narrowed else ""
    return TaskList(
        rows=rows,
        time_heading=_TIMES.get(wanted.state, "When"),
        select=context.url(urls.SELECTED, queue=queue.name) if operates else None,
        actions=tuple(Choice(each.name, f"{each.verb}…", each.danger) for each in fits),
        pager=Pager(
            shown=f"{formatting.count_of(len(rows), 'task')}{so_far}" if rows else "",
            first=context.url(urls.QUEUE, wanted.query(), queue=queue.name)
            if context.request.param("cursor")
            else None,
            next=more if cursor else None,
        ),
        empty=_empty(queue.name, wanted, looked if cursor is not None else None),
        matching=context.url(urls.MATCHING, wanted.query(), queue=queue.name)
        if operates and (rows or cursor)
        else None,
        matching_actions=tuple(
            Choice(each.name, f"{formatting.upon(each.verb, 'all that match')}…", each.danger)
            for each in fits
        ),
    )


def _looked_before(context: RequestContext) -> int:
    """Return how many tasks the pages before this one looked at, as its address says."""
    given = context.request.param("looked")
    return int(given) if given.isascii() and given.isdigit() and len(given) <= 9 else 0  # noqa: PLR2004  digits enough


def _setting_actions(context: RequestContext, queue: str) -> tuple[Button, ...]:
    offered = (
        (Permission.ADMINISTER, "Edit settings", urls.SETTINGS, False),
        (Permission.OPERATE, "Purge…", urls.PURGE, True),
        (Permission.ADMINISTER, "Delete queue…", urls.DELETE_QUEUE, True),
    )
    return tuple(
        Button(text, context.url(url, queue=queue), danger)
        for needs, text, url, danger in offered
        if context.allows(needs, queue)
    )


def _row(context: RequestContext, task: Task, means: Mapping[State, str]) -> TaskRow:
    """Return a row; *means* says what its time is, where the heading does not."""
    last = task.errors[-1] if task.errors else None
    message = ": ".join(filter(None, (last.type, last.message))) if last else ""
    return TaskRow(
        id=task.id,
        url=context.url(urls.TASK, id=task.id),
        status=task.status(context.now),
        dead_reason=task.dead_reason or "",
        at=task.scheduled_at,
        at_means=means.get(task.state, ""),
        attempts=task.attempts,
        worker=task.worker or "",
        tags=tuple(
            Link(f"{key}={value}", _tagged(context, task, key, value))
            for key, value in sorted(task.tags.items())
        ),
        error=message[:300],
        age=task.created_at,
    )


def _tagged(context: RequestContext, task: Task, key: str, value: str) -> str:
    query = {"state": context.request.param("state"), "tag": f"{key}={value}"}
    return context.url(urls.QUEUE, query, queue=task.queue)


def _empty(queue: str, wanted: TaskQuery, looked: int | None) -> Empty:
    """Return the text for no tasks; *looked* at so many and there are more, None for no more."""
    if looked is not None:
        so_far = formatting.count_of(looked, "task")
        return Empty(f"Nothing fits among the {so_far} looked at so far. The next page goes on.")
    if wanted.errors:
        return Empty("Nothing was looked for: something above is not right.")
    if wanted.narrowed:
        return Empty("No task fits this filter.")
    if wanted.state:
        return Empty(f"No task of {queue} is {wanted.state.lower()} now.")
    return Empty(
        "Tasks would be here. None is kept now.",
        f'headrace enqueue {queue} \'{{"hello": "world"}}\'',
    )


def _rates(stats: QueueStats) -> tuple[Fact, ...]:
    rates = stats.rates
    each = (
        ("enqueued", rates.enqueued),
        ("started", rates.dequeued),
        ("succeeded", rates.succeeded),
        ("failed", rates.failed),
    )
    return tuple(Fact(name, f"{formatting.rate(value)}/s") for name, value in each)


def _settings(queue: Queue) -> tuple[Fact, ...]:
    settings = queue.settings
    config = settings.dead_letter_queue_config
    kept = formatting.duration(config.retention_period_in_seconds)
    most = f", at most {formatting.number(config.max_size)}" if config.max_size else ""
    history = settings.history_retention_in_seconds
    expires = settings.expires_in_seconds
    return (
        Fact("Lease", formatting.duration(settings.keepalive_timeout_in_seconds)),
        Fact("Retries", formatting.retries(settings.retry_strategy)),
        Fact("Expires", f"{formatting.duration(expires)} after it is due" if expires else "never"),
        Fact("Limits", limits_of(queue) or "none"),
        Fact("Dead are kept", f"{kept}{most}" if config.enable else "no"),
        Fact("Succeeded are kept", formatting.duration(history) if history else "no"),
        Fact("Shards", formatting.number(settings.shards)),
        Fact("Version", formatting.number(queue.version)),
        Fact("Created", at=queue.created_at),
        Fact("Changed", at=queue.updated_at),
    )
