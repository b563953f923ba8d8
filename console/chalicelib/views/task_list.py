"""The list of a queue's tasks: the query in its address, and the rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.domain import limits, query
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.domain.filters import EVERY_TASK, STATE_WORDS, statuses_of
from headrace.domain.ids import id_fault
from headrace.domain.indexing import PAYLOAD, tag_field
from headrace.domain.query import Query
from headrace.domain.query_grammar import FIELD
from headrace.domain.queue import Queue
from headrace.domain.task import Status

from .. import formatting, urls
from ..forms import FormErrors, number_of_ours
from ..parts import (
    Choice,
    Empty,
    Pager,
    UnfinishedLook,
)
from ..request_context import RequestContext
from ..snippets import of_list
from . import task_rows
from .actions import ACTIONS
from .columns import longer_than_a_page
from .task_rows import TaskRow, task_row

STATE: Final = "state"
ORDER: Final = "order"
SORT: Final = "sort"  # as task_rows.py has it
SEARCHED: Final = "q"
LIMIT: Final = "limit"
_NEWEST_FIRST: Final = ("DEAD", "SUCCEEDED", "failed")
_WORDS: Final = {word.lower(): word for word in STATE_WORDS}

_ORDERS: Final = ("asc", "desc")
_PER_PAGE: Final = 50
_SEVERAL: Final = 2

_LOOK_AT: Final = 750  # tasks that a page reads if few match: a page must be fast
_ENTRIES: Final = 20_000  # entries of the index that a page reads
_TIMES: Final = {
    "": "When",
    "SCHEDULED": "Due",
    "READY": "Due since",
    "INFLIGHT": "Running for",
    "SUCCEEDED": "Succeeded",
    "DEAD": "Died",
}


class TaskQuery:
    """The query, order and page size in the address, with their errors."""

    def __init__(self, context: RequestContext) -> None:
        param = context.request.param
        self.errors = errors = FormErrors()
        self.typed = param(SEARCHED).strip()
        asked = self._asked(context)
        state = _WORDS.get(param(STATE).lower(), param(STATE))
        if state and state not in STATE_WORDS:
            errors.add(STATE, f"must be one of {', '.join(STATE_WORDS)}")
            state = ""
        self.queue = asked.queue
        self.where = replace(asked.where, states=(state,)) if state else asked.where
        states = self.where.states
        self.state = states[0] if len(states) == 1 else ""
        self.order = param(ORDER)
        self.sort = param(SORT)
        self.limit = errors.whole(LIMIT, param(LIMIT), (1, limits.LIST_PAGE)) or _PER_PAGE

    def _asked(self, context: RequestContext) -> Query:
        try:
            asked = query.read(self.typed)
        except InvalidRequest as error:
            self.errors.take(error, otherwise=FIELD)
            return Query()
        if asked.where.needs_payload and not context.allows(Permission.DETAILS, context.queue):
            self.errors.add(FIELD, "names a payload, and payloads are not shown to this key")
        return asked

    @property
    def text(self) -> str:
        """The whole of it as one query; where something is wrong, what was typed."""
        return self.typed if self.errors else query.query_text(Query(self.where))

    @property
    def descending(self) -> bool:
        """Whether the newest come first: by default in lists of finished tasks."""
        return self.order == "desc" if self.order in _ORDERS else self.state in _NEWEST_FIRST

    @property
    def narrowed(self) -> bool:
        """Whether anything besides the state is filtered by."""
        return replace(self.where, states=()) != EVERY_TASK

    def query(self, **changed: object) -> dict[str, object]:
        """Return the same query for an address, with something *changed*."""
        states = ",".join(self.where.states)
        terms = replace(self.where, states=()) if len(self.where.states) < _SEVERAL else self.where
        return {
            STATE: "" if terms.states else states,
            SEARCHED: query.query_text(Query(terms)),
            ORDER: self.order,
            SORT: self.sort,
            LIMIT: "" if self.limit == _PER_PAGE else self.limit,
            **changed,
        }

    def with_state(self, state: str) -> dict[str, object]:
        """Return the same query for the tasks of *state*, in the order that suits it."""
        terms = query.query_text(Query(replace(self.where, states=())))
        return self.query(**{STATE: state, SEARCHED: terms, ORDER: "", SORT: ""})


def tasks(
    context: RequestContext, queue: Queue, wanted: TaskQuery, counts: Mapping[Status, int]
) -> dict[str, Any]:
    """Return the tasks that *wanted* selects, and the actions on the selected and on all of them.

    Of *counts* it takes about how many there are to look at.
    """
    rows: tuple[TaskRow, ...] = ()
    cursor = None
    by_creation = by_state = False
    looked = number_of_ours(context.request.param("looked"), 0)  # by the pages before this one
    if not wanted.errors:
        page = context.use.inspect.list(
            queue.name,
            wanted.where,
            descending=wanted.descending,
            limit=wanted.limit,
            cursor=context.cursor,
            payload=context.allows(Permission.DETAILS, queue.name),
            fetch=False,
            look_at=_LOOK_AT if wanted.where.id_prefix is None else _ENTRIES,
        )
        by_creation, by_state = page.by_creation, page.by_state
        mixed = not wanted.state or wanted.state not in _TIMES
        rows = tuple(task_row(context, task, mixed=mixed) for task in page.tasks)
        cursor = page.cursor
        looked += page.looked_at
    operates = context.allows(Permission.OPERATE, queue.name)
    fits = [each for each in ACTIONS.values() if each.takes(wanted.state)]
    more = context.url(urls.QUEUE, wanted.query(cursor=cursor, looked=looked), queue=queue.name)
    # How many tasks have an indexed value is not known.
    every = None if by_creation else max(looked, _to_look_at(wanted, counts))
    far = f"{formatting.count_of(looked, 'task')} searched"
    if cursor is not None and every is not None:
        far = f"{formatting.number(looked)} of about {formatting.count_of(every, 'task')} searched"
    elif by_creation and wanted.where.id_prefix is None:
        far = f"{formatting.count_of(looked, 'task')} with the indexed value searched"
    why = _why_all(queue, wanted, by_creation=by_creation, by_state=by_state)
    so_far = f" found, {far}" if wanted.narrowed else ""
    if by_creation:
        so_far = " found by an index, in the order of creation"
    whole = cursor is None and not context.cursor
    order = "desc" if wanted.descending else "asc"
    return {
        "rows": task_rows.ordered(rows, wanted.sort) if whole else rows,
        "headings": tuple(
            task_rows.headings(
                _TIMES.get(wanted.state, "When"),
                wanted.sort,
                order=order if _in_order_of_time(queue, wanted) and not by_creation else "",
                whole=whole,
                ranked=queue.settings.priority is not None,
                url=lambda sort, order: context.url(
                    urls.QUEUE,
                    wanted.query(**{SORT: sort, ORDER: order or wanted.order}),
                    queue=queue.name,
                ),
            )
        ),
        "select": context.url(urls.SELECTED, queue=queue.name) if operates else None,
        "actions": tuple(Choice(each.name, f"{each.verb}…", each.danger) for each in fits),
        "pager": Pager(
            shown=f"{formatting.count_of(len(rows), 'task')}{so_far}" if rows else "",
            first=context.url(urls.QUEUE, wanted.query(), queue=queue.name)
            if context.cursor
            else None,
            next=more if cursor and rows else None,
            note="" if whole or not rows else longer_than_a_page("its time"),
        ),
        "empty": _empty(queue.name, wanted),
        "matching": context.url(urls.MATCHING, wanted.query(), queue=queue.name)
        if operates and (rows or cursor) and wanted.where != EVERY_TASK
        else None,
        "matching_actions": tuple(
            Choice(each.name, f"{formatting.upon(each.verb, 'all')}…", each.danger) for each in fits
        ),
        "matched": _matched(len(rows), wanted, counts, whole=whole),
        "snippets": ()
        if wanted.errors
        else of_list(queue.name, wanted.where, descending=wanted.descending),
        "ranked": queue.settings.priority is not None,
        "looking": UnfinishedLook(looked, every, f"None found yet: {far}{why}.", more)
        if cursor is not None and not rows
        else None,
    }


def _in_order_of_time(queue: Queue, wanted: TaskQuery) -> bool:
    """Return whether the list is sorted by the time that it shows.

    Tasks that take turns and tasks in flight have another order.
    """
    by_turn = queue.settings.groups is not None and wanted.state in ("SCHEDULED", "READY")
    return (
        bool(wanted.state) and wanted.state in _TIMES and wanted.state != "INFLIGHT" and not by_turn
    )


def _why_all(queue: Queue, wanted: TaskQuery, *, by_creation: bool, by_state: bool) -> str:
    """Return why an index does not help a query that names a payload field or a tag."""
    where = wanted.where
    named = [PAYLOAD + path for path in where.payload] + [tag_field(key) for key in where.tags]
    if not named or where.id_prefix is not None or by_creation:
        return ""
    if by_state:
        return ", because fewer tasks are in this state than have the indexed value"
    being_built = [one for one in named if one in queue.settings.indexed_fields]
    if being_built:
        return f", until the index of {being_built[0]} is built"
    return f", because {named[0]} is not indexed in {queue.name}"


def _matched(shown: int, wanted: TaskQuery, counts: Mapping[Status, int], *, whole: bool) -> str:
    """Return how many tasks match; a plus says that there are more."""
    if wanted.where == EVERY_TASK:
        return formatting.count_of(sum(counts.values()), "task")
    if whole or wanted.narrowed:
        more = "" if whole else "+"
        return f"{formatting.number(shown)}{more} match{'es' if whole and shown == 1 else ''}"
    return f"{formatting.number(_to_look_at(wanted, counts))} match"


def _to_look_at(wanted: TaskQuery, counts: Mapping[Status, int]) -> int:
    """Return about how many tasks are in the states that are asked for."""
    meant = statuses_of(wanted.state) if wanted.state in STATE_WORDS else counts.keys()
    return sum(counts.get(status, 0) for status in meant)


def _empty(queue: str, wanted: TaskQuery) -> Empty:
    """Return the text of an empty list."""
    if wanted.errors:
        state = wanted.errors.of(STATE)  # no field shows this error
        why = f"state {state}" if state else "something above is not right"
        return Empty(f"Nothing was looked for: {why}.")
    if wanted.where.id_prefix is not None:
        why = id_fault(wanted.where.id_prefix) or "mistyped, in another queue, or no longer kept"
        return Empty(f"No task here whose id begins with {wanted.where.id_prefix} fits: {why}.")
    if wanted.narrowed:
        return Empty("No task fits this filter.")
    if wanted.state:
        return Empty(f"No task of {queue} is {wanted.state.lower()} now.")
    return Empty(
        "No tasks yet.",
        f'headrace enqueue {queue} \'{{"hello": "world"}}\'',
    )
