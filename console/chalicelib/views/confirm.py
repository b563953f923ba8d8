"""The confirmation page, the same for every action; what it asks is data."""

import secrets
from dataclasses import dataclass

from ..pages import Page
from ..parts import Choice, Confirm, Field, Hidden, Link
from ..request_context import ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an action would do, and to which tasks; its form goes to ``action``.

    ``title`` is the question itself unless given; nothing is offered unless it is ``possible``.
    ``otherwise`` is the way back in words.
    """

    question: str
    action: str
    button: str
    title: str = ""
    detail: str = ""
    danger: bool = False
    possible: bool = True
    otherwise: str = "Cancel"
    fields: tuple[Field, ...] = ()
    hidden: tuple[Hidden, ...] = ()


def once() -> Hidden:
    """Return the field of a form that may be sent once, because its answer shows a secret."""
    return Hidden(ONCE, secrets.token_hex(16))


def ask(
    prompt: Question, crumbs: tuple[Link, ...], *, back: Link | None = None, status: int = 200
) -> Page:
    """Return the page; otherwise it leads *back*, by default to the last of *crumbs*."""
    back = back or crumbs[-1]
    form = Confirm(
        prompt.action,
        (Choice("", prompt.button, prompt.danger),),
        Link(prompt.otherwise, back.url),
        prompt.fields,
        prompt.hidden,
    )
    return Page(
        "confirm.html",
        title=prompt.title or prompt.question,
        http_status=status,
        crumbs=crumbs,
        question=prompt.question,
        detail=prompt.detail,
        form=form if prompt.possible else None,
        back=back,
    )
