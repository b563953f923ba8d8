"""Saved views of a list: shown beside its search box, saved and removed there."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.domain import limits
from headrace.domain.access import Permission
from headrace.domain.errors import InvalidRequest, NotFound
from headrace.ops.search.search import place_of_list

from .. import urls
from ..pages import Flash
from ..parts import Choice, Confirm, Field, Hidden, Link
from ..request_context import BACK, RequestContext
from ..routes import Redirect, Reply, routes
from .lists import LISTS

if TYPE_CHECKING:
    from collections.abc import Callable

_ORDERS = ("asc", "desc")


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """The list that views are of: the name that they are kept under, and where its form goes.

    ``url`` leads to the list with a query and an order.
    """

    name: str
    action: str
    may_save: bool
    url: "Callable[[str, str], str]"


def of_queue(context: RequestContext, queue: str) -> ViewPlace:
    """Return the place of the views of a queue's tasks."""
    return ViewPlace(
        queue,
        context.url(urls.SAVED_VIEWS, queue=queue),
        context.allows(Permission.OPERATE, queue),
        partial(_url, context, urls.QUEUE, queue=queue),
    )


def of_list(context: RequestContext, name: str) -> ViewPlace:
    """Return the place of the views of another list."""
    return ViewPlace(
        place_of_list(name, context.by),
        context.url(urls.LIST_VIEWS, list=name),
        context.allows(Permission.OPERATE),
        partial(_url, context, LISTS[name].route),
    )


def links(context: RequestContext, place: ViewPlace, text: str) -> tuple[Link, ...]:
    """Return the views, that of *text* as the current one."""
    return tuple(
        Link(view.name, place.url(view.text, view.order), current=view.text == text)
        for view in context.use.views.of(place.name)
    )


def form(
    views: tuple[Link, ...], place: ViewPlace, text: str, order: str = "", *, here: str
) -> Confirm | None:
    """Return the form to save the query *text*, or to remove its view; None without a query.

    *here* is the page that it leads back to.
    """
    if not text or not place.may_save:
        return None
    hidden = (Hidden("q", text), Hidden("order", order), Hidden(BACK, here))
    saved = next((view.text for view in views if view.current), None)
    if saved is not None:
        remove = Choice("remove", f"Remove the view {saved}")
        return Confirm(place.action, (remove,), hidden=(*hidden, Hidden("name", saved)))
    name = Field("name", "Name of the view", hint="Everybody sees it here.", required=True)
    save = Choice("save", "Save this view")
    return Confirm(place.action, (save,), fields=(name,), hidden=hidden)


@routes.post(urls.SAVED_VIEWS, Permission.OPERATE)
def act(context: RequestContext) -> Reply:
    """Save a view of a queue's tasks, or remove one."""
    context.require(Permission.OPERATE, context.queue)
    return _act(context, of_queue(context, context.queue))


@routes.post(urls.LIST_VIEWS, Permission.OPERATE)
def act_on_list(context: RequestContext) -> Reply:
    """Save a view of another list, or remove one."""
    name = context.request.names["list"]
    if name not in LISTS:
        message = f"there is no list {name[:40]} that has views"
        raise NotFound(message)
    context.require(Permission.OPERATE)
    context.require(LISTS[name].needs)
    return _act(context, of_list(context, name))


def _act(context: RequestContext, place: ViewPlace) -> Reply:
    given = context.request.given
    text, order, name = given("q"), given("order"), given("name").strip()
    back = context.back or place.url(text, order)
    if given("do") == "remove":
        context.use.views.remove(place.name, name)
        return Redirect(back, Flash("done", f"The view {name} is removed."))
    try:
        order = order if order in _ORDERS else ""
        context.use.views.save(place.name, name, text, order=order, by=context.by.name)
    except InvalidRequest as error:
        return Redirect(back, Flash("failed", f"Not saved: {error.detail}."))
    return Redirect(back, Flash("done", f"The view {name} is saved."))


def _url(context: RequestContext, route: str, text: str, order: str, **names: str) -> str:
    terms = {"q": text[: limits.QUERY], "order": order}
    return context.url(route, terms, **names)
