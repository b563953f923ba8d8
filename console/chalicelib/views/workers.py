"""Workers: who is alive, late or gone, what they are at, and what they are asked to do."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from headrace.domain import access, limits
from headrace.domain.access import Permission
from headrace.domain.errors import NotFound
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.task import Task
from headrace.domain.worker import (
    FORGOTTEN_AFTER,
    REMEMBERED_FOR,
    Command,
    LiveWorker,
    WorkerStanding,
)
from headrace.ops.shared.paging import Found

from .. import formatting, urls
from ..pages import Flash, Page
from ..parts import Age, Empty, Fact, Heading, Hidden, Link, Pager, SearchBox
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .columns import Column, Columns, times
from .confirm import ConfirmPage, Question, ask
from .list_search import ListSearch
from .navigation import crumb, queue_link, task_url
from .search_box import list_box

_PAGES: Final = 8  # of workers, that a page reads to count them
_OF_EACH: Final = 3  # tasks that the list shows of each worker
_ASKED: Final = {Command.QUIET: "asked to take no more", Command.STOP: "asked to stop"}
_VERBS: Final = {
    Command.QUIET: (
        "Quiet",
        "It takes no more tasks and goes on with those it has, until it is started anew.",
    ),
    Command.STOP: (
        "Stop",
        "It takes no more tasks, lets those that run end, and ends.",
    ),
}
_SILENT: Final = (
    "It has missed heartbeats: it is busy beyond measure, cut off or dead. Its tasks come back when"
    " their leases end."
)
_EXPLAINED: Final = (
    "Shown is who sends heartbeats, as the SDK's workers do every 30 seconds. Late is who has"
    f" missed two, gone who is silent for {formatting.duration(FORGOTTEN_AFTER.total_seconds())};"
    f" the gone are shown for {formatting.duration(REMEMBERED_FOR.total_seconds())}. A worker that"
    " was told to end looks gone too."
)


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """How many tasks a worker is at, of how many at a time."""

    running: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class AtWork:
    """A task that a worker is at, and for how long."""

    id: str
    url: str
    queue: Link
    age: Age
    attempts: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker; ``load`` is None where the visitor may not know it."""

    name: str
    url: str
    standing: WorkerStanding
    seen_at: datetime
    asked: str
    host: str
    version: str
    queues: tuple[Link, ...]
    load: WorkerLoad | None
    tasks: tuple[AtWork, ...]
    more: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPage(Page):
    """Workers by name."""

    template: ClassVar[str] = "workers.html"
    search: SearchBox
    summary: str
    headings: tuple[Heading, ...]
    rows: tuple[WorkerRow, ...]
    pager: Pager
    empty: Empty
    explained: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPage(Page):
    """One worker."""

    template: ClassVar[str] = "worker.html"
    name: str
    standing: WorkerStanding
    seen_at: datetime
    asked: str
    notice: str
    actions: tuple[Link, ...]
    load: WorkerLoad | None
    facts: tuple[Fact, ...]
    queues: tuple[Link, ...]
    tasks: tuple[AtWork, ...]
    more: str
    idle: str


def _load(row: WorkerRow) -> float:
    return row.load.running / row.load.concurrency if row.load else -1.0


COLUMNS: Final[Columns[WorkerRow]] = {
    "name": Column("Worker", lambda row: row.name),
    "state": Column("State", lambda row: list(WorkerStanding).index(row.standing)),
    "seen": times("Heard of", lambda row: row.seen_at),
    "host": Column("Host", lambda row: (row.host, row.name)),
    "version": Column("Version", lambda row: (row.version, row.name)),
    "queues": Column("Queues"),
    "load": Column("Load", _load, falling=True),
    "tasks": Column("At work on"),
}


@routes.get(urls.WORKERS, Permission.LIST)
def show(context: RequestContext) -> Reply:
    """Show a page of workers, with what they are at."""
    wanted: ListSearch[LiveWorker] = ListSearch(context, "workers")
    workers = context.use.workers
    page = wanted.look(
        lambda where, limit, cursor: workers.list(
            where=where, silent=True, limit=limit, cursor=cursor
        )
    )
    tasks = workers.tasks(page.shown, of_each=_OF_EACH)
    rows = [_row(context, worker, tasks[worker.heartbeat.name]) for worker in page.shown]
    standings, more = _standings(context, wanted, page)
    return WorkersPage(
        title="Workers",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        summary=", ".join(
            f"{'at least ' if more else ''}{formatting.number(standings[one])} {one}"
            for one in WorkerStanding
            if standings[one]
        ),
        headings=wanted.headings(COLUMNS, "name"),
        rows=wanted.rows(COLUMNS, rows),
        pager=wanted.pager(len(rows)),
        empty=wanted.empty(_NONE, _nobody_listens(wanted.where.named.get("queue"))),
        explained=_EXPLAINED,
    )


def _standings(
    context: RequestContext, wanted: ListSearch[LiveWorker], page: Found[LiveWorker]
) -> tuple[Counter[WorkerStanding], bool]:
    """Count all workers of the list by their standing; True: there are more than are counted."""
    shown, more = page.shown, False
    if not wanted.errors and not wanted.whole:
        shown, more = remembered(context, wanted.where)
    return Counter(worker.standing(context.now) for worker in shown), more


def remembered(
    context: RequestContext, where: ListQuery[LiveWorker] = EVERY_ROW
) -> tuple[tuple[LiveWorker, ...], bool]:
    """Return the workers of all pages, and whether there are more than a page has time for."""
    found: list[LiveWorker] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = context.use.workers.list(
            where=where, silent=True, limit=limits.LIST_PAGE, cursor=cursor
        )
        found += page.shown
        cursor = page.cursor
        if cursor is None:
            break
    return tuple(found), cursor is not None


@routes.get(urls.WORKER, Permission.LIST)
def show_one(context: RequestContext) -> Reply:
    """Show a worker, and all that it is at."""
    name = context.request.param("name")
    if not name:
        return Redirect(context.url(urls.WORKERS))
    worker = _worker(context, name)
    [tasks] = context.use.workers.tasks([worker], of_each=limits.WORKER_TASKS).values()
    heartbeat, standing = worker.heartbeat, worker.standing(context.now)
    row = _row(context, worker, tasks)
    hidden = heartbeat.running is None
    return WorkerPage(
        title=heartbeat.name,
        crumbs=_crumbs(context),
        name=heartbeat.name,
        standing=standing,
        seen_at=worker.seen_at,
        asked=row.asked,
        notice=_SILENT if standing is not WorkerStanding.ALIVE and worker.command is None else "",
        actions=_actions(context, worker),
        load=row.load,
        facts=(
            Fact("Host", row.host or "not known"),
            Fact("Version", row.version or "not told"),
            Fact("Since", at=heartbeat.started_at),
            Fact("Tasks at a time", formatting.number(heartbeat.concurrency)),
        ),
        queues=row.queues,
        tasks=row.tasks,
        more=row.more,
        idle="What it is at is shown to keys for all of its queues."
        if hidden
        else "It is at nothing now.",
    )


@routes.get(urls.WORKER_ACTION, Permission.OPERATE)
def ask_command(context: RequestContext) -> ConfirmPage:
    """Say what a command does, and ask whether to give it."""
    command, worker = _command(context), _worker(context, context.request.param("name"))
    name = worker.heartbeat.name
    if not _may_ask(context, worker):
        raise access.not_all_queues_of("worker", name)
    verb, detail = _VERBS[command]
    return ask(
        Question(
            question=f"{verb} {name}?",
            detail=f"{detail} It hears that with its next heartbeat, within 30 seconds.",
            action=context.url(urls.WORKER_ACTION, action=command.value),
            button=f"{verb} this worker",
            hidden=(Hidden("name", name),),
            danger=command is Command.STOP,
        ),
        (*_crumbs(context), Link(name, _url(context, name))),
    )


@routes.post(urls.WORKER_ACTION, Permission.OPERATE)
def give_command(context: RequestContext) -> Reply:
    """Leave a command for a worker."""
    command, name = _command(context), context.request.given("name")
    worker = context.use.workers.ask(name, command)
    done = f"{worker.heartbeat.name} is {_ASKED[worker.command or command]}."
    return Redirect(_url(context, worker.heartbeat.name), Flash("done", done))


def _url(context: RequestContext, name: str) -> str:
    return context.url(urls.WORKER, {"name": name, BACK: context.back})


def _command(context: RequestContext) -> Command:
    asked = context.request.names["action"]
    try:
        return Command(asked)
    except ValueError:
        message = f"a worker cannot be asked to {asked[:40]}"
        raise NotFound(message) from None


def _worker(context: RequestContext, name: str) -> LiveWorker:
    return context.use.workers.one(name)


def _crumbs(context: RequestContext) -> tuple[Link, ...]:
    return (crumb(context, "Workers", urls.WORKERS),)


def _actions(context: RequestContext, worker: LiveWorker) -> tuple[Link, ...]:
    """Return what it can still be asked by this visitor."""
    if worker.standing(context.now) is WorkerStanding.GONE or not _may_ask(context, worker):
        return ()
    name = {"name": worker.heartbeat.name, BACK: context.back}
    left = {None: (Command.QUIET, Command.STOP), Command.QUIET: (Command.STOP,)}
    return tuple(
        Link(
            f"{_VERBS[command][0]}…",
            context.url(urls.WORKER_ACTION, name, action=command.value),
            danger=command is Command.STOP,
        )
        for command in left.get(worker.command, ())
    )


def _may_ask(context: RequestContext, worker: LiveWorker) -> bool:
    if worker.heartbeat.running is None:  # it has others' queues too
        return False
    return all(context.allows(Permission.OPERATE, queue) for queue in worker.heartbeat.queues)


def _row(context: RequestContext, worker: LiveWorker, tasks: Sequence[Task]) -> WorkerRow:
    heartbeat, now = worker.heartbeat, context.now
    standing = worker.standing(now)
    running = heartbeat.running
    present = standing is not WorkerStanding.GONE
    rest = len(running or ()) - len(tasks)
    return WorkerRow(
        name=heartbeat.name,
        url=context.url(urls.WORKER, {"name": heartbeat.name, **context.onward}),
        standing=standing,
        seen_at=worker.seen_at,
        asked=_ASKED[worker.command] if worker.command else "",
        host=heartbeat.host,
        version=heartbeat.version,
        queues=tuple(queue_link(context, queue) for queue in heartbeat.queues),
        load=None
        if running is None
        else WorkerLoad(len(running) if present else 0, heartbeat.concurrency),
        tasks=tuple(_at_work(context, task) for task in tasks),
        more=f"and {formatting.number(rest)} more, as it said" if tasks and rest > 0 else "",
    )


def _at_work(context: RequestContext, task: Task) -> AtWork:
    started = task.started_at or context.now
    return AtWork(
        task.id,
        task_url(context, task.id),
        queue_link(context, task.queue),
        Age(max(0.0, (context.now - started).total_seconds())),
        task.attempts,
    )


_NONE: Final = Empty(
    "Workers would be here, with what they are at. None has sent a heartbeat lately.",
    "headrace work shop.tasks:app",
)


def _nobody_listens(queue: str | None) -> Empty | None:
    if queue is None:
        return None
    return Empty(f"No worker says that it listens to {queue}.", "headrace work shop.tasks:app")
