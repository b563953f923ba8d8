"""The audit: who did what by hand, to how many, when, and from which filter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.filters import STATE_WORDS
from headrace.ops.operators import visibility
from headrace.ops.shared.audit import AuditFilter, AuditRecord
from headrace.ops.shared.sentences import changes, sentence

from .. import formatting, urls
from ..forms import Errors
from ..pages import Page
from ..parts import Empty, Field, FilterForm, Option, Pager
from ..request_context import RequestContext
from ..routes import Reply, routes
from .navigation import pager, per_page

_NAMES: Final = ("queue", "actor", "action", "from", "to", "limit")
_SHOWN_IDS: Final = 3
_LONGEST: Final = 256  # bytes of a name
# How a filter of tasks is written in the audit, and in the address of a queue's page.
_ASKED: Final = {
    "worker": "worker",
    "error": "error",
    "fingerprint": "fingerprint",
    "min_attempts": "attempts",
    "scheduled_after": "after",
    "scheduled_before": "before",
    "priority": "priority",
    "group_key": "group",
}
ACTIONS: Final = (
    "create_queue", "update_queue", "delete_queue", "pause", "resume", "purge", "recount",
    "reindex",
    "restart", "run", "move", "cancel", "delete", "undo",
    "put_schedule", "run_schedule", "delete_schedule",
    "create_key", "rotate_key", "revoke_key",
    "quiet", "stop", "sign_in", "sign_out", "refuse_sign_in", "refuse",
)  # fmt: skip
_BESIDES: Final = ("to_queue", "seen_at", "set", "queues")  # noted with a filter, but no part of it
_OF_ITS_PAGE: Final = ("seen_at", "set")
_OF_NO_PAGE: Final = ("delete_queue",)  # there is nothing behind its link


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One action; ``filters`` say to what, ``ids`` to which, as far as they fit.

    ``actor_url`` leads to all that the same key did, known by its id, not its name.
    """

    entry: AuditRecord
    actor_url: str | None
    queue_url: str | None
    filters: str
    filters_url: str | None
    run_url: str | None
    ids: tuple[str, ...]
    more_ids: int
    sentence: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Page):
    """Actions, the newest first."""

    template: ClassVar[str] = "audit.html"
    filter: FilterForm
    rows: tuple[AuditRow, ...]
    pager: Pager
    empty: Empty


@routes.get(urls.AUDIT, Permission.OPERATE)
def show(context: RequestContext) -> Reply:
    """Show a page of the audit."""
    given = {name: context.request.param(name) for name in _NAMES}
    errors = Errors()
    where = AuditFilter(
        queue=errors.text("queue", given["queue"], _LONGEST),
        actor=errors.text("actor", given["actor"], _LONGEST),
        action=errors.text("action", given["action"], _LONGEST),
        since=errors.instant("from", given["from"]),
        before=errors.instant("to", given["to"]),
    )
    limit = errors.whole("limit", given["limit"], (1, limits.LIST_PAGE)) or 50
    rows: tuple[AuditRow, ...] = ()
    cursor = None
    if not errors:
        page = visibility.audit(
            context.use.audit, context.by, where, limit=limit, cursor=context.cursor
        )
        rows = tuple(_row(context, entry) for entry in page.shown)
        cursor = page.cursor
    narrowed = any(given[name] for name in _NAMES[:-1])
    shown = formatting.count_of(len(rows), "action") if rows else ""
    return AuditPage(
        title="Audit",
        http_status=400 if errors else 200,
        filter=_form(context, given, errors, limit, narrowed=narrowed),
        rows=rows,
        pager=pager(context, shown, urls.AUDIT, cursor, given),
        empty=_empty(errors, narrowed=narrowed, more=cursor is not None),
    )


def _form(
    context: RequestContext, given: Mapping[str, str], errors: Errors, limit: int, *, narrowed: bool
) -> FilterForm:
    here, of = context.url(urls.AUDIT), errors.of
    fields = (
        Field("queue", "Queue", given["queue"], error=of("queue"), hint="exactly"),
        Field("actor", "By", given["actor"], error=of("actor"), hint="name or id of a key"),
        Field("action", "Action", given["action"], error=of("action"),
              options=tuple(Option(action, action) for action in ACTIONS)),
        Field("from", "From, UTC", given["from"], "datetime-local", error=of("from")),
        Field("to", "To, UTC", given["to"], "datetime-local", error=of("to")),
        per_page(limit, of("limit")),
    )  # fmt: skip
    return FilterForm(here, fields, (), here if narrowed else None, narrowed or bool(errors))


def _empty(errors: Errors, *, narrowed: bool, more: bool) -> Empty:
    if errors:
        return Empty("Nothing was looked for: something above is not right.")
    if more:
        return Empty("Nothing that fits among those looked at so far. There are more to look at.")
    if narrowed:
        return Empty("Nothing in the last 90 days fits this filter.")
    return Empty(
        "What people change by hand would be here, for 90 days. Nothing was changed yet.",
        "headrace queue create mail",
    )


def _row(context: RequestContext, entry: AuditRecord) -> AuditRow:
    queue = entry.queue or ""
    reachable = bool(queue) and context.allows(Permission.READ, queue)
    linked = reachable and entry.action not in _OF_NO_PAGE
    ids = tuple(entry.ids or ())
    query = _query(entry.filter or {}) if linked else None
    return AuditRow(
        entry=entry,
        actor_url=context.url(urls.AUDIT, {"actor": entry.actor_id}) if entry.actor_id else None,
        queue_url=context.url(urls.QUEUE, queue=queue) if linked else None,
        filters=_filter_text(entry.filter, told=bool(entry.run)),
        filters_url=context.url(urls.QUEUE, query, queue=queue) if query else None,
        run_url=context.url(urls.ACTION, id=entry.run) if entry.run else None,
        ids=ids[:_SHOWN_IDS],
        more_ids=max(0, len(ids) - _SHOWN_IDS),
        sentence=sentence(entry) or "",
        changes=changes(entry),
    )


def _filter_text(where: Mapping[str, Any] | None, *, told: bool) -> str:
    """Return a filter in words; *told*: without what the page of the action tells."""
    if where is None:
        return ""
    if told:
        where = {name: value for name, value in where.items() if name not in _OF_ITS_PAGE}
    if not where and not told:
        return "every task"
    return ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in where.items())


def _text(value: object) -> str:
    if value is None:
        return "another queue"  # nothing else is ever hidden
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _query(where: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the query of the queue's page that asks the same; None where it cannot."""
    query: dict[str, str] = {}
    for name, value in where.items():
        if name == "state" and _text(value) in STATE_WORDS:
            query["state"] = _text(value)
        elif name == "tags" and isinstance(value, Mapping):
            query["tag"] = _text(value)
        elif name in ("scheduled_after", "scheduled_before"):
            query[_ASKED[name]] = str(value)[:19]
        elif name in _ASKED:
            query[_ASKED[name]] = _text(value)
        elif name not in _BESIDES:
            return None
    return query or None
