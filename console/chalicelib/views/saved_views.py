"""Saved views of a queue's list: shown beside the search box, saved and removed there."""

from headrace.domain import query_grammar
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest
from headrace.ops.operators.views import SavedView

from .. import urls
from ..pages import Flash
from ..parts import Choice, Confirm, Field, Hidden, Link
from ..request_context import RequestContext
from ..routes import Redirect, Reply, routes


def links(context: RequestContext, views: list[SavedView], text: str) -> tuple[Link, ...]:
    """Return the views, that of *text* as the current one."""
    return tuple(
        Link(view.name, _url(context, view.text, view.order), current=view.text == text)
        for view in views
    )


def form(context: RequestContext, views: list[SavedView], text: str, order: str) -> Confirm | None:
    """Return the form to save the query *text*, or to remove its view; None for nobody's query."""
    if not text or not context.allows(Permission.OPERATE, context.queue):
        return None
    hidden = (Hidden("q", text), Hidden("order", order))
    action = context.url(urls.SAVED_VIEWS, queue=context.queue)
    saved = next((view.name for view in views if view.text == text), None)
    if saved is not None:
        remove = Choice("remove", f"Remove the view {saved}")
        return Confirm(action, (remove,), hidden=(*hidden, Hidden("name", saved)))
    name = Field("name", "Name of the view", hint="Everybody sees it here.", required=True)
    return Confirm(action, (Choice("save", "Save this view"),), fields=(name,), hidden=hidden)


@routes.post(urls.SAVED_VIEWS, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Save a view, or remove one."""
    given, queue = context.request.given, context.queue
    context.require(Permission.OPERATE, queue)
    text, order, name = given("q"), given("order"), given("name").strip()
    back = _url(context, text, order)
    if given("do") == "remove":
        context.use.views.remove(queue, name)
        return Redirect(back, Flash("done", f"The view {name} is removed."))
    try:
        order = order if order in ("asc", "desc") else ""
        context.use.views.save(queue, name, text, order=order, by=context.by.name)
    except InvalidRequest as error:
        return Redirect(back, Flash("failed", f"Not saved: {error.detail}."))
    return Redirect(back, Flash("done", f"The view {name} is saved."))


def _url(context: RequestContext, text: str, order: str) -> str:
    terms = {"q": text[: query_grammar.MOST], "order": order}
    return context.url(urls.QUEUE, terms, queue=context.queue)
