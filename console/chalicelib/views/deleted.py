"""The page of a deleted task: time, actor and reason of the deletion, and its undo."""

from datetime import datetime
from typing import Final

from headrace.domain.access import Permission
from headrace.domain.errors import HeadraceError
from headrace.domain.query_grammar import term_text
from headrace.ops.search.list_queries import AUDIT
from headrace.ops.shared.audit import AuditFilter

from .. import formatting, urls
from ..parts import Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Reply
from .confirm import ask
from .navigation import crumbs

_GONE: Final = 410


def deleted_page(context: RequestContext, missing: HeadraceError) -> Reply:
    """Return the page of the task of the path, which is *missing*.

    Raises *missing* if no record of the deletion is left, or this visitor may not see it.
    """
    task_id = context.request.names["id"]
    undo = context.use.undos.of_task(task_id)
    if undo is not None:
        context.require(Permission.READ, undo.queue)
        operates = context.allows(Permission.OPERATE, undo.queue)
        if not operates:
            return _page(context, _text(context, undo.at, "", ""), undo.queue, "")
        text = _text(context, undo.at, undo.by, undo.reason)
        if undo.ids is None or len(undo.ids) > 1:
            text += " Undo restores all tasks deleted with it."
        return _page(context, text, undo.queue, undo.id)
    if not context.allows(Permission.OPERATE):
        raise missing
    where = AuditFilter(action="delete", matching=AUDIT.read(term_text("id", task_id)))
    entry = next(iter(context.use.audit.list(where, limit=1).shown), None)
    if entry is None:
        raise missing
    text = _text(context, entry.at, entry.actor, entry.reason or "")
    return _page(context, f"{text} It can no longer be restored.", entry.queue or "", "")


def _text(context: RequestContext, at: datetime, by: str, reason: str) -> str:
    who = f" by {by}" if by else ""
    why = f": {reason}" if reason else ""
    return formatting.sentence(f"Deleted {formatting.ago(at, context.now)}{who}{why}")


def _page(context: RequestContext, text: str, queue: str, undo: str) -> Reply:
    task_id = context.request.names["id"]
    way = crumbs(context, queue)
    here = context.url(urls.TASK, {BACK: context.back}, id=task_id)
    return ask(
        way,
        title=f"{task_id} was deleted",
        question=f"Task {task_id} was deleted",
        detail=text,
        action=context.url(urls.UNDO),
        button="Undo",
        possible=bool(undo),
        otherwise=f"Back to {way[-1].text}",
        hidden=(Hidden("undo", undo), Hidden(BACK, here)),
        back=Link(f"Back to {way[-1].text}", context.back or way[-1].url),
        status=_GONE,
    )
