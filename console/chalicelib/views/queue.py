"""One queue: its tasks and how it is doing, and tabs for its settings, schedules and repair."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.queue import Queue
from headrace.domain.task import Status
from headrace.history.listening import OnDuty
from headrace.history.stats import QueueStats
from headrace.ops.scheduling.schedules import Seen

from .. import formatting, urls
from ..cells import Cell, Dim, Note
from ..pages import Page
from ..parts import Empty, Fact, Link, Tab
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from . import action_pages, charting, queue_actions, queue_facts, schedules, spans, task_list
from .columns import Column, Columns, table
from .navigation import crumbs
from .queues import alerts_of, backing_off, limits_of, pause_of, waiting
from .search_box import search_box
from .task_list import TaskQuery

TAB: Final = "tab"


@routes.get(urls.QUEUE, Permission.READ)
def show(context: RequestContext) -> Reply:
    """Show a queue: the tasks that the address asks for, or another tab."""
    queue = context.use.queues.get(context.queue)
    shows = _TABS.get(context.request.param(TAB))
    return _tasks(context, queue) if shows is None else shows(context, queue)


def _page(context: RequestContext, queue: Queue, template: str, **shown: object) -> Page:
    """Return a tab of the page of *queue*."""
    operates = context.allows(Permission.OPERATE, queue.name)
    paused = queue.settings.dequeuing_settings.dequeuing_paused
    return Page(
        template,
        **{
            "title": queue.name,
            "crumbs": crumbs(context),
            "queue": queue,
            "sections": tuple(_sections(context, queue)),
            "paused_by": pause_of(context, queue) if paused else None,
            "pause": queue_actions.pause_form(context) if operates and not paused else None,
            "resume": queue_actions.resume_form(context) if operates and paused else None,
            **shown,
        },  # type: ignore[arg-type]
    )


def _sections(context: RequestContext, queue: Queue) -> Iterator[Tab]:
    """Yield the tabs of the page."""
    now = context.request.param(TAB)
    named = {"": "Tasks", "settings": "Settings", "schedules": "Schedules"}
    if queue.settings.groups is not None:
        named["turns"] = "Turns"
    if context.allows(Permission.OPERATE, queue.name):
        named["repair"] = "Repair"
    for name, text in named.items():
        yield Tab(text, context.url(urls.QUEUE, {TAB: name}, queue=queue.name), name == now)


def _tasks(context: RequestContext, queue: Queue) -> Reply:
    use = context.use
    wanted = TaskQuery(context)
    if wanted.queue not in (None, queue.name) and not wanted.errors:
        return Redirect(context.url(urls.QUEUE, wanted.query(), queue=wanted.queue))
    stats = use.stats.of(queue.name)
    on_duty = use.listening.on_duty_lately()
    lists = context.allows(Permission.LIST, queue.name)
    tasks = task_list.tasks(context, queue, wanted, stats.counts) if lists else None
    return _page(
        context,
        queue,
        "queue.html",
        http_status=400 if wanted.errors else 200,
        tabs=_states(context, stats, wanted),
        as_of=stats.as_of,
        ages={
            "Oldest ready": waiting(stats.age_of_oldest_ready),
            "Oldest in flight": waiting(stats.age_of_oldest_inflight),
        },
        figures=tuple(_figures(queue, stats)),
        charts=charting.drawn(context, stats, on_duty, wanted.query()),
        backing_off=backing_off(context, [queue]).get(queue.name),
        silent=stats.counts[Status.READY] > 0
        and on_duty.silent(queue, stats.rates.dequeued, context.now),
        workers=_workers(context, queue, on_duty) if lists else None,
        alerts=alerts_of(stats.alerts, stats.age_of_oldest_ready),
        actions=action_pages.under_way(context, queue.name),
        search=search_box(context, wanted, tasks["rows"]) if tasks else None,
        tasks=tasks,
    )


def _workers(context: RequestContext, queue: Queue, on_duty: OnDuty) -> Link | None:
    """Return the link to the workers of *queue*; None where it is pushed to a target."""
    if queue.settings.target is not None:
        return None
    workers = on_duty.of(queue.name)
    slots = f", {formatting.count_of(workers.slots, 'slot')}" if workers.count else ""
    busy = ", all busy" if workers.all_busy else ""
    text = f"{formatting.count_of(workers.count, 'worker')}{slots}{busy}"
    return Link(text, context.url(urls.WORKERS, {"q": f"queue:{queue.name}"}))


def _states(context: RequestContext, stats: QueueStats, wanted: TaskQuery) -> tuple[Tab, ...]:
    def url(state: str) -> str:
        # The order is the usual one of the state.
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


def _figures(queue: Queue, stats: QueueStats) -> Iterator[Fact]:
    rates = {
        "Enqueued": stats.rates.enqueued,
        "Started": stats.rates.dequeued,
        "Succeeded": stats.rates.succeeded,
        "Moved on": stats.rates.moved,
        "Failed": stats.rates.failed,
    }
    for name, value in rates.items():
        if value or name != "Moved on":  # most queues never do that
            yield Fact(name, f"{formatting.rate(value)}/s")
    if limits := limits_of(queue):
        yield Fact("Limits", limits)


# -- other tabs ------------------------------------------------------------------------------------


def _tab(context: RequestContext, queue: Queue, **shown: object) -> Reply:
    parts = {"facts": (), "actions": (), "forms": (), "table": None, "empty": None}
    return _page(context, queue, "queue_tab.html", **{**parts, **shown})


def _settings(context: RequestContext, queue: Queue) -> Reply:
    offered = (
        (Permission.ADMINISTER, "Edit settings", urls.SETTINGS, False),
        (Permission.OPERATE, "Purge…", urls.PURGE, True),
        (Permission.ADMINISTER, "Delete queue…", urls.DELETE_QUEUE, True),
    )
    links = tuple(
        Link(text, context.url(url, context.onward, queue=queue.name), danger=danger)
        for needs, text, url, danger in offered
        if context.allows(needs, queue.name)
    )
    return _tab(context, queue, facts=queue_facts.settings(context, queue), actions=links)


def _turns(context: RequestContext, queue: Queue) -> Reply:
    groups = context.use.stats.of(queue.name).groups or ()
    return _tab(
        context,
        queue,
        facts=tuple(map(queue_facts.group, groups)),
        empty=None if groups else Empty("No task waits for its turn."),
    )


def _repair(context: RequestContext, queue: Queue) -> Reply:
    context.require(Permission.OPERATE, queue.name)
    text = "Sets the counters from the tasks in the index. Do this if a number is wrong."
    forms = [(text, queue_actions.recount_form(context))]
    if queue.settings.indexed_fields:
        text = "Builds the index of tags and payload fields again. Searches wait until it is built."
        forms.append((text, queue_actions.reindex_form(context)))
    return _tab(context, queue, forms=forms)


def _schedules(context: RequestContext, queue: Queue) -> Reply:
    found = context.use.schedules.of_queue(queue)

    def coming(seen: Seen) -> Cell:
        if seen.schedule.settings.paused:
            return Note("paused", "warn")
        return seen.next_run_at or Dim("never again")

    def name(seen: Seen) -> Cell:
        url = context.url(urls.SCHEDULE, queue=queue.name, name=seen.schedule.name)
        return Link(seen.schedule.name, url)

    columns: Columns[Seen] = {
        "name": Column("Name", cell=name),
        "when": Column("When", cell=lambda seen: schedules.when(seen.schedule.settings)),
        "next": Column("Next run", cell=coming),
    }
    create = context.url(urls.CREATE_SCHEDULE, {"queue": queue.name})
    may = context.allows(Permission.OPERATE, queue.name)
    command = f"headrace schedule put {queue.name} nightly --cron '0 3 * * *'"
    return _tab(
        context,
        queue,
        table=table("schedules", columns, found) if found else None,
        empty=None if found else Empty("No schedules yet.", command),
        actions=(Link("Create a schedule", create),) if may else (),
    )


_TABS: Final[Mapping[str, Callable[[RequestContext, Queue], Reply]]] = {
    "settings": _settings,
    "schedules": _schedules,
    "turns": _turns,
    "repair": _repair,
}
