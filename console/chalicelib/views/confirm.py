"""The confirmation page, the same for every action."""

import secrets

from ..pages import Page
from ..parts import Choice, Confirm, Field, Hidden, Link
from ..request_context import ONCE


def once() -> Hidden:
    """Return the field of a form that may be sent once, because its answer shows a secret."""
    return Hidden(ONCE, secrets.token_hex(16))


def ask(  # noqa: PLR0913  what questions differ in
    crumbs: tuple[Link, ...],
    *,
    question: str,
    action: str,
    button: str,
    title: str = "",
    detail: str = "",
    danger: bool = False,
    possible: bool = True,
    otherwise: str = "Cancel",
    fields: tuple[Field, ...] = (),
    hidden: tuple[Hidden, ...] = (),
    back: Link | None = None,
    status: int = 200,
) -> Page:
    """Return the page that asks *question*; the form of its *button* goes to *action*.

    There is no form unless that is *possible*.  The link *otherwise* leads *back*, by default to
    the last of *crumbs*.
    """
    back = back or crumbs[-1]
    choices = (Choice("", button, danger),)
    form = Confirm(action, choices, Link(otherwise, back.url), fields, hidden)
    return Page(
        "confirm.html",
        title=title or question,
        http_status=status,
        crumbs=crumbs,
        question=question,
        detail=detail,
        form=form if possible else None,
        back=back,
    )
