"""The search of the top bar: everything with a name or an id, and the tasks of all queues."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.domain import limits, query
from headrace.domain.access import Permission
from headrace.domain.errors import Forbidden, InvalidRequest, NotFound
from headrace.domain.filters import EVERY_TASK, TaskFilter
from headrace.domain.ids import WHOLE_ID_RE, id_fault
from headrace.domain.list_query import ListQuery
from headrace.domain.query import Query
from headrace.domain.query_grammar import term_text, word_text
from headrace.domain.task import Task
from headrace.ops.search.search import SearchStep

from .. import formatting, urls
from ..calls import call_line
from ..cells import Badge, Cell, Clip, Dim, Id, Lines, Tag
from ..pages import Page
from ..parts import Empty, Link, SearchBox, UnfinishedLook
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes
from .columns import Column, Columns, table, times
from .lists import LISTS
from .navigation import queue_link, tag_links, task_url
from .search_box import TASK_KEYS, TASKS, task_terms

_FEW: Final = 5  # of each kind that a name finds
_NAMES: Final = 100  # of queues and of workers that are suggested
_ENOUGH: Final = 250  # tasks after which a search waits for a click


@dataclass(frozen=True, slots=True)
class _Thing:
    """Something that a name finds, or a search that it offers."""

    kind: str
    name: Link
    detail: str = ""


@routes.get(urls.SEARCH, Permission.READ)
def find(context: RequestContext) -> Reply:
    """Go to the thing of that id, else show what has that name and which tasks match."""
    wanted = context.request.param("q").strip()
    there = next(_by_id(context, wanted), None) if wanted else None
    return Redirect(there) if there else _found(context, wanted)


# -- things ----------------------------------------------------------------------------------------


def _by_id(context: RequestContext, wanted: str) -> Iterator[str]:
    """Yield the address of the thing with that id, or of the queue or worker with that name."""
    use, allows = context.use, context.allows
    is_queue = limits.NAME_RE.fullmatch(wanted) and allows(Permission.READ, wanted)
    is_id = limits.TASK_ID_RE.fullmatch(wanted)
    is_action = wanted.startswith("act_") and allows(Permission.OPERATE)
    looks: tuple[tuple[object, Callable[[], object], str], ...] = (
        (is_queue, lambda: use.queues.get(wanted), context.url(urls.QUEUE, queue=wanted)),
        (is_id, lambda: context.task(wanted), context.url(urls.TASK, id=wanted)),
        (is_id, lambda: use.task_batches.get(wanted), context.url(urls.WORKFLOW, id=wanted)),
        (is_action, lambda: use.actions.get(wanted), context.url(urls.ACTION, id=wanted)),
        (
            allows(Permission.LIST),
            lambda: use.workers.one(wanted),
            context.url(urls.WORKER, {"name": wanted}),
        ),
    )
    for possible, look, url in looks:
        with suppress(NotFound, Forbidden):
            if possible:
                look()
                yield url


def _things(context: RequestContext, wanted: str) -> Iterator[_Thing]:
    """Yield what has *wanted* in its name, and the searches that a word offers."""
    use, word = context.use, word_text(wanted)

    def named(
        kind: str, shown: Callable[[Any], Link], look: Callable[..., Any]
    ) -> Iterator[_Thing]:
        of = LISTS[kind]
        if not context.allows(of.needs):
            return
        where: ListQuery[Any] = of.language.read(word)
        page = look(where=where, limit=_FEW)
        yield from (_Thing(of.one.capitalize(), shown(one)) for one in page.shown)
        if page.cursor is not None:
            every = Link(f"More {of.name}", context.url(of.route, {"q": word}))
            yield _Thing(of.one.capitalize(), every)

    yield from named("queues", lambda one: queue_link(context, one.name), use.queues.list)
    yield from named(
        "workers",
        lambda one: Link(
            one.heartbeat.name, context.url(urls.WORKER, {"name": one.heartbeat.name})
        ),
        use.workers.list,
    )
    yield from named(
        "schedules",
        lambda one: Link(one.name, context.url(urls.SCHEDULE, queue=one.queue, name=one.name)),
        use.schedules.list,
    )
    yield from named(
        "keys",
        lambda one: Link(one.name, context.url(urls.KEYS, {"q": term_text("name", one.name)})),
        lambda **asked: use.keys.list(context.by, **asked),
    )
    if limits.TASK_ID_RE.fullmatch(wanted):
        for batch in use.task_batches.list(prefix=wanted, parts=False, limit=_FEW).shown:
            yield _Thing("Workflow", Link(batch.id, context.url(urls.WORKFLOW, id=batch.id)))
    if limits.TASK_ID_RE.fullmatch(wanted) and context.allows(Permission.OPERATE):
        activity = context.url(urls.ACTIVITY, {"q": term_text("id", wanted)})
        yield _Thing("Activity", Link("Look for it in Activity", activity))
    if context.allows(Permission.LIST):
        yield from _searches(context, wanted, word)


def _searches(context: RequestContext, wanted: str, word: str) -> Iterator[_Thing]:
    groups = context.use.errors.seen_by(context.by).groups
    number = sum(wanted.casefold() in f"{one.type}: {one.message}".casefold() for one in groups)
    if number:
        errors = Link(f"Errors with {wanted}", context.url(urls.ERRORS, {"q": word}))
        yield _Thing("Errors", errors, formatting.count_of(number, "message"))
    for key, what, needs in (
        ("error", "error", Permission.LIST),
        ("payload", "payload", Permission.DETAILS),
    ):
        if context.allows(needs):
            url = context.url(urls.SEARCH, {"q": term_text(key, wanted)})
            yield _Thing("Tasks", Link(f"Tasks with {wanted} in the {what}", url), "all queues")


_THINGS: Final[Columns[_Thing]] = {
    "kind": Column("Kind", cell=lambda one: one.kind),
    "name": Column("Name", cell=lambda one: one.name),
    "detail": Column("Detail", cell=lambda one: Dim(one.detail) if one.detail else None),
}


# -- tasks -----------------------------------------------------------------------------------------


def _found(context: RequestContext, wanted: str) -> Reply:
    error, asked = "", Query()
    try:
        asked = query.read(wanted)
    except InvalidRequest as wrong:
        error = wrong.errors[0].message
    if asked.queue is not None:
        return _in_queue(context, wanted, asked)
    if asked.where.needs_payload and not context.allows(Permission.DETAILS):
        error, asked = "names a payload, and payloads are not shown to this key", Query()
    is_name = bool(error) or asked.where == TaskFilter(error=" ".join(wanted.split()))
    named = wanted and (is_name or asked.where.id_prefix is not None)
    things = [*_things(context, wanted)] if named else []
    if is_name:
        asked = Query()  # its terms are those of the searches that it offers
        error = "" if any(one.kind not in ("Errors", "Tasks") for one in things) else error
    step = None
    if asked.where != EVERY_TASK and context.allows(Permission.LIST):
        step = context.use.search.step(context.by, asked.where, cursor=context.cursor)
    return _page(context, wanted, asked, step, things, error)


def _in_queue(context: RequestContext, wanted: str, asked: Query) -> Reply:
    """Go to the list of the queue that is named, with the other terms."""
    queue = asked.queue or ""
    try:
        context.require(Permission.READ, queue)
        context.use.queues.get(queue)
    except (NotFound, Forbidden):
        return _page(context, wanted, Query(), None, [], f"names no queue of yours: {queue}")
    rest = {"q": query.query_text(replace(asked, queue=None))}
    return Redirect(context.url(urls.QUEUE, rest, queue=queue))


def _page(
    context: RequestContext,
    wanted: str,
    asked: Query,
    step: SearchStep | None,
    things: list[_Thing],
    error: str,
) -> Reply:
    def url(text: str, **more: object) -> str:
        return context.url(urls.SEARCH, {"q": text, **more})

    looking = None
    tasks = step.tasks if step else ()
    if step and step.cursor is not None:
        of = "" if step.queues is None else f" of {formatting.number(step.queues)}"
        words = (
            f"{formatting.number(step.found)} found · {formatting.number(step.done)}{of} queues"
            f" searched · {formatting.count_of(step.looked_at, 'task')} read"
        )
        rest = url(wanted, cursor=step.cursor)
        waits = step.found >= _ENOUGH
        looking = UnfinishedLook(step.done, step.queues, words, rest, waits=waits)
    return Page(
        "search.html",
        title="Search",
        http_status=400 if error else 200,
        search=SearchBox(
            action=context.url(urls.SEARCH),
            text=wanted,
            error=error,
            terms=tuple(
                Link(text, url(query.query_text(rest))) for text, rest in query.terms_of(asked)
            ),
            suggestions=tuple(_suggested(context)),
            things="queues",
            example=TASKS,
            keys=("queue:", *TASK_KEYS),
        ),
        things=table("things", _THINGS, things),
        tasks=table("tasks", _task_columns(context), tasks),
        looking=looking,
        shown=f"{formatting.count_of(step.found, 'task')} found in all queues."
        if step and step.found
        else "",
        empty=None if (step and step.found) or looking or error else _empty(asked, things),
    )


def _suggested(context: RequestContext) -> Iterator[str]:
    yield from task_terms(context)
    yield "queue:"
    for queue in context.use.queues.list(limit=_NAMES).shown:
        yield f"queue:{queue.name}"
    if context.allows(Permission.LIST):
        for worker in context.use.workers.list(limit=_NAMES).shown:
            yield term_text("worker", worker.heartbeat.name)


def _empty(asked: Query, things: list[_Thing]) -> Empty | None:
    prefix = asked.where.id_prefix
    if prefix is not None:
        whole = bool(WHOLE_ID_RE.fullmatch(prefix))
        text = f"There is no task {prefix}" if whole else f"No task's id begins with {prefix}"
        why = id_fault(prefix) or "mistyped, or no longer kept"
        return Empty(f"{text} in the queues of this key: {why}.")
    if things:
        return None
    if asked.where == EVERY_TASK:
        return Empty("Type an id, a name, or a query such as state:dead tag:tenant=acme after:1h.")
    return Empty("No task matches, in any queue.")


def _task_columns(context: RequestContext) -> Columns[Task]:
    def title(task: Task) -> Cell:
        call, url = call_line(task.payload), task_url(context, task.id)
        text = f"{call.function}{call.arguments}" if call else ""
        return Lines((Clip(text, url, strong=True), Id(task.id))) if text else Id(task.id, url)

    def error(task: Task) -> Cell:
        text = formatting.latest(task.errors, 300)
        tags = (Tag(one.text, one.url) for one in tag_links(context, task.queue, task.tags))
        return (Clip(text) if text else None, *tags)

    return {
        "task": Column("Task", cell=title),
        "queue": Column("Queue", cell=lambda task: queue_link(context, task.queue)),
        "state": Column(
            "State",
            cell=lambda task: Badge(task.status(context.now), task.dead_reason or ""),
        ),
        "created": times("Created", lambda task: task.created_at),
        "error": Column("Latest error, tags", cell=error, wide=True),
    }
