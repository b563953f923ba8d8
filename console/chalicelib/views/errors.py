"""The errors of all queues: by type and function, with the messages beneath."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import TaskFilter
from headrace.domain.fingerprints import FINGERPRINT_RE, blanked
from headrace.domain.list_query import called_function
from headrace.domain.operate import BulkAction
from headrace.domain.query import Query, query_text
from headrace.domain.task import Task
from headrace.history.errors import ErrorGroup, Errors
from headrace.ops.search.list_queries import ErrorKind
from headrace.ops.shared.paging import Found
from headrace.ops.shared.versions import WorkerVersion

from .. import charts, formatting, urls
from ..cells import Cell, Clip, Code, Dim, Lines, Note, Tag
from ..pages import Page
from ..parts import Choice, Confirm, Empty, Hidden
from ..request_context import BACK, RequestContext
from ..routes import Reply, routes
from . import columns
from .action_pages import begin_look, under_way
from .actions import ACTIONS, action_named
from .columns import Column, Columns, numbers, times
from .list_search import SORT, ListSearch
from .navigation import queue_link, task_url
from .search_box import list_box

_SECTIONS: Final = 200  # of a page
_SAMPLED: Final = 200  # messages whose function is looked up
_QUEUES: Final = 2  # that a row names
_UNCOUNTED: Final = 12
_MOST: Final = 50  # messages of one form
_OFFERED: Final = (BulkAction.RESTART, BulkAction.DELETE)
_NONE: Final = Empty(
    "No errors. Dead tasks and tasks that are retried are listed here, by error. Cancelled tasks"
    " are not failures: their queue lists them as dead."
)


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """A row: one message, or the sum of several messages of one type and function.

    ``beneath`` is whether the row stands below the row of that sum.  ``since`` is the version with
    whose first worker the error began, if it was seen under no older version.
    """

    group: ErrorGroup
    kind: ErrorKind
    messages: tuple[str, ...]
    fingerprints: tuple[str, ...]
    sample: str = ""
    since: str = ""
    beneath: bool = False


@dataclass(frozen=True, slots=True)
class _Section:
    """The messages of one type and function, the most frequent first, and their sum."""

    whole: ErrorLine
    lines: tuple[ErrorLine, ...]

    def rows(self, order: Columns[ErrorLine], sort: str) -> Iterator[ErrorLine]:
        if len(self.lines) == 1:
            yield self.whole
            return
        yield self.whole
        for line in columns.ordered(order, self.lines, sort):
            since = "" if line.since == self.whole.since else line.since
            yield replace(line, since=since, beneath=True)


@routes.get(urls.ERRORS, Permission.LIST)
def show(context: RequestContext) -> Reply:
    """Show what goes wrong in the visitor's queues, most of it first."""
    wanted: ListSearch[ErrorKind] = ListSearch(context, "errors")
    queue = wanted.where.named.get("queue")
    errors = context.use.errors.seen_by(context.by, only=queue)
    lines = _lines(context, errors.groups)
    page = wanted.look(
        lambda where, _limit, _cursor: Found(
            tuple(line.kind for line in lines if where.matches(line.kind, context.now)), None
        )
    )
    shown = set(page.shown)
    lines = [line for line in lines if line.kind in shown]
    order = _columns(context)
    sort = wanted.sort if wanted.sort.removeprefix("-") in order else _USUAL
    sections = _sections(lines)
    ranked = columns.ordered(order, [one.whole for one in sections], sort)
    by_whole = {id(one.whole): one for one in sections}
    some = [by_whole[id(whole)] for whole in ranked[:_SECTIONS]]
    rows = [row for one in some for row in one.rows(order, sort)]
    heads = columns.headings(
        order, sort, _USUAL, whole=True, url=lambda to: wanted.url(**{SORT: to})
    )
    more = formatting.number(len(sections) - len(some))
    return Page(
        "list.html",
        title="Errors",
        http_status=wanted.status,
        search=list_box(context, wanted, page.shown),
        table=columns.table("errors", order, rows, heads),
        pager=replace(
            wanted.pager(len(some)),
            note=f"{more} more: narrow them by a query" if len(some) < len(sections) else "",
        ),
        empty=wanted.empty(_NONE),
        summary=_summary(lines),
        above=(*under_way(context), *_uncounted(context, errors)),
        buttons=(),
        note=("Latest change counted", errors.as_of) if errors.as_of else None,
    )


@routes.post(urls.ERRORS, Permission.OPERATE)
def look(context: RequestContext) -> Reply:
    """Begin a dry run of an action on all dead tasks with some errors."""
    form = context.request.form
    action = action_named(context.request.given("do"))
    queues = tuple(dict.fromkeys(form.get("queue", ())))
    named = tuple(dict.fromkeys(form.get("fingerprint", ())))
    known = all(FINGERPRINT_RE.fullmatch(one) for one in named)
    if action.action not in _OFFERED or not known or not 1 <= len(named) <= _MOST:
        message = "must be one that the page of errors has shown"
        raise InvalidRequest.of("fingerprint", message)
    context.require(Permission.OPERATE, *queues)
    return begin_look(context, action.action, queues, replace(_alike(named), states=("DEAD",)))


def _alike(fingerprints: Sequence[str]) -> TaskFilter:
    if len(fingerprints) == 1:
        return TaskFilter(fingerprint=fingerprints[0])
    return TaskFilter(either=(tuple(TaskFilter(fingerprint=one) for one in fingerprints),))


# -- what is counted -------------------------------------------------------------------------------


def _lines(context: RequestContext, groups: Sequence[ErrorGroup]) -> list[ErrorLine]:
    versions = context.use.versions.every() if groups else []
    found = context.use.errors.samples(context.by, groups[:_SAMPLED])
    return [_line(group, found.get(group.fingerprint, ()), versions) for group in groups]


def _line(
    group: ErrorGroup, samples: Sequence[Task], versions: Sequence[WorkerVersion]
) -> ErrorLine:
    functions = sorted({called_function(task.payload) for task in samples} - {""})
    ran = [one.name for one in versions if one.workers.intersection(group.workers)]
    message = group.message
    if group.dead + group.retried > 1:
        message = blanked(message)
        if not any(map(str.isalnum, message)):
            message = f"{group.message}, or similar" if message else ""
    if not group.fingerprint:
        message = "other errors: more than are counted by message"
    elif not message and not group.type:
        message = "no error reported"
    return ErrorLine(
        group,
        ErrorKind(
            group.fingerprint,
            group.type,
            group.message,
            tuple(functions),
            tuple(queue.name for queue in group.queues),
            tuple(ran),
        ),
        (message,),
        (group.fingerprint,) if group.fingerprint else (),
        samples[0].id if samples else "",
        _new_since(group, versions),
    )


def _new_since(group: ErrorGroup, versions: Sequence[WorkerVersion]) -> str:
    """Return the newest version of a queue, if the error began with or after its first worker.

    Without an older version nothing is known about the time before.
    """
    for queue in group.queues:
        began = [(one.since[queue.name], one.name) for one in versions if queue.name in one.since]
        if len(began) > 1 and group.first >= max(began)[0]:
            return max(began)[1]
    return ""


def _sections(lines: Sequence[ErrorLine]) -> list[_Section]:
    together: dict[tuple[object, ...], list[ErrorLine]] = {}
    for line in lines:
        alone = line.kind.type if line.kind.fingerprint else None
        together.setdefault((alone, line.kind.functions), []).append(line)
    return [_Section(_sum(some), tuple(some)) for some in together.values()]


def _sum(lines: Sequence[ErrorLine]) -> ErrorLine:
    first, *rest = lines
    if not rest:
        return first
    groups = [line.group for line in lines]
    dead, retried = Counter[str](), Counter[str]()
    for queue in (queue for group in groups for queue in group.queues):
        dead[queue.name] += queue.dead
        retried[queue.name] += queue.retried
    names = {queue.name: queue for group in groups for queue in group.queues}
    latest = max(groups, key=lambda group: group.last)
    return replace(
        first,
        group=replace(
            latest,
            dead=sum(group.dead for group in groups),
            retried=sum(group.retried for group in groups),
            first=min(group.first for group in groups),
            day=tuple(map(sum, zip(*(group.day for group in groups), strict=True))),
            queues=tuple(
                replace(queue, dead=dead[name], retried=retried[name])
                for name, queue in sorted(names.items())
            ),
        ),
        messages=tuple(line.messages[0] for line in lines),
        fingerprints=tuple(line.kind.fingerprint for line in lines),
        since=first.since if len({line.since for line in lines}) == 1 else "",
        sample="",
    )


# -- what is shown ---------------------------------------------------------------------------------

_USUAL: Final = "-dead"


def _columns(context: RequestContext) -> Columns[ErrorLine]:
    return {
        "error": Column(
            "Error",
            lambda line: (line.kind.type, line.kind.functions, line.messages),
            lambda line: _title(context, line),
            wide=True,
        ),
        "act": Column("Actions", cell=lambda line: _form(context, line), hidden=True),
        "dead": numbers("Dead", lambda line: line.group.dead),
        "retried": numbers("Retried", lambda line: line.group.retried),
        "first": times("First", lambda line: line.group.first),
        "last": times("Last", lambda line: line.group.last),
        "day": numbers("Last day", lambda line: sum(line.group.day), _spark),
        "queues": Column("Queues", cell=lambda line: _queues(context, line)),
    }


def _title(context: RequestContext, line: ErrorLine) -> Cell:
    named = ", ".join(line.kind.functions)
    functions: tuple[Cell, ...] = ("in", Code(named)) if named else ()
    new = Note(f"new since {line.since}", "bad") if line.since else None
    url = task_url(context, line.sample) if line.sample else ""
    text = line.messages[0]
    if line.beneath:
        return Lines(((Clip(text, url, beneath=True), new),))
    if len(line.messages) > 1:
        text = formatting.count_of(len(line.messages), "message")
        return Lines(((Clip(line.kind.type, strong=True), *functions, new), Dim(text)))
    if not line.kind.type:
        return Lines(((Clip(text, url), new),))
    return Lines(((Clip(line.kind.type, strong=True), *functions, new), Clip(text, url)))


def _spark(line: ErrorLine) -> Cell:
    return charts.spark(line.group.day, of="failures", per="1 h", within="day")


def _queues(context: RequestContext, line: ErrorLine) -> Cell:
    named = sorted(line.group.queues, key=lambda queue: -queue.dead - queue.retried)
    query = query_text(Query(_alike(line.fingerprints))) if line.fingerprints else ""
    tags = tuple(
        Tag(queue.name, context.url(urls.QUEUE, {"q": query}, queue=queue.name))
        for queue in named[:_QUEUES]
    )
    left = len(named) - _QUEUES
    return (*tags, Dim(f"+{left}") if left > 0 else None)


def _form(context: RequestContext, line: ErrorLine) -> Cell:
    dead = [queue.name for queue in line.group.queues if queue.dead]
    prints = line.fingerprints
    if not dead or not 1 <= len(prints) <= _MOST or not context.allows(Permission.OPERATE):
        return None
    return Confirm(
        context.url(urls.ERRORS),
        tuple(
            Choice(one.value, f"{ACTIONS[one.value].verb}…", ACTIONS[one.value].danger)
            for one in _OFFERED
        ),
        hidden=(
            *(Hidden("fingerprint", one) for one in prints),
            *(Hidden("queue", name) for name in dead),
            Hidden(BACK, context.here),
        ),
    )


def _uncounted(context: RequestContext, errors: Errors) -> Iterator[Cell]:
    names = tuple(
        Tag(link.text, link.url)
        for link in (queue_link(context, name) for name in islice(errors.uncounted, _UNCOUNTED))
    )
    if names:
        yield ("Some errors of these queues were not counted. Recount on the queue's page:", *names)


def _summary(lines: Sequence[ErrorLine]) -> str:
    messages = formatting.count_of(len(lines), "message")
    dead = formatting.count_of(sum(line.group.dead for line in lines), "dead task")
    retried = formatting.number(sum(line.group.retried for line in lines))
    return f"{messages}: {dead}, {retried} retried."
