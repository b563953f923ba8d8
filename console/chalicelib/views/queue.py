"""One queue: how it is doing, its tasks, its settings and schedules."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from headrace.domain.access import Permission
from headrace.domain.queue import Pause, Queue
from headrace.domain.queue_settings import QueueSettings, Threshold
from headrace.domain.settings import Kind, own_settings
from headrace.domain.task import Status
from headrace.domain.task_groups import GroupSettings, OnDead
from headrace.domain.times import duration_text
from headrace.history.listening import OnDuty
from headrace.history.stats import GroupGlance, QueueStats
from headrace.ops.shared.push_status import PushStatus

from .. import formatting, urls
from ..pages import Page
from ..parts import Age, AlertNote, Confirm, Empty, Fact, Link, SearchBox, Tab
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from . import action_pages, charting, queue_actions, schedules, spans, task_list
from .charting import Charts
from .navigation import crumbs
from .queues import alerts_of, limit_words, limits_of, pause_of, waiting
from .search_box import search_box
from .task_list import TaskList, TaskQuery


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One schedule in short."""

    name: str
    url: str
    when: str
    next_run_at: datetime | None
    paused: bool


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
    paused_by: Pause | None
    pause: Confirm | None
    resume: Confirm | None
    recount: Confirm | None
    reindex: Confirm | None
    tabs: tuple[Tab, ...]
    as_of: datetime
    figures: Figures
    charts: Charts
    backing_off: str
    silent: bool
    listening: Link | None
    alerts: tuple[AlertNote, ...]
    actions: tuple[Link, ...]
    search: SearchBox | None
    tasks: TaskList | None
    settings: tuple[Fact, ...]
    groups: tuple[Fact, ...] | None
    setting_actions: tuple[Link, ...]
    schedules: tuple[ScheduleRow, ...]
    create_schedule: str | None
    no_schedules: Empty


@routes.get(urls.QUEUE, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a queue, and a page of the tasks that the address asks for."""
    use = context.use
    queue = use.queues.get(context.queue)
    stats = use.stats.of(queue.name)
    on_duty = use.listening.on_duty_lately()
    lists = context.allows(Permission.LIST, queue.name)
    push = use.push_targets.status(queue)
    wanted = TaskQuery(context)
    if wanted.queue not in (None, queue.name) and not wanted.errors:
        return Redirect(context.url(urls.QUEUE, wanted.query(), queue=wanted.queue))
    tasks = task_list.tasks(context, queue, wanted, stats.counts) if lists else None
    operates = context.allows(Permission.OPERATE, queue.name)
    paused = queue.settings.dequeuing_settings.dequeuing_paused
    return QueuePage(
        title=queue.name,
        http_status=400 if wanted.errors else 200,
        crumbs=crumbs(context),
        name=queue.name,
        description=queue.settings.description,
        paused=paused,
        resume_at=queue.resume_at,
        paused_by=pause_of(context, queue) if paused else None,
        pause=queue_actions.pause_form(context) if operates and not paused else None,
        resume=queue_actions.resume_form(context) if operates and paused else None,
        recount=queue_actions.recount_form(context) if operates else None,
        reindex=queue_actions.reindex_form(context)
        if operates and queue.settings.indexed_fields
        else None,
        tabs=_tabs(context, stats, wanted),
        as_of=stats.as_of,
        figures=Figures(
            waiting(stats.age_of_oldest_ready),
            waiting(stats.age_of_oldest_inflight),
            _rates(stats),
            limits_of(queue),
        ),
        charts=charting.drawn(context, stats, on_duty, wanted.query()),
        backing_off=_backing_off(push),
        silent=stats.counts[Status.READY] > 0
        and on_duty.silent(queue, stats.rates.dequeued, context.now),
        listening=_listening(context, queue, on_duty) if lists else None,
        alerts=alerts_of(stats.alerts, stats.age_of_oldest_ready),
        actions=action_pages.under_way(context, queue.name),
        search=search_box(context, wanted, tasks) if tasks else None,
        tasks=tasks,
        settings=(*_settings(queue), *_target(queue, push), *_told(context, queue)),
        groups=None if stats.groups is None else tuple(map(_group, stats.groups)),
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


def _listening(context: RequestContext, queue: Queue, on_duty: OnDuty) -> Link | None:
    """Return the link to the workers of *queue*; None where it is pushed to a target."""
    if queue.settings.target is not None:
        return None
    workers = on_duty.of(queue.name)
    slots = f", {formatting.count_of(workers.slots, 'slot')}" if workers.count else ""
    busy = ", all busy" if workers.all_busy else ""
    text = f"{formatting.count_of(workers.count, 'worker')}{slots}{busy}"
    return Link(text, context.url(urls.WORKERS, {"q": f"queue:{queue.name}"}))


def _tabs(context: RequestContext, stats: QueueStats, wanted: TaskQuery) -> tuple[Tab, ...]:
    def url(state: str) -> str:
        # The order goes back to what suits the state.
        query = {**wanted.with_state(state), **spans.kept(context)}
        return context.url(urls.QUEUE, query, queue=context.queue)

    every = Tab("All", url(""), not wanted.state, sum(stats.counts.values()))
    cancelled = f"{formatting.number(stats.cancelled)} cancelled" if stats.cancelled else ""
    notes = {Status.DEAD: cancelled}
    return (
        every,
        *(
            Tab(
                status.value.lower(),
                url(status),
                wanted.state == status,
                count,
                status,
                notes.get(status, ""),
            )
            for status, count in stats.counts.items()
        ),
    )


def _setting_actions(context: RequestContext, queue: str) -> tuple[Link, ...]:
    offered = (
        (Permission.ADMINISTER, "Edit settings", urls.SETTINGS, False),
        (Permission.OPERATE, "Purge…", urls.PURGE, True),
        (Permission.ADMINISTER, "Delete queue…", urls.DELETE_QUEUE, True),
    )
    return tuple(
        Link(text, context.url(url, context.onward, queue=queue), danger=danger)
        for needs, text, url, danger in offered
        if context.allows(needs, queue)
    )


def _rates(stats: QueueStats) -> tuple[Fact, ...]:
    rates = stats.rates
    each = (
        ("enqueued", rates.enqueued),
        ("started", rates.dequeued),
        ("succeeded", rates.succeeded),
        ("moved on", rates.moved),
        ("failed", rates.failed),
    )
    return tuple(
        Fact(name, f"{formatting.rate(value)}/s")
        for name, value in each
        if value or name != "moved on"  # most queues never do that
    )


def _group(one: GroupGlance) -> Fact:
    turns = f"{formatting.number(one.turns)} of the next turns"
    rate = f"{formatting.rate(one.dequeued)}/s"
    oldest = f"oldest due for {formatting.duration(round(one.age, 1))}"
    blocked = "" if one.blocked is None else f"; must wait: {one.blocked.why}"
    return Fact(one.group_key or "without a key", f"{turns}, {rate}, {oldest}{blocked}")


def _shares(groups: GroupSettings) -> str:
    more = f", {formatting.number(len(groups.weights))} weighted" if groups.weights else ""
    limit = groups.max_inflight_per_group
    most = f", at most {formatting.number(limit)} of each in flight" if limit else ""
    halts = ", a dead task halts its group" if groups.on_dead is OnDead.HALT else ""
    return f"{groups.mode}{more}{most}{halts}"


def _backing_off(push: PushStatus | None) -> str:
    if push is None or not push.busy:
        return ""
    return (
        f"The target answers {push.busy}: {push.allowed} of {push.most} requests are under way at"
        " once, one more each second. No attempt is used."
    )


def _target(queue: Queue, push: PushStatus | None) -> tuple[Fact, ...]:
    target = queue.settings.target
    if target is None or push is None:
        return ()
    codes = ", ".join(
        f"{code}: {formatting.number(count)}" for code, count in sorted(push.codes.items())
    )
    latency = "none yet"
    if push.p50 is not None and push.p99 is not None:
        latency = f"{formatting.duration(push.p50)}, at 99 % {formatting.duration(push.p99)}"
    return (
        Fact("Target", target.shown),
        Fact("Requests at once", formatting.number(target.max_concurrency)),
        Fact("Time for one", duration_text(target.timeout_in_seconds)),
        Fact("Its headers", ", ".join(target.headers) or "none"),
        Fact("Dispatchers now", formatting.number(push.running)),
        Fact("Answers", codes or "none yet"),
        Fact("Latency", latency),
    )


def _indexed(context: RequestContext, queue: Queue) -> str:
    """Return what tasks are found by in one look, and what will be once it is built."""
    ready = context.use.inspect.indexed(queue)
    return ", ".join(
        field if field in ready else f"{field} (being built)"
        for field in queue.settings.indexed_fields
    )


def _told(context: RequestContext, queue: Queue) -> tuple[Fact, ...]:
    def named(queue: str | None) -> str:
        known = queue is not None and context.allows(Permission.READ, queue)
        return str(queue) if known else "a queue of others"

    facts = []
    if queue.settings.indexed_fields:
        facts.append(Fact("Indexed", _indexed(context, queue), code=True))
    if (on_end := queue.settings.on_end) is not None:
        ends = " and ".join(state.lower() for state in on_end.states)
        facts.append(Fact("Told of ends", f"{named(on_end.queue)}, of those that end {ends}"))
    if (alerts := queue.settings.alerts) is not None:
        limits = ((one, alerts.limit(one)) for one in Threshold)
        when = " or ".join(limit_words(one, limit) for one, limit in limits if limit is not None)
        facts.append(Fact("Told of alerts", f"{named(alerts.queue)}, when {when}"))
    return tuple(facts)


def _own_settings(settings: QueueSettings) -> Iterator[Fact]:
    """Yield what the declared settings say; the description is under the heading."""
    for one in own_settings(QueueSettings):
        value = one.value_in(settings)
        if one.kind is Kind.TEXT:
            if value and one.name != "description":
                yield Fact(one.about.title, value)
        elif not value and one.about.zero:
            yield Fact(one.about.title, one.about.zero)
        else:
            words = duration_text if one.kind is Kind.SECONDS else formatting.number
            yield Fact(one.about.title, words(value))


def _settings(queue: Queue) -> tuple[Fact, ...]:
    settings = queue.settings
    config = settings.dead_letter_queue_config
    kept = duration_text(config.retention_period_in_seconds)
    most = f", at most {formatting.number(config.max_size)}" if config.max_size else ""
    return (
        *_own_settings(settings),
        Fact("Retries", formatting.retries(settings.retry_strategy)),
        Fact("Limits", limits_of(queue) or "none"),
        Fact("Dead are kept", f"{kept}{most}" if config.enable else "no"),
        Fact("High tasks ahead by", duration_text(settings.priority.aging_in_seconds))
        if settings.priority
        else Fact("Priorities", "none"),
        Fact("Groups", _shares(settings.groups) if settings.groups else "none"),
        Fact("Version", formatting.number(queue.version)),
        Fact("Created", at=queue.created_at),
        Fact("Changed", at=queue.updated_at),
    )
