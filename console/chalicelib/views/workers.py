"""Workers: which are alive, late or gone, what they run, and commands to one or several."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.domain import access, limits
from headrace.domain.access import Permission
from headrace.domain.errors import NotFound
from headrace.domain.list_query import EVERY_ROW, ListQuery
from headrace.domain.query_grammar import term_text
from headrace.domain.task import Task
from headrace.domain.times import about
from headrace.domain.worker import (
    FORGOTTEN_AFTER,
    REMEMBERED_FOR,
    Command,
    LiveWorker,
    WorkerStanding,
)
from headrace.ops.search.list_queries import LANGUAGES

from .. import formatting, urls
from ..cells import Cell, Dim, Id, Lines, Meter, Note, Tag
from ..pages import Flash, Page
from ..parts import Age, Empty, Fact, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .columns import Column, Columns, table, times
from .confirm import ask
from .list_page import list_page
from .list_search import ListSearch
from .navigation import crumb, queue_link, task_url

_PAGES: Final = 8  # of workers, that a page reads to count them
_OF_EACH: Final = 3  # tasks that the list shows of each worker
_HOUR: Final = 3_600  # seconds
_GONE: Final = WorkerStanding.GONE
_SHOWN: Final = 5  # workers that a question names
_ASKED: Final = {Command.QUIET: "asked to take no new tasks", Command.STOP: "asked to stop"}
_VERBS: Final = {
    Command.QUIET: (
        "Quiet",
        "takes no new tasks and finishes its running ones, until it is restarted",
    ),
    Command.STOP: ("Stop", "takes no new tasks, finishes its running ones, and exits"),
}
_SILENT: Final = (
    "It has missed heartbeats: it is overloaded, disconnected or dead. Its tasks come back when"
    " their leases expire."
)
_EXPLAINED: Final = (
    "Only workers that send heartbeats are listed; the SDK's workers send one every 30 seconds."
    " Late: two heartbeats missed. Gone: silent for"
    f" {formatting.duration(FORGOTTEN_AFTER.total_seconds())}; listed for"
    f" {formatting.duration(REMEMBERED_FOR.total_seconds())}. Workers that were stopped also show"
    " as gone."
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A worker of the list, with the first of its tasks."""

    worker: LiveWorker
    tasks: Sequence[Task]

    @property
    def name(self) -> str:
        """Its name."""
        return self.worker.heartbeat.name

    @property
    def load(self) -> float:
        """The used part of its concurrency; -1 if it is not known."""
        running = self.worker.heartbeat.running
        return -1.0 if running is None else len(running) / self.worker.heartbeat.concurrency


def _columns(context: RequestContext) -> Columns[_Row]:
    def name(row: _Row) -> Cell:
        link = Link(row.name, context.url(urls.WORKER, {"name": row.name, **context.onward}))
        command = row.worker.command
        return link, Note(_ASKED[command], "warn") if command else None

    def state(row: _Row) -> WorkerStanding:
        return row.worker.standing(context.now)

    def version(row: _Row) -> Cell:
        text = row.worker.heartbeat.version
        return (
            Link(text, context.url(urls.WORKERS, {"q": term_text("version", text)}))
            if text
            else None
        )

    def tasks(row: _Row) -> Cell:
        shown = (
            (Id(task.id, task_url(context, task.id)), _running_for(context, task))
            for task in row.tasks
        )
        rest = len(row.worker.heartbeat.running or ()) - len(row.tasks)
        more = f"+{formatting.number(rest)} more (as reported)" if row.tasks and rest > 0 else ""
        return Lines((*shown, *((Dim(more),) if more else ())))

    return {
        "name": Column("Worker", lambda row: row.name, name),
        "state": Column("State", lambda row: list(WorkerStanding).index(state(row)), state),
        "seen": times("Last seen", lambda row: row.worker.seen_at),
        "host": Column(
            "Host",
            lambda row: (row.worker.heartbeat.host, row.name),
            lambda row: row.worker.heartbeat.host,
        ),
        "version": Column("Version", lambda row: (row.worker.heartbeat.version, row.name), version),
        "queues": Column("Queues", cell=lambda row: _queues(context, row.worker)),
        "load": Column(
            "Load", lambda row: row.load, lambda row: _load(context, row.worker), falling=True
        ),
        "tasks": Column("Running", cell=tasks),
    }


@routes.get(urls.WORKERS, Permission.LIST)
def show(context: RequestContext) -> Reply:
    """Show a page of workers, with their tasks."""
    wanted: ListSearch[LiveWorker] = ListSearch(context, "workers")
    workers = context.use.workers
    page = wanted.look(
        lambda where, limit, cursor: workers.list(
            where=where, silent=True, limit=limit, cursor=cursor
        )
    )
    tasks = workers.tasks(page.shown, of_each=_OF_EACH)
    every, more = page.shown, False
    if not wanted.errors and not wanted.whole:
        every, more = remembered(context, wanted.where)
    return list_page(
        context,
        wanted,
        page.shown,
        _columns(context),
        [_Row(worker, tasks[worker.heartbeat.name]) for worker in page.shown],
        title="Workers",
        usual="name",
        empty=Empty("No worker has sent a heartbeat lately.", "headrace work shop.tasks:app"),
        none_fits=_no_workers_of(wanted.where.named.get("queue")),
        summary=_summary(context, every, more=more),
        note=_EXPLAINED,
        buttons=_bulk(context, wanted, every),
    )


def _summary(context: RequestContext, workers: Sequence[LiveWorker], *, more: bool) -> str:
    """Return how many workers there are of each standing, and how far asked ones have drained."""
    standings = Counter(worker.standing(context.now) for worker in workers)
    least = "at least " if more else ""
    counts = ", ".join(
        f"{least}{formatting.number(standings[one])} {one}"
        for one in WorkerStanding
        if standings[one]
    )
    return ". ".join(filter(None, (counts, _drain(context, workers))))


def _drain(context: RequestContext, workers: Sequence[LiveWorker]) -> str:
    """Return the running tasks of workers that have a command, and an estimate of their end."""
    asked = [one for one in workers if one.command and one.standing(context.now) is not _GONE]
    if not asked:
        return ""
    found = context.use.workers.tasks(asked, of_each=limits.WORKER_TASKS)
    tasks = [task for of_one in found.values() for task in of_one]
    who = f"{formatting.count_of(len(asked), 'worker')} asked to stop or to take no new tasks"
    if not tasks:
        return f"{who}: no running tasks"
    left = [_left(context, task) for task in tasks]
    known = [one for one in left if one is not None]
    last = "the last longer than usual" if len(known) < len(left) else (
        f"the last about {about(max(known))}"
    )  # fmt: skip
    return f"{who}: {formatting.count_of(len(tasks), 'task')} still running, {last}"


def _left(context: RequestContext, task: Task) -> float | None:
    """Return how long *task* may still run by the last hour of its queue, in seconds.

    None if it runs for longer than 99 % of that hour's attempts, or there were none.
    """
    series = context.use.stats.metrics(task.queue, step_seconds=_HOUR)
    usual = [one.activity.run.percentile(0.99) for one in series.points if one.activity]
    most = max((one for one in usual if one is not None), default=None)
    ran = (context.now - (task.started_at or context.now)).total_seconds()
    return most - ran if most is not None and most > ran else None


def _bulk(
    context: RequestContext, wanted: ListSearch[LiveWorker], workers: Sequence[LiveWorker]
) -> tuple[Link, ...]:
    """Return the links that ask all workers of a query for something; none without a query."""
    if not wanted.where.terms or wanted.errors:
        return ()
    asks = {"q": wanted.text, BACK: context.here}
    return tuple(
        Link(
            f"{_VERBS[command][0]} {formatting.count_of(number, 'worker')}…",
            context.url(urls.WORKER_ACTION, asks, action=command.value),
            danger=command is Command.STOP,
        )
        for command in Command
        if (number := sum(command in _offered(context, worker) for worker in workers))
    )


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
    """Show a worker, and all its tasks."""
    name = context.request.param("name")
    if not name:
        return Redirect(context.url(urls.WORKERS))
    worker = context.use.workers.one(name)
    [tasks] = context.use.workers.tasks([worker], of_each=limits.WORKER_TASKS).values()
    heartbeat, standing = worker.heartbeat, worker.standing(context.now)
    asked = Note(_ASKED[worker.command], "warn") if worker.command else None
    rest = len(heartbeat.running or ()) - len(tasks)
    return Page(
        "worker.html",
        title=heartbeat.name,
        crumbs=_crumbs(context),
        name=heartbeat.name,
        status=(standing, Dim("last seen"), worker.seen_at, asked),
        drain=_drain(context, [worker]),
        notice=_SILENT if standing is not WorkerStanding.ALIVE and worker.command is None else "",
        actions=tuple(
            Link(
                f"{_VERBS[command][0]}…",
                context.url(
                    urls.WORKER_ACTION,
                    {"name": heartbeat.name, BACK: context.back},
                    action=command.value,
                ),
                danger=command is Command.STOP,
            )
            for command in _offered(context, worker)
        ),
        load=_load(context, worker) if heartbeat.running is not None else None,
        facts=(
            Fact("Host", heartbeat.host or "unknown"),
            Fact("Version", heartbeat.version or "not reported"),
            Fact("Started", at=heartbeat.started_at),
            Fact("Max concurrent tasks", formatting.number(heartbeat.concurrency)),
        ),
        queues=_queues(context, worker),
        tasks=table("running tasks", _task_columns(context), tasks),
        more=f"+{formatting.number(rest)} more (as reported)" if tasks and rest > 0 else "",
        idle="Idle"
        if heartbeat.running is not None
        else "Only keys for all of its queues see its tasks.",
    )


@routes.get(urls.WORKER_ACTION, Permission.OPERATE)
def ask_command(context: RequestContext) -> Reply:
    """Ask whether to give a command to one worker, or to all workers of a query."""
    command = _command(context)
    name, query = context.request.param("name"), context.request.param("q")
    if name:
        found: tuple[LiveWorker, ...] = (context.use.workers.one(name),)
        if not _may_ask(context, found[0]):
            raise access.not_all_queues_of("worker", name)
        way = (*_crumbs(context), Link(name, _url(context, name)))
    else:
        every, _ = remembered(context, LANGUAGES["workers"].read(query))
        found = tuple(one for one in every if command in _offered(context, one))[: limits.LIST_PAGE]
        way = _crumbs(context)
    verb, detail = _VERBS[command]
    who = name or formatting.count_of(len(found), "worker")
    names = [one.heartbeat.name for one in found]
    more = f", +{formatting.number(len(names) - _SHOWN)} more" if len(names) > _SHOWN else ""
    listed = "" if name else f" {', '.join(names[:_SHOWN])}{more}."
    subject = "The worker" if name else "Each worker"
    return ask(
        way,
        question=f"{verb} {who}?",
        detail=f"{subject} {detail}. It gets the command with its next heartbeat, within 30"
        f" seconds.{listed}",
        action=context.url(urls.WORKER_ACTION, action=command.value),
        button=f"{verb} {'this worker' if name else who}",
        hidden=tuple(Hidden("name", one) for one in names),
        danger=command is Command.STOP,
        possible=bool(found),
        back=Link("Back to the workers", context.back or way[-1].url),
    )


@routes.post(urls.WORKER_ACTION, Permission.OPERATE)
def give_command(context: RequestContext) -> Reply:
    """Leave a command for each worker that the form names."""
    command, names = _command(context), context.request.form.get("name", ())[: limits.LIST_PAGE]
    if len(names) == 1:
        worker = context.use.workers.ask(names[0], command)
        done = f"{names[0]} is {_ASKED[worker.command or command]}."
        return Redirect(context.back or _url(context, names[0]), Flash("done", done))
    silent = 0
    for name in names:
        try:
            context.use.workers.ask(name, command)
        except NotFound:
            silent += 1
    asked = f"{formatting.count_of(len(names) - silent, 'worker')} {_ASKED[command]}."
    skipped = f" {formatting.number(silent)} skipped: silent by now." if silent else ""
    back = context.back or context.url(urls.WORKERS)
    return Redirect(back, Flash("done" if len(names) > silent else "failed", f"{asked}{skipped}"))


def _url(context: RequestContext, name: str) -> str:
    return context.url(urls.WORKER, {"name": name, BACK: context.back})


def _command(context: RequestContext) -> Command:
    asked = context.request.names["action"]
    try:
        return Command(asked)
    except ValueError:
        message = f"a worker cannot be asked to {asked[:40]}"
        raise NotFound(message) from None


def _crumbs(context: RequestContext) -> tuple[Link, ...]:
    return (crumb(context, "Workers", urls.WORKERS),)


def _offered(context: RequestContext, worker: LiveWorker) -> tuple[Command, ...]:
    """Return the commands that this visitor can still give to *worker*."""
    if worker.standing(context.now) is WorkerStanding.GONE or not _may_ask(context, worker):
        return ()
    left = {None: (Command.QUIET, Command.STOP), Command.QUIET: (Command.STOP,)}
    return left.get(worker.command, ())


def _may_ask(context: RequestContext, worker: LiveWorker) -> bool:
    if worker.heartbeat.running is None:  # it has others' queues too
        return False
    return all(context.allows(Permission.OPERATE, queue) for queue in worker.heartbeat.queues)


def _queues(context: RequestContext, worker: LiveWorker) -> Cell:
    links = (queue_link(context, queue) for queue in worker.heartbeat.queues)
    return tuple(Tag(link.text, link.url) for link in links)


def _load(context: RequestContext, worker: LiveWorker) -> Cell:
    running, most = worker.heartbeat.running, worker.heartbeat.concurrency
    if running is None:
        return Dim("not shown")
    used = 0 if worker.standing(context.now) is WorkerStanding.GONE else len(running)
    return Meter(used, most, f"{formatting.number(used)} of {formatting.number(most)} in use")


def _running_for(context: RequestContext, task: Task) -> Age:
    started = task.started_at or context.now
    return Age(max(0.0, (context.now - started).total_seconds()))


def _task_columns(context: RequestContext) -> Columns[Task]:
    return {
        "task": Column("Task", cell=lambda task: Id(task.id, task_url(context, task.id))),
        "queue": Column("Queue", cell=lambda task: queue_link(context, task.queue)),
        "for": Column("Running for", cell=lambda task: _running_for(context, task), number=True),
        "attempts": Column("Attempts", cell=lambda task: task.attempts, number=True),
    }


def _no_workers_of(queue: str | None) -> Empty | None:
    if queue is None:
        return None
    return Empty(f"No workers for {queue}.", "headrace work shop.tasks:app")
